#include "common/kube/core/lease_machine.hpp"

#include <algorithm>
#include <utility>

#include "common/kube/model/known_types.hpp"
#include "common/kube/model/object_meta.hpp"

namespace penstock::kube {
namespace {

constexpr unsigned release_tries_max = 4;
constexpr Duration overtaken_pause = std::chrono::milliseconds(50);

std::string text_of(const json::Object& object, std::initializer_list<std::string_view> path) {
  return std::string(text_at(object, path).value_or(std::string_view()));
}

}  // namespace

LeaseMachine::LeaseMachine(LeaseOptions options, std::uint64_t seed) : options_(std::move(options)), random_(seed) {}

bool LeaseMachine::leading(TimePoint now) const {
  const auto until = leading_until();
  return until && now < *until;
}

std::optional<TimePoint> LeaseMachine::leading_until() const {
  if (releasing_ || !renewed_) return std::nullopt;
  return *renewed_ + options_.renew_deadline;
}

void LeaseMachine::release() {
  releasing_ = true;
}

LeaseMachine::Record LeaseMachine::parse(const json::Value& lease) {
  Record record;
  record.exists = true;
  const json::Object* object = lease.if_object();
  if (object == nullptr) return record;
  record.version = text_of(*object, {"metadata", "resourceVersion"});
  record.holder = text_of(*object, {"spec", "holderIdentity"});
  record.acquired = text_of(*object, {"spec", "acquireTime"});
  record.renewed = text_of(*object, {"spec", "renewTime"});
  record.duration_s = integer_at(*object, {"spec", "leaseDurationSeconds"}).value_or(0);
  record.transitions = integer_at(*object, {"spec", "leaseTransitions"}).value_or(0);
  return record;
}

/// A holder lives as long as its record moves; a record that we have only just seen gets its full time.
void LeaseMachine::observe(Record record, TimePoint now) {
  if (record != record_) observed_ = now;
  record_ = std::move(record);
}

bool LeaseMachine::is_free() const {
  return !record_.exists || record_.holder.empty() || record_.holder == options_.identity;
}

/// When the holder's time is over, if its record moves no more: the longer of what it promised and what we use, so that
/// a mix of versions is safe.
TimePoint LeaseMachine::free_at() const {
  const Duration promised = std::chrono::seconds(std::min<std::int64_t>(record_.duration_s, 3600));
  return observed_ + std::max(promised, options_.duration);
}

void LeaseMachine::pause(Duration about, TimePoint now) {
  const double jitter = 1.0 + 0.2 * random_.uniform();
  wait_until_ = now + Duration(static_cast<Duration::rep>(static_cast<double>(about.count()) * jitter));
}

LeaseStep LeaseMachine::next(TimePoint now, Timestamp wall) {
  if (releasing_) {
    if (!renewed_ || release_tries_ == release_tries_max) return LeaseDone{};
    ++release_tries_;
    return write(known_ ? LeaseRequest::Call::update : LeaseRequest::Call::get, wall, now);
  }
  if (renewed_ && !leading(now)) renewed_.reset();
  if (now < wait_until_) return LeaseWait{wait_until_};
  if (!known_) return write(LeaseRequest::Call::get, wall, now);
  if (!record_.exists) return write(LeaseRequest::Call::create, wall, now);
  if (is_free() || now >= free_at()) return write(LeaseRequest::Call::update, wall, now);
  known_ = false;  // look again after the pause, and right when the holder's time is over
  pause(options_.standby_poll, now);
  wait_until_ = std::min(wait_until_, free_at());
  return LeaseWait{wait_until_};
}

LeaseRequest LeaseMachine::write(LeaseRequest::Call call, Timestamp wall, TimePoint now) {
  call_ = call;
  call_started_ = now;
  LeaseRequest request;
  request.call = call;
  request.timeout = options_.call_timeout;
  if (call == LeaseRequest::Call::get) return request;
  const bool ours = record_.exists && record_.holder == options_.identity;
  json::Object spec;
  spec["holderIdentity"] = releasing_ ? "" : options_.identity;
  spec["leaseDurationSeconds"] =
      releasing_ ? 1 : std::chrono::duration_cast<std::chrono::seconds>(options_.duration).count();
  spec["acquireTime"] = ours && !record_.acquired.empty() ? record_.acquired : format_micro_time(wall);
  spec["renewTime"] = format_micro_time(wall);
  spec["leaseTransitions"] = record_.transitions + (ours || !record_.exists ? 0 : 1);
  request.body = make_object(leases, options_.key);
  if (call == LeaseRequest::Call::update) {
    request.body["metadata"].get_object()["resourceVersion"] = record_.version;
  }
  request.body["spec"] = std::move(spec);
  return request;
}

void LeaseMachine::on_answer(const ApiResult<json::Value>& answer, TimePoint now) {
  if (answer) {
    observe(parse(*answer), now);
    known_ = true;
    if (releasing_) {
      // Handed over, or somebody else has it already.
      if (record_.holder != options_.identity) renewed_.reset();
      return;
    }
    if (record_.holder != options_.identity) {
      renewed_.reset();
      return;
    }
    if (call_ == LeaseRequest::Call::get) return;
    renewed_ = call_started_;
    pause(options_.retry, call_started_);
    return;
  }
  const Failure failure = answer.error().failure();
  known_ = false;
  if (failure == Failure::not_found) {
    observe(Record(), now);
    known_ = true;
    if (releasing_) renewed_.reset();
    return;
  }
  // Somebody was faster, or an earlier write of ours came through after all: look soon.
  const bool overtaken = failure == Failure::conflict || failure == Failure::already_exists;
  pause(overtaken ? overtaken_pause : options_.standby_poll, now);
}

}  // namespace penstock::kube
