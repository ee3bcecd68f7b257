// Answers in the shapes of Anthropic's Messages API. A message is a list of blocks (thinking, text, tool_use), which in
// a stream come one after the other, each between its start and its stop; the official clients insist on the order. One
// object a call; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/core/api/answer_encoder.hpp"

namespace penstock::router {

class AnthropicEncoder final : public AnswerEncoder {
 public:
  AnthropicEncoder(const RequestFields& fields, std::string_view id);

  void append_chunk(std::uint32_t index, const ChoiceDelta& delta, const ClientUsage& usage, std::string& out) override;
  bool needs_usage() const override { return !has_begun_; }
  void append_end(const ClientUsage& usage, std::string& out) override;
  void append_error(const ApiError& error, std::string& out) const override;
  std::string whole(const std::vector<ChoiceDelta>& choices, const ClientUsage& usage,
                    const std::vector<PromptScores>& scores) const override;

 private:
  void begin_message(const ClientUsage& usage, std::string& out);
  void append_event(const OutputEvent& event, std::string& out);
  void begin_block(const OutputEvent& event, std::string& out);
  void end_block(std::string& out);
  void append_head(const ClientUsage& usage, std::string_view content, std::string_view stop, std::string& out) const;
  std::string stop_members(const ChoiceDelta& delta, bool has_call) const;

  const RequestFields& fields_;
  std::string id_;
  bool has_begun_ = false;
  std::optional<OutputEvent::Kind> block_;  // that is open
  std::uint64_t blocks_ = 0;                // that were begun
  std::string stop_;                        // members of the last message_delta, once the choice has finished
};

/// {"type":"error","error":{"type":...,"message":...}}
std::string to_anthropic_json(const ApiError& error);

}  // namespace penstock::router
