// What the cluster itself does, on the model API server: scheduler with gangs, kubelets, the Deployment controller,
// people and autoscalers. Everything happens by chance of the seed, one small thing at a time. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/time/random.hpp"
#include "operator/core/observed.hpp"
#include "tests/sim/operator/api_server.hpp"

namespace penstock::sim {

inline constexpr std::string_view name_space = "ns";

struct ClusterOptions {
  std::uint32_t nodes = 8;
  std::uint32_t pods_a_node = 8;
  std::uint32_t patience = 3;  // everything happens in one of so many turns
};

class Cluster {
 public:
  Cluster(ApiServer& api, std::uint64_t seed, ClusterOptions options = {});

  /// One round: binds, starts and ends some pods, settles Deployments, collects.
  void turn();

  // --- What people do ---
  void apply_service(const json::Object& spec);
  void edit_service(const std::function<void(json::Object& spec)>& edit);
  void delete_service();
  void scale(const std::string& scaler, int replicas);
  /// A ClusterTopology of one level, Rack, of four nodes each.
  void apply_topology();
  void kill_random_pod();
  void fail_random_pod();
  void lose_node(const std::string& node);

 private:
  void bind();
  void run_pods();
  void deployments();
  bool bind_gang(const std::string& gang);
  /// A node with room, in a domain instance if one is given by label and value.
  std::string free_node(const std::vector<std::string>& taken, std::string_view label = {},
                        std::string_view value = {}) const;
  std::vector<std::string> nodes_for(std::size_t count, std::string_view label) const;
  void set_node(json::Object& pod, const std::string& node);

  ApiServer& api_;
  Random random_;
  ClusterOptions options_;
};

json::Object two_roles(int prefill, int decode, std::string_view image);

}  // namespace penstock::sim
