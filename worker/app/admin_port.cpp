#include "worker/app/admin_port.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <stdexcept>
#include <thread>

#include "common/config/load.hpp"
#include "common/http/admin.hpp"

namespace penstock::worker {

AdminPort::AdminPort(const WorkerConfig& config, const log::Logger& logger)
    : config_(config),
      logger_(logger),
      load_progress_(registry_.gauge("penstock_worker_load_progress_ratio",
                                     "Share of the model's bytes that are loaded, 0 to 1.")) {
  registry_.add_process_metrics();
  http::AdminOptions options;
  options.registry = &registry_;
  options.not_ready_reasons = [this] { return not_ready_reasons(); };
  options.config_yaml = config::to_yaml(config_);
  http::add_admin_routes(routes_, std::move(options));
}

std::uint16_t AdminPort::listen() {
  server_.emplace(io_.get_executor(), http::ServerOptions{}, routes_.handler(), logger_,
                  http::make_server_probe(registry_, "admin"));
  const auto port = server_->listen(config_.admin_address, config_.admin_port);
  if (!port) throw std::runtime_error("admin " + port.error().message);
  logger_.info("admin port open", {{"admin_port", *port}});
  return *port;
}

void AdminPort::serve_while(const std::function<void()>& work) {
  std::exception_ptr failure;
  std::thread worker([&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    boost::asio::post(io_, [this] { io_.stop(); });
  });
  const auto guard = boost::asio::make_work_guard(io_);
  io_.run();
  worker.join();
  io_.restart();
  if (failure) std::rethrow_exception(failure);
}

void AdminPort::set_load_progress(std::uint64_t done, std::uint64_t total) {
  const double share = total == 0 ? 0.0 : static_cast<double>(done) / static_cast<double>(total);
  load_progress_.set(share);
  load_percent_ = static_cast<std::uint32_t>(share * 100);
}

std::vector<std::string> AdminPort::not_ready_reasons() const {
  switch (phase_.load()) {
    case WorkerPhase::loading:
      return {"loading the model: " + std::to_string(load_percent_.load()) + " %"};
    case WorkerPhase::starting:
      return {"starting"};
    case WorkerPhase::ready:
      return {};
    case WorkerPhase::draining:
      return {"draining"};
  }
  return {"unknown"};
}

}  // namespace penstock::worker
