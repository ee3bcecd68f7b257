// Signs of life of what gives no token: long prompts, transfers, and those that wait for them.
#include <algorithm>
#include <utility>

#include "worker/core/scheduler/request.hpp"

namespace penstock::worker {

std::vector<protocol::Progress> Scheduler::take_progress() {
  std::vector<protocol::Progress> out;
  const bool has_computed = computed_tokens_ != std::exchange(told_computed_tokens_, computed_tokens_);
  for (const auto& [id, request] : requests_) {
    bool has_moved = false;
    std::size_t computed = 0;
    for (const auto& sequence : request->sequences) {
      const bool has_token = sequence->tokens.size() != std::exchange(sequence->told_tokens, sequence->tokens.size());
      const bool is_further = sequence->computed != std::exchange(sequence->told_computed, sequence->computed);
      computed = std::max(computed, sequence->computed);
      switch (sequence->state) {
        case SequenceState::blocked:
          break;  // its leader speaks for it
        case SequenceState::receiving:
          has_moved |= is_further;
          break;
        case SequenceState::running:
          // A prompt may have to let others go first; a choice that decodes moves at every step or is stuck.
          has_moved |= !has_token && (is_further || (has_computed && sequence->remaining() > 1));
          break;
        case SequenceState::waiting:
          has_moved |= has_computed;
          break;
      }
    }
    if (has_moved) out.push_back({id, request->spec.attempt, static_cast<std::uint32_t>(computed)});
  }
  return out;
}

}  // namespace penstock::worker
