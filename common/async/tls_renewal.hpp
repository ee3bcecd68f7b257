// Certificates are renewed while programs run: looks at the files of TLS contexts now and then, and has them read again
// when they have changed. Owner: app/, before whatever uses the contexts. Has a thread of its own, so that no I/O
// thread reads files; destroyed, it ends and joins it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/async/tls.hpp"
#include "common/time/clock.hpp"

namespace penstock::async {

/// Reads the files again if they are others than those last read. True: connections made from now on use them. An error
/// leaves all as it was, and the next call tries again. Blocking, so not on an I/O thread; one call at a time for a
/// context.
Result<bool> renew(const TlsContextPtr& tls);

class TlsRenewal {
 public:
  struct Watched {
    std::string name;  // for whoever is told
    TlsContextPtr tls;
  };
  /// Called on the renewal's thread: success when a context uses new files, an error when they are not usable, once for
  /// each message. The old ones stay in use then, and the files are looked at again.
  using Told = std::function<void(const Watched& watched, const Result<void>& outcome)>;

  /// Contexts that are null (plain) are left out; without any there is no thread.
  TlsRenewal(std::vector<Watched> watched, Duration interval, Told told);
  ~TlsRenewal();
  TlsRenewal(const TlsRenewal&) = delete;
  TlsRenewal& operator=(const TlsRenewal&) = delete;

 private:
  void run();
  void look(const Watched& watched, std::string& last_problem) const;

  std::vector<Watched> watched_;
  const Duration interval_;
  const Told told_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace penstock::async
