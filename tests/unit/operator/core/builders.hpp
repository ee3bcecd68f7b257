// Builders of observed objects for the operator's unit tests. Plain values.
#pragma once

#include <string>

#include "operator/api/worker_group.hpp"
#include "operator/core/names.hpp"
#include "operator/core/observed.hpp"

namespace penstock::ctl::testing {

inline constexpr std::int64_t start_s = 1'800'000'000;
inline kube::Timestamp at(std::int64_t s) {
  return kube::Timestamp::from_seconds(start_s + s);
}

inline api::WorkerGroup group(std::int32_t size, const std::string& name = "chat-decode-abcde") {
  api::WorkerGroup out;
  out.meta.namespace_ = "ns";
  out.meta.name = name;
  out.meta.uid = "uid-" + name;
  out.meta.created = at(0);
  out.meta.generation = 1;
  out.spec = {"chat", "decode", "0123456789", "h1:0123456789", size};
  return out;
}

inline Pod pod(const api::WorkerGroup& group, std::uint64_t epoch, std::uint32_t rank) {
  Pod out;
  out.meta.namespace_ = "ns";
  out.meta.name = pod_name(group.meta.name, epoch, rank);
  out.meta.uid = "uid-" + out.meta.name;
  out.meta.created = at(0);
  out.meta.labels.set(label::epoch, std::to_string(epoch));
  out.meta.labels.set(label::rank, std::to_string(rank));
  if (rank == 0) out.meta.labels.set(label::leader, "true");
  return out;
}

inline Pod bound(Pod pod, std::int64_t since_s = 0) {
  pod.node = "node-1";
  pod.scheduled_at = at(since_s);
  return pod;
}

inline Pod ready(Pod pod) {
  pod = bound(std::move(pod));
  pod.phase = PodPhase::running;
  pod.ready = true;
  return pod;
}

}  // namespace penstock::ctl::testing
