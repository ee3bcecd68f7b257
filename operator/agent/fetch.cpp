#include "operator/agent/fetch.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "common/async/deadline.hpp"
#include "common/http/client.hpp"
#include "operator/core/agent/transfer.hpp"

namespace penstock::ctl {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;

constexpr unsigned redirects_max = 5;
constexpr std::size_t list_bytes_max = 4 << 20;
constexpr std::uint64_t room_check_bytes = 64 << 20;
constexpr Duration retry_pause = std::chrono::seconds(1);
constexpr std::size_t copy_bytes = 1 << 20;

bool same_host(const WebAddress& a, const WebAddress& b) {
  return a.host == b.host && a.port == b.port && a.encrypted == b.encrypted;
}

Error cancelled() {
  return make_error(ErrorCode::aborted, "nobody wants it any more");
}

class Fetch {
 public:
  Fetch(AgentTask task, const Disk& disk, const FetchOptions& options, FetchProgress& progress)
      : task_(std::move(task)), disk_(disk), options_(options), progress_(progress) {}

  asio::awaitable<Result<HeldCopy>> run() {
    auto source = parse_source(task_.uri, task_.revision);
    if (!source) co_return source.error();
    source_ = std::move(*source);
    auto listed = co_await list();
    if (!listed) co_return listed.error();
    files_ = std::move(*listed);
    if (auto fits = check_size(); !fits) co_return fits.error();
    std::vector<std::string> names;
    for (const auto& file : files_) names.push_back(file.name);
    disk_.keep_only(task_.cache, names);
    for (auto& file : files_) {
      Result<void> done;
      if (source_.kind == SourceKind::folder) {
        done = co_await copy_file(file);
      } else {
        done = co_await fetch_file(file);
      }
      if (!done) co_return done.error();
    }
    co_return publish();
  }

 private:
  Result<void> check_size() {
    const auto sum = bytes_of(files_);
    progress_.bytes = static_cast<std::int64_t>(sum.value_or(static_cast<std::uint64_t>(task_.bytes_max)));
    if (!sum || *sum <= static_cast<std::uint64_t>(task_.bytes_max)) return {};
    return make_error(ErrorCode::resource_exhausted, "the files have " + std::to_string(*sum) +
                                                         " bytes, spec.size allows " + std::to_string(task_.bytes_max) +
                                                         ". Raise it.");
  }

  Result<HeldCopy> publish() {
    HeldCopy copy{task_.cache, task_.uri, task_.revision, digest_of(files_), std::int64_t(base_), {}};
    if (!task_.digest.empty() && task_.digest != copy.digest) {
      (void)disk_.remove(task_.cache);
      return make_error(ErrorCode::data_loss,
                        "the files have the digest " + copy.digest + ", spec.digest says " + task_.digest);
    }
    if (auto done = disk_.publish(copy); !done) return done.error();
    return copy;
  }

  // --- What there is ---

  asio::awaitable<Result<std::vector<SourceFile>>> list() {
    switch (source_.kind) {
      case SourceKind::hub:
        co_return co_await list_hub();
      case SourceKind::web_list:
        co_return co_await list_sums();
      case SourceKind::web_file:
        co_return one_file();
      case SourceKind::folder:
        co_return list_folder();
    }
    co_return make_error(ErrorCode::internal, "an unknown kind of source");
  }

  asio::awaitable<Result<std::vector<SourceFile>>> list_hub() {
    auto hub = parse_address(options_.hub);
    if (!hub) co_return hub.error();
    source_.web = std::move(*hub);
    auto said = co_await get_json(hub_revision_target(source_));
    if (!said) co_return said.error();
    const auto commit = parse_hub_revision(*said);
    if (!commit) co_return commit.error();
    auto tree = co_await get_json(hub_tree_target(source_, *commit));
    if (!tree) co_return tree.error();
    co_return parse_hub_tree(*tree, source_, *commit);
  }

  asio::awaitable<Result<std::vector<SourceFile>>> list_sums() {
    auto text = co_await get_text(source_.web.target + "SHA256SUMS");
    if (!text) co_return text.error();
    co_return parse_sums(*text, source_.web);
  }

  Result<std::vector<SourceFile>> one_file() const {
    SourceFile file;
    const std::string path = source_.web.target.substr(0, source_.web.target.find('?'));
    file.name = path.substr(path.rfind('/') + 1);
    file.target = source_.web.target;
    if (!is_safe_name(file.name)) return make_error(ErrorCode::invalid_argument, "the URL ends in no name of a file");
    return std::vector<SourceFile>{file};
  }

  Result<std::vector<SourceFile>> list_folder() const {
    std::error_code code;
    const fs::path path = fs::weakly_canonical(source_.path, code);
    const fs::path root = fs::weakly_canonical(options_.file_root, code);
    const auto inside = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
    if (options_.file_root.empty() || code || inside.first != root.end()) {
      return make_error(ErrorCode::permission_denied,
                        "the agent may not read " + source_.path + ". Give the chart modelCacheAgent.sourcePath.");
    }
    std::vector<SourceFile> files;
    const auto add = [&](const fs::path& at, const std::string& name) {
      if (!is_safe_name(name) || files.size() > files_max) return;
      std::error_code ignored;
      SourceFile file;
      file.name = name;
      file.bytes = fs::file_size(at, ignored);
      file.target = at.string();
      files.push_back(std::move(file));
    };
    if (fs::is_regular_file(path, code)) {
      add(path, path.filename().string());
    } else {
      for (const auto& entry : fs::recursive_directory_iterator(path, code)) {
        // Links may lead out of the root.
        if (entry.symlink_status(code).type() != fs::file_type::regular) continue;
        add(entry.path(), entry.path().lexically_relative(path).generic_string());
      }
    }
    if (files.empty()) return make_error(ErrorCode::not_found, source_.path + " has no files");
    if (files.size() > files_max) return make_error(ErrorCode::invalid_argument, source_.path + " has too many files");
    return files;
  }

  // --- Web ---

  Result<http::Client> connect_to(const WebAddress& address) const {
    http::ClientOptions options;
    options.host = address.host;
    options.port = address.port;
    options.connect_timeout = options_.connect_timeout;
    options.response_bytes_max = list_bytes_max;
    if (address.encrypted) {
      async::TlsFiles trust;
      trust.ca_file = options_.ca_file;
      auto tls = async::make_tls_client(trust);
      if (!tls) return tls.error();
      options.tls = std::move(*tls);
    }
    return http::Client(std::move(options));
  }

  http::ClientRequest request_for(const WebAddress& address, const std::string& range) const {
    http::Headers headers{{"user-agent", options_.user_agent}, {"accept-encoding", "identity"}};
    if (!range.empty()) headers.add("range", range);
    if (source_.kind == SourceKind::hub && !options_.token.empty() && same_host(address, source_.web)) {
      headers.add("authorization", "Bearer " + options_.token);
    }
    return http::ClientRequest("GET", address.target, std::move(headers));
  }

  asio::awaitable<Result<std::string>> get_text(std::string target) {
    WebAddress address = source_.web;
    address.target = std::move(target);
    for (unsigned hop = 0; hop <= redirects_max; ++hop) {
      auto client = connect_to(address);
      if (!client) co_return client.error();
      http::ClientRequest request = request_for(address, {});
      auto answer = co_await client->request(std::move(request), options_.stall);
      if (!answer) co_return answer.error();
      FileTransfer meaning(std::nullopt, list_bytes_max, 0);
      const auto step = meaning.on_head(answer->status, std::nullopt, std::nullopt);
      if (!step) co_return step.error();
      if (*step != TransferStep::redirect) co_return std::move(answer->body);
      auto next = follow(address, answer->headers.find("location").value_or(""));
      if (!next) co_return next.error();
      address = std::move(*next);
    }
    co_return make_error(ErrorCode::invalid_argument, "the source redirects in circles");
  }

  asio::awaitable<Result<json::Value>> get_json(std::string target) {
    auto text = co_await get_text(std::move(target));
    if (!text) co_return text.error();
    co_return json::parse(*text);
  }

  /// What a file's transfer is made of while it lasts.
  struct Open {
    PartialFile file;
    FileDigest digest;
    FileTransfer transfer;
  };

  Result<void> clear(const SourceFile& file, Open& open) {
    PENSTOCK_TRY_VOID(open.file.truncate());
    open.digest = FileDigest();
    if (!file.git_sha1.empty() && file.bytes) open.digest.start_git(*file.bytes);
    show(0);
    return {};
  }
  Result<void> start_over(const SourceFile& file, Open& open) {
    open.transfer = FileTransfer(file.bytes, allowed(), 0);
    return clear(file, open);
  }

  std::uint64_t allowed() const {
    return static_cast<std::uint64_t>(task_.bytes_max) - std::min(base_, static_cast<std::uint64_t>(task_.bytes_max));
  }
  void show(std::uint64_t have) { progress_.bytes_done = static_cast<std::int64_t>(base_ + have); }

  Result<Open> open_file(const SourceFile& file) {
    auto partial = disk_.open(task_.cache, file.name);
    if (!partial) return partial.error();
    const auto size = partial->size();
    if (!size) return size.error();
    // Without a digest to check against, nobody would notice the beginning of one version and the end of another.
    const bool can_check = !file.sha256.empty() || !file.git_sha1.empty();
    Open open{std::move(*partial), FileDigest(), FileTransfer(file.bytes, allowed(), can_check ? *size : 0)};
    if (open.transfer.have() == 0) {
      PENSTOCK_TRY_VOID(start_over(file, open));
    } else {
      if (!file.git_sha1.empty() && file.bytes) open.digest.start_git(*file.bytes);
      PENSTOCK_TRY_VOID(open.file.add_to(open.digest));
      show(open.transfer.have());
    }
    return open;
  }

  asio::awaitable<Result<void>> fetch_file(SourceFile& file) {
    auto opened = open_file(file);
    if (!opened) co_return opened.error();
    Open& open = *opened;
    unsigned fruitless = 0;
    bool started_over = false;
    while (!open.transfer.is_complete()) {
      const std::uint64_t before = open.transfer.have();
      auto done = co_await receive(file, open);
      if (done) break;
      const Error& error = done.error();
      if (error.code == ErrorCode::data_loss && !std::exchange(started_over, true)) {
        if (auto again = start_over(file, open); !again) co_return again;
        continue;
      }
      const bool passing = error.code == ErrorCode::unavailable || error.code == ErrorCode::deadline_exceeded;
      fruitless = open.transfer.have() > before ? 0 : fruitless + 1;
      if (!passing || fruitless >= options_.tries_max) co_return error;
      co_await async::pause(retry_pause);
    }
    co_return finish(file, open);
  }

  /// One answer of the source, to its end.
  asio::awaitable<Result<void>> receive(const SourceFile& file, Open& open) {
    WebAddress address = source_.web;
    address.target = file.target;
    for (unsigned hop = 0; hop <= redirects_max; ++hop) {
      if (progress_.is_cancelled) co_return cancelled();
      auto client = connect_to(address);
      if (!client) co_return client.error();
      http::ClientRequest request = request_for(address, open.transfer.range());
      auto head = co_await client->start(std::move(request), options_.stall);
      if (!head) co_return head.error();
      const auto step = open.transfer.on_head(head->status, head->headers.find("content-range"),
                                              head->headers.find("content-length"));
      if (!step) co_return step.error();
      if (*step == TransferStep::redirect) {
        auto next = follow(address, head->headers.find("location").value_or(""));
        if (!next) co_return next.error();
        address = std::move(*next);
        continue;
      }
      if (*step == TransferStep::restart) {
        if (auto fresh = clear(file, open); !fresh) co_return fresh;
      }
      co_return co_await take_body(*client, open);
    }
    co_return make_error(ErrorCode::invalid_argument, "the source redirects in circles");
  }

  asio::awaitable<Result<void>> take_body(http::Client& client, Open& open) {
    for (std::uint64_t checked = 0;;) {
      if (progress_.is_cancelled) co_return cancelled();
      auto piece = co_await client.read(options_.stall);
      if (!piece) {
        const bool cut = piece.error().code == ErrorCode::data_loss;
        co_return make_error(cut ? ErrorCode::unavailable : piece.error().code, piece.error().message);
      }
      if (piece->empty()) co_return open.transfer.on_end();
      if (auto fits = open.transfer.on_bytes(piece->size()); !fits) co_return fits;
      if (checked == 0 || checked >= room_check_bytes) {
        if (auto room = disk_.check_room(); !room) co_return room;
        checked = 0;
      }
      checked += piece->size();
      if (auto written = open.file.append(*piece); !written) co_return written;
      open.digest.add(*piece);
      show(open.transfer.have());
    }
  }

  /// The file counts only if it is what the source listed.
  Result<void> finish(SourceFile& file, Open& open) {
    const std::string found = open.digest.sha256();
    const bool wrong =
        file.sha256.empty() ? !file.git_sha1.empty() && file.git_sha1 != open.digest.git_sha1() : file.sha256 != found;
    if (wrong) {
      (void)open.file.truncate();
      show(0);
      return make_error(ErrorCode::data_loss,
                        "the digest of " + file.name + " is wrong: what came isn't what is listed");
    }
    PENSTOCK_TRY_VOID(open.file.sync());
    file.sha256 = found;
    base_ += open.transfer.have();
    return {};
  }

  // --- A folder of the node ---

  asio::awaitable<Result<void>> copy_file(SourceFile& file) {
    auto opened = open_file(file);
    if (!opened) co_return opened.error();
    std::ifstream in(file.target, std::ios::binary);
    std::string block(copy_bytes, '\0');
    while (in) {
      if (progress_.is_cancelled) co_return cancelled();
      in.read(block.data(), static_cast<std::streamsize>(block.size()));
      const std::string_view piece(block.data(), static_cast<std::size_t>(in.gcount()));
      if (piece.empty()) break;
      if (auto fits = opened->transfer.on_bytes(piece.size()); !fits) co_return fits;
      if (auto room = disk_.check_room(); !room) co_return room;
      if (auto written = opened->file.append(piece); !written) co_return written;
      opened->digest.add(piece);
      show(opened->transfer.have());
    }
    if (auto whole = opened->transfer.on_end(); !whole) co_return whole;
    co_return finish(file, *opened);
  }

  AgentTask task_;
  const Disk& disk_;
  const FetchOptions& options_;
  FetchProgress& progress_;
  Source source_;
  std::vector<SourceFile> files_;
  std::uint64_t base_ = 0;  // bytes of the files that are done
};

}  // namespace

asio::awaitable<Result<HeldCopy>> fetch(AgentTask task, const Disk& disk, const FetchOptions& options,
                                        FetchProgress& progress) {
  Fetch one(std::move(task), disk, options, progress);
  co_return co_await one.run();
}

}  // namespace penstock::ctl
