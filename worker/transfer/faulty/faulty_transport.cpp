#include "worker/transfer/faulty/faulty_transport.hpp"

#include <algorithm>

namespace penstock::worker::transfer {

/// Turns some reads that ran into failures.
class FaultyTransport::Filter final : public KvTransportEvents {
 public:
  Filter(FaultyTransport& self, KvTransportEvents& events) : self_(self), events_(events) {}
  void on_message(base::BytesView message) override { events_.on_message(message); }
  void on_read_done(EndpointId endpoint, ReadId read, Result<void> result) override {
    if (result && self_.chance(self_.options_.read_fail)) result = make_error(ErrorCode::unavailable, "injected");
    events_.on_read_done(endpoint, read, result);
  }
  void on_endpoint_error(EndpointId endpoint, const Error& error) override {
    events_.on_endpoint_error(endpoint, error);
  }

 private:
  FaultyTransport& self_;
  KvTransportEvents& events_;
};

FaultyTransport::FaultyTransport(std::unique_ptr<KvTransport> inner, FaultOptions options)
    : inner_(std::move(inner)), options_(options), random_(options.seed) {}

Result<void> FaultyTransport::register_pool(const PoolMemory& pool) {
  return inner_->register_pool(pool);
}

Result<void> FaultyTransport::connect(EndpointId endpoint, base::BytesView peer_address) {
  return inner_->connect(endpoint, peer_address);
}

Result<void> FaultyTransport::send(EndpointId endpoint, base::BytesView message) {
  if (chance(options_.drop)) return {};
  base::Bytes bytes(message.begin(), message.end());
  if (chance(options_.cut)) {
    if (random_.below(2) == 0) {
      bytes.resize(random_.below(bytes.size()));
    } else {
      bytes[random_.below(bytes.size())] ^= static_cast<std::byte>(1u << random_.below(8));
    }
  }
  if (chance(options_.repeat)) messages_.push_back({later(), endpoint, bytes});
  if (hung_ || chance(options_.delay)) {
    messages_.push_back({later(), endpoint, std::move(bytes)});
    return {};
  }
  return inner_->send(endpoint, bytes);
}

Result<void> FaultyTransport::post_read(EndpointId endpoint, ReadId read, std::span<const ReadRun> runs) {
  if (!hung_ && !chance(options_.read_late)) return inner_->post_read(endpoint, read, runs);
  reads_.push_back({later(), endpoint, read, {runs.begin(), runs.end()}});
  return {};
}

void FaultyTransport::force_close(EndpointId endpoint) {
  std::erase_if(messages_, [&](const LateMessage& message) { return message.endpoint == endpoint; });
  for (const LateRead& read : reads_) {
    if (read.endpoint == endpoint) refused_.emplace_back(read.endpoint, read.read);
  }
  std::erase_if(reads_, [&](const LateRead& read) { return read.endpoint == endpoint; });
  inner_->force_close(endpoint);
}

std::size_t FaultyTransport::progress(KvTransportEvents& events) {
  std::size_t work = 0;
  for (const auto& [endpoint, read] : std::exchange(refused_, {})) {
    events.on_read_done(endpoint, read, make_error(ErrorCode::aborted, "the endpoint was closed"));
    ++work;
  }
  if (hung_) return work;
  ++polls_;
  std::vector<LateMessage> messages;
  std::vector<LateRead> reads;
  const auto due = [&](auto& waiting, auto& out) {
    auto late = std::stable_partition(waiting.begin(), waiting.end(), [&](const auto& e) { return e.due > polls_; });
    std::move(late, waiting.end(), std::back_inserter(out));
    waiting.erase(late, waiting.end());
  };
  due(messages_, messages);
  due(reads_, reads);
  for (const auto& message : messages) {
    if (!inner_->send(message.endpoint, message.bytes)) continue;
    ++work;
  }
  for (const auto& read : reads) {
    ++work;
    if (inner_->post_read(read.endpoint, read.read, read.runs)) continue;
    events.on_read_done(read.endpoint, read.read, make_error(ErrorCode::unavailable, "the endpoint is closed"));
  }
  Filter filter(*this, events);
  return work + inner_->progress(filter);
}

}  // namespace penstock::worker::transfer
