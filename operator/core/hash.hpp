// The hash that decides whether a role must roll. It is taken over this program's own canonical JSON of the resolved
// role, never over what a library or the API server prints, so that an upgrade of either can't roll a fleet. The
// format has a version ("h1:"); a later operator must keep verifying with the format a group was made with.
// Pure; any thread.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>

namespace penstock::ctl {

/// Canonical text: keys sorted, nulls dropped, integers without a fraction, and the lists that Kubernetes treats as
/// maps (containers, volumes, ports, ...) sorted by their key. Lists whose order matters keep it: args, init
/// containers, and `env` when one of its values refers to another by $(NAME).
std::string canonical_json(const boost::json::value& value);

/// "h1:" and 64 hex digits of SHA-256 over the canonical text.
std::string canonical_hash(const boost::json::value& value);

/// Ten characters of a hash, for labels and names: the digits after the format's prefix.
std::string short_hash(std::string_view hash);

/// Whether this program can compute hashes of the format that `hash` was made with.
bool is_known_format(std::string_view hash);

}  // namespace penstock::ctl
