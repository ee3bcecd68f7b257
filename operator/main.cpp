// penstock-operator: custom resources in, gangs of pods out. See operator/README.md. Besides the operator itself this
// program has an agent for nodes, `agent`, and two small errands: `apply-crds` and `check HOST:PORT`.
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "common/async/run_app.hpp"
#include "common/async/task_group.hpp"
#include "common/config/load.hpp"
#include "common/kube/client/find_config.hpp"
#include "operator/agent/agent_app.hpp"
#include "operator/app/apply_crds.hpp"
#include "operator/app/check.hpp"
#include "operator/app/operator_app.hpp"
#include "operator/app/version.hpp"

namespace {

namespace ctl = penstock::ctl;
namespace async = penstock::async;

int complain(const std::string& sentence) {
  std::fprintf(stderr, "penstock-operator: %s\n", sentence.c_str());
  return 1;
}

template <class App, class Config>
int run(const Config& config) {
  boost::asio::io_context io(1);
  penstock::log::Logger logger = penstock::log::make_logger(config.log.options());
  App app(io, config, logger);
  if (auto ended = async::run_app(io, app); !ended) return complain(ended.error().message);
  logger.flush();
  return 0;
}

/// Runs one task to its end.
template <class T>
penstock::Result<T> wait_for(boost::asio::io_context& io, boost::asio::awaitable<penstock::Result<T>> work) {
  std::optional<penstock::Result<T>> result;
  async::TaskGroup tasks(io.get_executor(), [&](std::string_view, std::string_view what) {
    result = penstock::make_error(penstock::ErrorCode::internal, std::string(what));
  });
  tasks.spawn("errand", [](auto task, auto& out) -> boost::asio::awaitable<void> {
    out = co_await std::move(task);
  }(std::move(work), result));
  while (!result && io.run_one() > 0) {
  }
  if (!result) return penstock::make_error(penstock::ErrorCode::internal, "it ended without a result");
  return std::move(*result);
}

int apply_crds(const ctl::ApplyCrdsConfig& config) {
  auto definitions = ctl::read_definitions(config.folder.string());
  if (!definitions) return complain(definitions.error().message);
  auto cluster = penstock::kube::find_cluster_config({config.cluster.kubeconfig.string(), config.cluster.context},
                                                     penstock::config::process_environment());
  if (!cluster) return complain(cluster.error().message);
  boost::asio::io_context io(1);
  penstock::metrics::Registry metrics;
  const auto logger = penstock::log::make_logger(config.log.options());
  penstock::kube::Client client(io.get_executor(), std::move(*cluster), {}, penstock::kube::make_probe(metrics),
                                logger);
  auto applied = wait_for(io, ctl::apply_definitions(client, std::move(*definitions), config.timeout, logger));
  return applied ? 0 : complain(applied.error().message);
}

int check(const std::string& address) {
  boost::asio::io_context io(1);
  auto said = wait_for(io, ctl::check_ready(address, std::chrono::seconds(30)));
  if (!said) return complain(said.error().message);
  std::printf("%s is ready: %s\n", address.c_str(), said->c_str());
  return 0;
}

template <class Config>
int with_config(int (*run_it)(const Config&), const char* name, const char* description, int argc, char** argv) {
  penstock::config::Program program;
  program.name = name;
  program.version = std::string(ctl::version);
  program.description = description;
  auto loaded = penstock::config::load<Config>(program, argc, argv);
  std::fputs(loaded.outcome.output.c_str(), stdout);
  std::fputs(loaded.outcome.error_output.c_str(), stderr);
  if (loaded.outcome.exit_code) return *loaded.outcome.exit_code;
  return run_it(loaded.config);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view errand = argc > 1 ? argv[1] : "";
  try {
    if (errand == "check") return argc == 3 ? check(argv[2]) : complain("check HOST:PORT");
    if (errand == "apply-crds") {
      return with_config(apply_crds, "penstock-operator apply-crds",
                         "Applies the definitions of Penstock's custom resources.", argc - 1, argv + 1);
    }
    if (errand == "agent") {
      return with_config(run<ctl::AgentApp, ctl::AgentConfig>, "penstock-operator agent",
                         "Keeps the model caches of one node.", argc - 1, argv + 1);
    }
    return with_config(run<ctl::OperatorApp, ctl::OperatorConfig>, "penstock-operator",
                       "Turns LLMServices into routers and gangs of worker pods.", argc, argv);
  } catch (const std::exception& error) {
    return complain(error.what());
  }
}
