#include "common/async/tls_renewal.hpp"

#include <utility>

namespace penstock::async {

TlsRenewal::TlsRenewal(std::vector<Watched> watched, Duration interval, Told told)
    : watched_(std::move(watched)), interval_(interval), told_(std::move(told)) {
  std::erase_if(watched_, [](const Watched& one) { return one.tls == nullptr; });
  if (!watched_.empty()) thread_ = std::thread([this] { run(); });
}

TlsRenewal::~TlsRenewal() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void TlsRenewal::run() {
  std::vector<std::string> problems(watched_.size());
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, interval_, [this] { return ended_; })) {
    lock.unlock();
    for (std::size_t i = 0; i < watched_.size(); ++i) look(watched_[i], problems[i]);
    lock.lock();
  }
}

void TlsRenewal::look(const Watched& watched, std::string& last_problem) const {
  const auto renewed = renew(watched.tls);
  if (renewed) {
    last_problem.clear();
    if (*renewed) told_(watched, {});
  } else if (std::exchange(last_problem, renewed.error().message) != renewed.error().message) {
    told_(watched, renewed.error());
  }
}

}  // namespace penstock::async
