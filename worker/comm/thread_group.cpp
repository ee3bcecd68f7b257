#include "worker/comm/thread_group.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.hpp"

namespace penstock::worker {

/// One rank's end of the group. Every operation is: publish, meet, read the others, meet again.
class ThreadGroup::Member final : public Collective {
 public:
  Member(ThreadGroup& group, std::uint32_t rank) : group_(group), rank_(rank) {}

  std::uint32_t rank() const override { return rank_; }
  std::uint32_t ranks() const override { return group_.ranks(); }

  Result<void> barrier() override { return group_.meet(rank_, "barrier"); }

  Result<void> all_reduce(std::span<float> values) override {
    PENSTOCK_TRY_VOID(publish(values.data(), values.size(), "all_reduce"));
    sum_.resize(values.size());
    add_parts(0, sum_);
    PENSTOCK_TRY_VOID(group_.meet(rank_, "all_reduce"));
    std::copy(sum_.begin(), sum_.end(), values.begin());
    return {};
  }

  Result<void> all_gather(std::span<const float> in, std::span<float> out) override {
    PENSTOCK_CHECK(out.size() == in.size() * ranks(), "gather", in.size(), "into", out.size());
    PENSTOCK_TRY_VOID(publish(in.data(), in.size(), "all_gather"));
    for (std::uint32_t from = 0; from < ranks(); ++from) {
      std::copy_n(peer(from), in.size(), out.data() + from * in.size());
    }
    return group_.meet(rank_, "all_gather");
  }

  Result<void> all_gather_columns(const ColumnGather& gather) override {
    PENSTOCK_TRY_VOID(publish(&gather, gather.rows, "all_gather_columns"));
    for (std::uint32_t from = 0; from < ranks(); ++from) {
      const auto& theirs = *static_cast<const ColumnGather*>(group_.shared_[from]);
      for (std::size_t row = 0; row < gather.rows; ++row) {
        std::copy_n(theirs.in + row * theirs.in_stride, theirs.columns,
                    gather.out + row * gather.out_stride + theirs.first_column);
      }
    }
    return group_.meet(rank_, "all_gather_columns");
  }

  Result<void> reduce_scatter(std::span<const float> in, std::span<float> out) override {
    PENSTOCK_CHECK(in.size() == out.size() * ranks(), "scatter", in.size(), "into", out.size());
    PENSTOCK_TRY_VOID(publish(in.data(), in.size(), "reduce_scatter"));
    add_parts(rank_ * out.size(), out);
    return group_.meet(rank_, "reduce_scatter");
  }

  Result<void> broadcast(std::span<float> values, std::uint32_t root) override {
    PENSTOCK_CHECK(root < ranks(), "root", root);
    PENSTOCK_TRY_VOID(publish(values.data(), values.size(), "broadcast"));
    if (root != rank_) std::copy_n(peer(root), values.size(), values.data());
    return group_.meet(rank_, "broadcast");
  }

 private:
  Result<void> publish(const void* data, std::size_t count, const char* operation) {
    group_.shared_[rank_] = data;
    group_.sizes_[rank_] = count;
    PENSTOCK_TRY_VOID(group_.meet(rank_, operation));
    for (std::uint32_t from = 0; from < ranks(); ++from) {
      PENSTOCK_CHECK(group_.sizes_[from] == count, operation, "rank", from, "gives", group_.sizes_[from], "expected",
                     count);
    }
    return {};
  }

  const float* peer(std::uint32_t from) const { return static_cast<const float*>(group_.shared_[from]); }

  /// out[i] = sum over ranks of their value at first + i, from rank 0 up.
  void add_parts(std::size_t first, std::span<float> out) const {
    std::copy_n(peer(0) + first, out.size(), out.data());
    for (std::uint32_t from = 1; from < ranks(); ++from) {
      const float* theirs = peer(from) + first;
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += theirs[i];
    }
  }

  ThreadGroup& group_;
  std::uint32_t rank_;
  std::vector<float> sum_;
};

ThreadGroup::ThreadGroup(std::uint32_t ranks, std::chrono::milliseconds deadline)
    : deadline_(deadline), arrivals_(ranks), operations_(ranks, ""), shared_(ranks), sizes_(ranks) {
  PENSTOCK_CHECK(ranks > 0, "a group of no ranks");
  for (std::uint32_t rank = 0; rank < ranks; ++rank) members_.push_back(std::make_unique<Member>(*this, rank));
}

ThreadGroup::~ThreadGroup() = default;

Collective& ThreadGroup::rank(std::uint32_t index) {
  PENSTOCK_CHECK(index < members_.size(), "rank", index, "of", members_.size());
  return *members_[index];
}

void ThreadGroup::fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(error);
  met_.notify_all();
}

Result<void> ThreadGroup::meet(std::uint32_t rank, const char* operation) {
  std::unique_lock lock(mutex_);
  if (failure_) return *failure_;
  const std::uint64_t meeting = meetings_;
  arrivals_[rank] = meeting + 1;
  operations_[rank] = operation;
  if (++present_ == ranks()) {
    for (std::uint32_t other = 0; other < ranks(); ++other) {
      if (std::strcmp(operations_[other], operation) == 0) continue;
      failure_ =
          make_error(ErrorCode::internal, "rank " + std::to_string(rank) + " is in " + operation + " while rank " +
                                              std::to_string(other) + " is in " + operations_[other]);
      met_.notify_all();
      return *failure_;
    }
    present_ = 0;
    ++meetings_;
    met_.notify_all();
    return {};
  }
  const bool done = met_.wait_for(lock, deadline_, [&] { return meetings_ != meeting || failure_.has_value(); });
  if (meetings_ != meeting) return {};
  if (!done) {
    failure_ = make_error(ErrorCode::deadline_exceeded, absent_ranks() + " did not come to " + operation + " within " +
                                                            std::to_string(deadline_.count()) + " ms");
    met_.notify_all();
  }
  return *failure_;
}

std::string ThreadGroup::state() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    if (rank > 0) text += ", ";
    text += "rank " + std::to_string(rank) + ": ";
    text += arrivals_[rank] == 0 ? "nothing yet" : operations_[rank] + (" " + std::to_string(arrivals_[rank]));
    if (arrivals_[rank] > meetings_) text += " (waits)";
  }
  return text;
}

std::string ThreadGroup::absent_ranks() const {
  std::string text;
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    if (arrivals_[rank] != meetings_ + 1) text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  return text;
}

}  // namespace penstock::worker
