#include "common/text/stop_matcher.hpp"

#include <vector>

namespace penstock::text {

StopMatcher::StopMatcher(const std::vector<std::string>& stops, IncludeStop include) : include_(include) {
  nodes_.emplace_back();
  for (std::size_t i = 0; i < stops.size(); ++i) {
    lengths_.push_back(stops[i].size());
    if (stops[i].empty()) continue;
    std::uint32_t node = 0;
    for (const char c : stops[i]) {
      const auto byte = static_cast<unsigned char>(c);
      const std::uint32_t known = child(node, byte);
      node = known != 0 ? known : add_child(node, byte);
    }
    if (nodes_[node].stop == 0) nodes_[node].stop = static_cast<std::uint32_t>(i) + 1;
  }
  link_failures();
}

std::uint32_t StopMatcher::child(std::uint32_t node, unsigned char byte) const {
  std::uint32_t next = nodes_[node].first_child;
  while (next != 0 && nodes_[next].byte != byte) next = nodes_[next].sibling;
  return next;
}

std::uint32_t StopMatcher::add_child(std::uint32_t node, unsigned char byte) {
  const auto added = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({.sibling = nodes_[node].first_child, .depth = nodes_[node].depth + 1, .byte = byte});
  nodes_[node].first_child = added;
  return added;
}

// Breadth first, so that a node's failure link, which is always less deep, is known before its children need it.
void StopMatcher::link_failures() {
  std::vector<std::uint32_t> queue{0};
  for (std::size_t at = 0; at < queue.size(); ++at) {
    const std::uint32_t node = queue[at];
    for (std::uint32_t next = nodes_[node].first_child; next != 0; next = nodes_[next].sibling) {
      nodes_[next].fail = node == 0 ? 0 : step(nodes_[node].fail, nodes_[next].byte);
      if (nodes_[next].stop == 0) nodes_[next].stop = nodes_[nodes_[next].fail].stop;
      queue.push_back(next);
    }
  }
}

std::uint32_t StopMatcher::step(std::uint32_t node, unsigned char byte) const {
  for (;;) {
    if (const std::uint32_t next = child(node, byte); next != 0) return next;
    if (node == 0) return 0;
    node = nodes_[node].fail;
  }
}

bool StopMatcher::push(std::string_view delta, std::string& out) {
  if (stopped_) return true;
  ++tokens_;
  if (nodes_.size() == 1) {
    out += delta;
    return false;
  }
  for (std::size_t i = 0; i < delta.size(); ++i) {
    state_ = step(state_, static_cast<unsigned char>(delta[i]));
    if (nodes_[state_].stop == 0) continue;
    stopped_ = true;
    stop_index_ = nodes_[state_].stop - 1;
    held_ += delta.substr(0, i + 1);
    if (include_ == IncludeStop::no) held_.resize(held_.size() - lengths_[stop_index_]);
    flush(out);
    return true;
  }
  held_ += delta;
  const std::size_t keep = nodes_[state_].depth;
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopMatcher::flush(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace penstock::text
