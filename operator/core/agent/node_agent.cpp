#include "operator/core/agent/node_agent.hpp"

#include <algorithm>

#include "operator/core/cache.hpp"

namespace penstock::ctl {
namespace {

bool contains(const std::vector<std::string>& sorted, const std::string& one) {
  return std::binary_search(sorted.begin(), sorted.end(), one);
}

/// Bytes aside, is it the same?
json::Object without_bytes(api::NodeModelCacheStatus status) {
  status.available_bytes = 0;
  for (auto& entry : status.entries) entry.bytes_done = 0;
  return api::to_json(status);
}

std::string problem_of(const api::ModelCache& cache, const AgentOptions& options) {
  const auto& storage = cache.spec.storage.host_path;
  const std::string path = storage ? storage->path : api::HostPathStorage().path;
  if (path != options.host_path) {
    return "spec.storage.hostPath.path is " + path + "; this node's agent keeps copies in " + options.host_path +
           ". Make them equal.";
  }
  const auto& secret = cache.spec.credentials_secret_ref;
  if (secret && secret->name != options.token_secret) {
    return "spec.credentialsSecretRef names " + secret->name +
           ", and the agent has no right to Secrets. Give that one " +
           "to the chart as modelCacheAgent.hubTokenSecret.";
  }
  return {};
}

}  // namespace

void NodeAgent::on_found(std::vector<HeldCopy> copies, std::map<std::string, std::int64_t> begun) {
  for (auto& copy : copies) {
    const std::string id = copy.cache;
    held_[id] = std::move(copy);
  }
  begun_ = std::move(begun);
}

void NodeAgent::on_wish(const api::NodeModelCache* node, const std::vector<const api::ModelCache*>& caches,
                        kube::Timestamp now) {
  for (const auto& id : wish_) {
    if (const auto at = held_.find(id); at != held_.end()) at->second.last_used = now;
  }
  has_wish_ = node != nullptr;
  generation_ = node == nullptr ? 0 : node->meta.generation;
  wish_ = node == nullptr ? std::vector<std::string>() : node->spec.caches;
  std::sort(wish_.begin(), wish_.end());
  known_.clear();
  pinned_.clear();
  for (const auto* cache : caches) {
    if (cache->spec.storage.pvc || cache->spec.storage.image_volume) continue;
    const std::string id = cache_id(cache->meta);
    known_[id] = {cache->spec.uri, cache->spec.revision, cache->spec.digest, cache->spec.size.units(),
                  problem_of(*cache, options_)};
    if (!cache->spec.evictable) pinned_.push_back(id);
  }
  std::sort(pinned_.begin(), pinned_.end());
  std::erase_if(troubles_, [&](const auto& one) { return !contains(wish_, one.first); });
}

void NodeAgent::on_disk(std::int64_t capacity_bytes, std::int64_t available_bytes) {
  capacity_ = capacity_bytes;
  available_ = available_bytes;
}

/// A copy counts if it is what the cache says now: one of that name may have been made anew with another URI. A cache
/// that is gone but wished for is held for the pods that use it.
bool NodeAgent::holds(const std::string& cache) const {
  const auto copy = held_.find(cache);
  if (copy == held_.end()) return false;
  const auto wanted = known_.find(cache);
  if (wanted == known_.end()) return true;
  const bool right = wanted->second.digest.empty() || wanted->second.digest == copy->second.digest;
  return right && wanted->second.uri == copy->second.uri && wanted->second.revision == copy->second.revision;
}

std::int64_t NodeAgent::room() const {
  std::int64_t room = available_ - options_.reserve_bytes;
  if (options_.budget_bytes <= 0) return room;
  std::int64_t used = 0;
  for (const auto& [id, copy] : held_) used += copy.bytes;
  return std::min(room, options_.budget_bytes - used);
}

/// The copy that goes for `missing` bytes: what nobody wishes for, the longest unused first. Nothing if even all of
/// them would not make the room: then none goes for nothing.
std::optional<std::string> NodeAgent::to_remove(std::int64_t missing) const {
  std::vector<const HeldCopy*> spare;
  std::int64_t sum = room();
  for (const auto& [id, copy] : held_) {
    if (contains(wish_, id) || contains(pinned_, id)) continue;
    spare.push_back(&copy);
    sum += copy.bytes;
  }
  if (spare.empty() || sum < missing) return std::nullopt;
  const auto first = std::min_element(spare.begin(), spare.end(), [](const HeldCopy* a, const HeldCopy* b) {
    return std::pair(a->last_used, a->cache) < std::pair(b->last_used, b->cache);
  });
  return (*first)->cache;
}

AgentTask NodeAgent::start(AgentTask task) {
  task_ = task;
  task_done_ = task_bytes_ = 0;
  return task;
}

std::int64_t NodeAgent::missing(const std::string& cache, std::int64_t size) const {
  const auto begun = begun_.find(cache);
  return begun == begun_.end() ? size : std::max<std::int64_t>(0, size - begun->second);
}

std::optional<AgentTask> NodeAgent::next(kube::Timestamp now) {
  if (task_ || !has_wish_) return std::nullopt;
  no_room_.clear();
  for (const auto& [id, bytes] : begun_) {
    if (!contains(wish_, id) && !held_.contains(id)) return start({AgentTask::Kind::remove, id, {}, {}, {}, 0});
  }
  for (const auto& [id, copy] : held_) {
    // Its cache is deleted and no pod uses it. Other spare copies stay until their room is needed.
    if (!contains(wish_, id) && !known_.contains(id)) return start({AgentTask::Kind::remove, id, {}, {}, {}, 0});
  }
  for (const auto& id : wish_) {
    const auto wanted = known_.find(id);
    if (wanted == known_.end() || holds(id) || !wanted->second.problem.empty()) continue;
    if (const auto trouble = troubles_.find(id); trouble != troubles_.end() && now < trouble->second.retry_at) continue;
    AgentTask task;
    task.cache = id;
    if (held_.contains(id)) {
      task.kind = AgentTask::Kind::remove;  // of another URI
    } else if (const std::int64_t needed = missing(id, wanted->second.size); room() < needed) {
      const auto victim = to_remove(needed);
      if (!victim) {
        no_room_.push_back(id);
        continue;
      }
      task.kind = AgentTask::Kind::remove;
      task.cache = *victim;
    } else {
      task.uri = wanted->second.uri;
      task.revision = wanted->second.revision;
      task.digest = wanted->second.digest;
      task.bytes_max = wanted->second.size;
    }
    return start(std::move(task));
  }
  return std::nullopt;
}

bool NodeAgent::is_superseded() const {
  if (!task_ || task_->kind != AgentTask::Kind::fetch) return false;
  const auto wanted = known_.find(task_->cache);
  return !contains(wish_, task_->cache) || wanted == known_.end() || wanted->second.uri != task_->uri ||
         wanted->second.revision != task_->revision;
}

void NodeAgent::on_progress(std::int64_t bytes_done, std::int64_t bytes) {
  task_done_ = bytes_done;
  task_bytes_ = bytes;
}

void NodeAgent::on_fetched(const std::string& digest, std::int64_t bytes, kube::Timestamp now) {
  if (!task_) return;
  begun_.erase(task_->cache);
  held_[task_->cache] = {task_->cache, task_->uri, task_->revision, digest, bytes, now};
  troubles_.erase(task_->cache);
  task_.reset();
}

void NodeAgent::on_failed(const Error& error, kube::Timestamp now) {
  if (!task_) return;
  const std::string id = task_->cache;
  const bool fetch = task_->kind == AgentTask::Kind::fetch;
  task_.reset();
  if (fetch && task_done_ > 0) begun_[id] = task_done_;
  if (error.code == ErrorCode::aborted) return;  // nobody wants it, or we are stopping
  Trouble& trouble = troubles_[id];
  std::int64_t delay = options_.retry_first_s;
  for (std::uint32_t i = 0; i < trouble.count && delay < options_.retry_last_s; ++i) delay *= 2;
  delay = std::min(delay, options_.retry_last_s);
  // What the source refuses for a reason won't be different in ten seconds.
  if (error.code != ErrorCode::unavailable && error.code != ErrorCode::deadline_exceeded && fetch) {
    delay = options_.retry_last_s;
  }
  if (error.code == ErrorCode::data_loss) delay = std::max(options_.retry_first_s, delay / 10);
  delay += static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(delay / 4 + 1)));  // nodes fail together
  ++trouble.count;
  trouble.message = error.message + "; tried again in " + std::to_string(delay) + " s";
  trouble.retry_at = kube::Timestamp::from_seconds(now.unix_s() + delay);
}

void NodeAgent::on_removed(kube::Timestamp) {
  if (!task_) return;
  held_.erase(task_->cache);
  begun_.erase(task_->cache);
  task_.reset();
}

api::NodeCacheEntry NodeAgent::entry_of(const std::string& cache) const {
  api::NodeCacheEntry entry;
  entry.cache = cache;
  const auto wanted = known_.find(cache);
  const auto copy = held_.find(cache);
  const auto trouble = troubles_.find(cache);
  if (task_ && task_->cache == cache) {
    const bool fetch = task_->kind == AgentTask::Kind::fetch;
    entry.state = fetch ? api::CacheState::downloading : api::CacheState::evicting;
    entry.bytes = fetch ? task_bytes_ : copy == held_.end() ? 0 : copy->second.bytes;
    entry.bytes_done = fetch ? task_done_ : entry.bytes;
    return entry;
  }
  if (copy != held_.end() && holds(cache)) {
    entry.state = api::CacheState::ready;
    entry.digest = copy->second.digest;
    entry.path = cache_folder(options_.host_path, cache);
    entry.bytes = entry.bytes_done = copy->second.bytes;
  } else if (wanted != known_.end() && !wanted->second.problem.empty()) {
    entry.state = api::CacheState::failed;
    entry.message = wanted->second.problem;
  } else if (trouble != troubles_.end()) {
    entry.state = api::CacheState::failed;
    entry.message = trouble->second.message;
  } else if (std::find(no_room_.begin(), no_room_.end(), cache) != no_room_.end()) {
    entry.state = api::CacheState::failed;
    entry.message = "no room for " + std::to_string(wanted == known_.end() ? 0 : wanted->second.size) +
                    " bytes beside " + "what is wished for on this node. Wish for less, or raise the agent's budget.";
  } else if (wanted == known_.end()) {
    entry.message = "there is no ModelCache of this name any more";
  }
  entry.message = entry.message.substr(0, 1000);
  return entry;
}

api::NodeModelCacheStatus NodeAgent::status(kube::Timestamp now) const {
  api::NodeModelCacheStatus out;
  if (written_) out.conditions = written_->conditions;
  out.observed_generation = generation_;
  out.capacity_bytes = capacity_;
  out.available_bytes = available_;
  std::vector<std::string> ids = wish_;
  for (const auto& [id, copy] : held_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::size_t ready = 0;
  std::string trouble;
  for (const auto& id : ids) {
    if (out.entries.size() == 64) break;
    auto entry = entry_of(id);
    if (contains(wish_, id)) {
      ready += entry.state == api::CacheState::ready;
      if (trouble.empty() && entry.state == api::CacheState::failed) trouble = id + ": " + entry.message;
    }
    const auto before = states_.find(id);
    const auto since = changed_.find(id);
    const bool same = before != states_.end() && before->second == entry.state && since != changed_.end();
    entry.last_transition_time = same ? since->second : now;
    out.entries.push_back(std::move(entry));
  }
  kube::Condition condition;
  condition.type = "Ready";
  const bool all = ready == wish_.size();
  condition.status = all ? kube::ConditionStatus::yes : kube::ConditionStatus::no;
  condition.reason = all ? "Held" : trouble.empty() ? "Fetching" : "FetchFailed";
  condition.message = std::to_string(ready) + " of " + std::to_string(wish_.size()) + " caches are on the node" +
                      (trouble.empty() ? "" : "; " + trouble);
  condition.observed_generation = generation_;
  kube::set_condition(out.conditions, std::move(condition), now);
  return out;
}

std::optional<api::NodeModelCacheStatus> NodeAgent::status_to_write(kube::Timestamp now) {
  if (!has_wish_) return std::nullopt;
  auto next = status(now);
  for (const auto& entry : next.entries) {
    states_[entry.cache] = entry.state;
    changed_[entry.cache] = *entry.last_transition_time;
  }
  if (!written_) return next;
  if (without_bytes(*written_) != without_bytes(next)) return next;
  // Other programs fill and free the disk all the time: bytes are told while something is fetched.
  const bool fetches = task_ && task_->kind == AgentTask::Kind::fetch;
  if (fetches && now.unix_s() - written_at_.unix_s() >= options_.progress_s) return next;
  return std::nullopt;
}

void NodeAgent::on_written(const api::NodeModelCacheStatus& status, kube::Timestamp now) {
  written_ = status;
  written_at_ = now;
}

std::size_t NodeAgent::failed() const {
  return troubles_.size() + no_room_.size();
}

std::size_t NodeAgent::failures(const std::string& cache) const {
  const auto at = troubles_.find(cache);
  return at == troubles_.end() ? 0 : at->second.count;
}

}  // namespace penstock::ctl
