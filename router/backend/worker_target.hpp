// A worker that discovery knows of: where it listens, and what is known of it from elsewhere than itself. Plain value.
#pragma once

#include <string>

#include "router/core/membership/transfer_groups.hpp"

namespace penstock::router {

struct WorkerTarget {
  std::string address;       // of its control protocol, host:port
  TopologyLabels labels;     // replace those of its WELCOME unless empty
  bool is_draining = false;  // takes no new requests, whatever it says itself
  friend bool operator==(const WorkerTarget&, const WorkerTarget&) = default;
};

}  // namespace penstock::router
