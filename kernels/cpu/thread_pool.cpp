#include "kernels/cpu/thread_pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <stdexcept>
#include <string>

#include "kernels/cpu/cpu_share.hpp"

namespace penstock::kernels::cpu {
namespace {

// About 50 us: operations of a decode step take 10 to 300 us, and members differ by a part of that. A sleep and its
// wake-up cost about as much.
constexpr std::uint32_t brief_spin_rounds = 1000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Pinning is a wish: a container may forbid it, and results don't depend on it.
void pin_this_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

ThreadPool::ThreadPool(ThreadPoolOptions options)
    : options_(std::move(options)),
      spin_rounds_(options_.spin_rounds.value_or(options_.threads <= available_cpus() ? brief_spin_rounds : 0)) {
  if (options_.threads == 0) throw std::invalid_argument("a thread pool needs at least one thread");
  if (!options_.cpus.empty() && options_.cpus.size() != options_.threads) {
    throw std::invalid_argument("a thread pool needs one cpu for each thread, or none");
  }
  for (int cpu : options_.cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) throw std::invalid_argument("no such cpu: " + std::to_string(cpu));
  }
  if (!options_.cpus.empty()) pin_this_thread(options_.cpus[0]);
  for (std::uint32_t index = 1; index < options_.threads; ++index) {
    threads_.emplace_back([this, index] { work(index); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  start_.fetch_add(1, std::memory_order_release);
  start_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run_erased(Erased call, void* context) {
  call_ = call;
  context_ = context;
  if (options_.threads > 1) {
    start_.fetch_add(1, std::memory_order_release);
    start_.notify_all();
  }
  Member member(*this, 0);
  call(context, member);
  barrier();
}

void ThreadPool::work(std::uint32_t index) {
  if (!options_.cpus.empty()) pin_this_thread(options_.cpus[index]);
  std::uint32_t seen = 0;
  while (true) {
    seen = wait_for_change(start_, seen);
    if (stopping_) return;
    Member member(*this, index);
    call_(context_, member);
    barrier();
  }
}

void ThreadPool::barrier() {
  if (options_.threads == 1) return;
  const std::uint32_t generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == options_.threads) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
    generation_.notify_all();
    return;
  }
  wait_for_change(generation_, generation);
}

std::uint32_t ThreadPool::wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) const {
  for (std::uint32_t round = 0; round < spin_rounds_; ++round) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    pause_briefly();
  }
  while (true) {
    value.wait(old, std::memory_order_acquire);
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
  }
}

}  // namespace penstock::kernels::cpu
