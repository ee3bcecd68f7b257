#include "operator/agent/fetch_thread.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "common/async/task_group.hpp"

namespace penstock::ctl {

namespace asio = boost::asio;

struct FetchThread::Impl : std::enable_shared_from_this<FetchThread::Impl> {
  Impl(asio::any_io_executor executor, const Disk& folder, FetchOptions settings, Done callback)
      : home(std::move(executor)),
        disk(folder),
        options(std::move(settings)),
        done(std::move(callback)),
        work(asio::make_work_guard(io)),
        tasks(io.get_executor(), [this](std::string_view, std::string_view what) {
          tell(make_error(ErrorCode::internal, std::string(what)));
        }) {}

  asio::awaitable<void> run(AgentTask task) {
    if (task.kind == AgentTask::Kind::remove) {
      auto removed = disk.remove(task.cache);
      if (!removed) co_return tell(removed.error());
      co_return tell(HeldCopy());
    }
    tell(co_await fetch(std::move(task), disk, options, progress));
  }

  void tell(Result<HeldCopy> result) {
    asio::post(home, [self = shared_from_this(), result = std::move(result)] {
      if (self->done) self->done(result);
    });
  }

  asio::any_io_executor home;
  const Disk& disk;
  FetchOptions options;
  Done done;  // touched at home only
  FetchProgress progress;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work;
  async::TaskGroup tasks;  // on the thread
  std::thread thread;
};

FetchThread::FetchThread(asio::any_io_executor home, const Disk& disk, FetchOptions options, Done done)
    : impl_(std::make_shared<Impl>(std::move(home), disk, std::move(options), std::move(done))) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->io.run(); });
}

FetchThread::~FetchThread() {
  impl_->done = nullptr;
  cancel();
  asio::post(impl_->io, [impl = impl_.get()] { impl->tasks.cancel(); });
  impl_->work.reset();
  impl_->thread.join();
}

void FetchThread::start(AgentTask task) {
  impl_->progress.is_cancelled = false;
  impl_->progress.bytes_done = impl_->progress.bytes = 0;
  asio::post(impl_->io, [impl = impl_.get(), task = std::move(task)]() mutable {
    impl->tasks.spawn("task", impl->run(std::move(task)));
  });
}

void FetchThread::cancel() {
  impl_->progress.is_cancelled = true;
}

const FetchProgress& FetchThread::progress() const {
  return impl_->progress;
}

}  // namespace penstock::ctl
