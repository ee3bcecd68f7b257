// A fixed team of threads that runs one function at a time; the caller is member 0. A whole model step can be one
// run() with barriers between operations, so that decode pays no wake-up an operation.
// Owner: the executor. run() is called by one thread at a time. Waiting spins for tens of microseconds if every thread
// can have a processor, then sleeps in the kernel; with more threads than processors it sleeps at once, since who spins
// then keeps the one that it waits for from running. The function must not throw, and every member must reach every
// barrier.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/cpu/slice.hpp"

namespace penstock::kernels::cpu {

struct ThreadPoolOptions {
  std::uint32_t threads = 1;
  std::vector<int> cpus;  // pin member i to cpus[i]; empty: not pinned. Member 0 (the caller) is pinned too.
  std::optional<std::uint32_t> spin_rounds;  // pauses before a waiting member sleeps; absent: as said above
};

class ThreadPool {
 public:
  /// One member's view of a run; valid inside the function only.
  class Member {
   public:
    Member(ThreadPool& pool, std::uint32_t index) : pool_(pool), index_(index) {}
    std::uint32_t index() const { return index_; }
    std::uint32_t count() const { return pool_.size(); }
    Slice slice() const { return {index_, pool_.size()}; }
    /// Returns when all members have called it; what they wrote before is visible after.
    void barrier() { pool_.barrier(); }

   private:
    ThreadPool& pool_;
    std::uint32_t index_;
  };

  explicit ThreadPool(ThreadPoolOptions options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::uint32_t size() const { return options_.threads; }

  /// Calls function(Member&) on every member and returns when all have returned.
  template <class Function>
  void run(Function&& function) {
    run_erased(
        [](void* context, Member& member) { (*static_cast<std::remove_reference_t<Function>*>(context))(member); },
        const_cast<void*>(static_cast<const void*>(std::addressof(function))));
  }

 private:
  using Erased = void (*)(void*, Member&);

  void run_erased(Erased call, void* context);
  void barrier();
  void work(std::uint32_t index);
  std::uint32_t wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) const;

  ThreadPoolOptions options_;
  std::uint32_t spin_rounds_;
  Erased call_ = nullptr;
  void* context_ = nullptr;
  bool stopping_ = false;                                 // written before a start, read after it
  alignas(64) std::atomic<std::uint32_t> start_{0};       // counts runs
  alignas(64) std::atomic<std::uint32_t> arrived_{0};     // members inside the current barrier
  alignas(64) std::atomic<std::uint32_t> generation_{0};  // counts barriers
  std::vector<std::thread> threads_;
};

}  // namespace penstock::kernels::cpu
