// Names and labels of everything the operator makes. One place, so that what the operator writes, what the router
// selects and what people type into kubectl cannot drift apart. Pure; any thread. Every name is bounded by what
// Kubernetes allows where it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "common/time/random.hpp"

namespace penstock::ctl {

inline constexpr std::string_view api_version = "penstock.dev/v1alpha1";
inline constexpr std::string_view field_manager = "penstock-operator";

namespace label {
inline constexpr std::string_view managed_by = "app.kubernetes.io/managed-by";  // "penstock" on every object we make
inline constexpr std::string_view service = "penstock.dev/service";
inline constexpr std::string_view role = "penstock.dev/role";            // the role's name
inline constexpr std::string_view role_type = "penstock.dev/role-type";  // router, unified, prefill, decode, encode
inline constexpr std::string_view group = "penstock.dev/group";          // the WorkerGroup's name
inline constexpr std::string_view epoch = "penstock.dev/epoch";          // decimal; which incarnation of the group
inline constexpr std::string_view rank = "penstock.dev/rank";            // decimal; position in the group
inline constexpr std::string_view revision = "penstock.dev/revision";    // ten characters of the role hash
inline constexpr std::string_view pairing = "penstock.dev/pairing";      // the router pairs P and D of equal value only
inline constexpr std::string_view leader = "penstock.dev/leader";        // "true" on rank 0
inline constexpr std::string_view managed_by_value = "penstock";
}  // namespace label

namespace annotation {
inline constexpr std::string_view desired = "penstock.dev/desired";                // hash of the desired object
inline constexpr std::string_view drain_deadline = "penstock.dev/drain-deadline";  // unix seconds, decimal
inline constexpr std::string_view role_hash = "penstock.dev/role-hash";            // full, with its format: "h1:..."
inline constexpr std::string_view scale_reason = "penstock.dev/scale-reason";      // why the planner wrote a count
}  // namespace annotation

/// Set on pods while their gang back end can't hold them together by itself. Only this gate is ever removed by us.
inline constexpr std::string_view scheduling_gate = "penstock.dev/group-ready";
/// On objects whose removal must be ordered by us (ComputeDomain after its pods).
inline constexpr std::string_view cleanup_finalizer = "penstock.dev/cleanup";

inline constexpr std::size_t label_value_max = 63;
inline constexpr std::size_t pod_name_max = 63;    // so that the host name is the pod's name
inline constexpr std::size_t group_name_max = 52;  // leaves room for "-<epoch36>-<rank>": 1 + 6 + 1 + 3

/// The parts joined by '-'. What would be longer than `max` is cut and ends in '-' and eight hex digits of the SHA-256
/// of the whole, so that two long names that differ only at their end stay different. max >= 10.
std::string bounded_name(std::initializer_list<std::string_view> parts, std::size_t max);

/// Five characters of [0-9a-z] without i, l, o, u: no ordinals, so holes and reuse can't confuse two groups.
std::string make_group_id(Random& random);

/// "<service>-<role>-<id>", at most group_name_max.
std::string group_name(std::string_view service, std::string_view role, std::string_view id);

/// "<group>-<epoch36>-<rank>", at most pod_name_max for any epoch below 36^6 and rank below 1000.
std::string pod_name(std::string_view group, std::uint64_t epoch, std::uint32_t rank);

std::string to_base36(std::uint64_t number);

/// A value that may stand in a label: as it is if it fits, else bounded.
std::string label_value(std::string_view text);

/// "topology.penstock.dev/rack": where a leader pod carries the value of its node's label for that domain.
std::string topology_label(std::string_view domain);

/// A decimal number in a label or annotation; nothing else is accepted.
std::optional<std::uint64_t> parse_decimal(std::string_view text);

}  // namespace penstock::ctl
