#include "operator/api/names.hpp"

#include <array>
#include <cstddef>

namespace penstock::ctl::api {
namespace {

template <class E, std::size_t n>
using Table = std::array<std::pair<std::string_view, E>, n>;

constexpr Table<RoleType, 5> role_types{{{"Router", RoleType::router},
                                         {"Unified", RoleType::unified},
                                         {"Prefill", RoleType::prefill},
                                         {"Decode", RoleType::decode},
                                         {"Encode", RoleType::encode}}};
constexpr Table<StartupOrder, 2> startup_orders{
    {{"Parallel", StartupOrder::parallel}, {"LeaderFirst", StartupOrder::leader_first}}};
constexpr Table<RestartPolicy, 3> restart_policies{
    {{"Group", RestartPolicy::group}, {"Pod", RestartPolicy::pod}, {"None", RestartPolicy::none}}};
constexpr Table<InPlaceRestart, 2> in_place_restarts{
    {{"Never", InPlaceRestart::never}, {"Prefer", InPlaceRestart::prefer}}};
constexpr Table<ClaimScope, 2> claim_scopes{{{"Pod", ClaimScope::pod}, {"Group", ClaimScope::group}}};
constexpr Table<WhenUnsatisfiable, 2> when_unsatisfiable{
    {{"ScheduleAnyway", WhenUnsatisfiable::schedule_anyway}, {"DoNotSchedule", WhenUnsatisfiable::do_not_schedule}}};
constexpr Table<ScalingMode, 3> scaling_modes{
    {{"Fixed", ScalingMode::fixed}, {"External", ScalingMode::external}, {"SLO", ScalingMode::slo}}};
constexpr Table<Enforcement, 2> enforcements{
    {{"Preferred", Enforcement::preferred}, {"Required", Enforcement::required}}};
constexpr Table<ComputeDomainMode, 3> compute_domain_modes{{{"Auto", ComputeDomainMode::automatic},
                                                            {"Never", ComputeDomainMode::never},
                                                            {"Always", ComputeDomainMode::always}}};
constexpr Table<SchedulingBackend, 5> scheduling_backends{{{"Auto", SchedulingBackend::automatic},
                                                           {"Kubernetes", SchedulingBackend::kubernetes},
                                                           {"KAI", SchedulingBackend::kai},
                                                           {"Volcano", SchedulingBackend::volcano},
                                                           {"None", SchedulingBackend::none}}};
constexpr Table<RolloutStrategy, 2> rollout_strategies{
    {{"Coordinated", RolloutStrategy::coordinated}, {"Recreate", RolloutStrategy::recreate}}};
constexpr Table<RoutingPolicy, 4> routing_policies{{{"KVAware", RoutingPolicy::kv_aware},
                                                    {"LeastLoad", RoutingPolicy::least_load},
                                                    {"RoundRobin", RoutingPolicy::round_robin},
                                                    {"Random", RoutingPolicy::random}}};
constexpr Table<ToolFormat, 6> tool_formats{{{"Auto", ToolFormat::automatic},
                                             {"None", ToolFormat::none},
                                             {"Hermes", ToolFormat::hermes},
                                             {"Llama3JSON", ToolFormat::llama3_json},
                                             {"Mistral", ToolFormat::mistral},
                                             {"Qwen3Coder", ToolFormat::qwen3_coder}}};
constexpr Table<ReasoningFormat, 3> reasoning_formats{
    {{"Auto", ReasoningFormat::automatic}, {"None", ReasoningFormat::none}, {"Think", ReasoningFormat::think}}};
constexpr Table<RouterServiceType, 3> router_service_types{{{"ClusterIP", RouterServiceType::cluster_ip},
                                                            {"NodePort", RouterServiceType::node_port},
                                                            {"LoadBalancer", RouterServiceType::load_balancer}}};
constexpr Table<KvTransfer, 2> kv_transfers{{{"TrustedFabric", KvTransfer::trusted_fabric}, {"Off", KvTransfer::off}}};
constexpr Table<CacheState, 5> cache_states{{{"Pending", CacheState::pending},
                                             {"Downloading", CacheState::downloading},
                                             {"Ready", CacheState::ready},
                                             {"Failed", CacheState::failed},
                                             {"Evicting", CacheState::evicting}}};

}  // namespace

Names<RoleType> api_names(RoleType) {
  return role_types;
}
Names<StartupOrder> api_names(StartupOrder) {
  return startup_orders;
}
Names<RestartPolicy> api_names(RestartPolicy) {
  return restart_policies;
}
Names<InPlaceRestart> api_names(InPlaceRestart) {
  return in_place_restarts;
}
Names<ClaimScope> api_names(ClaimScope) {
  return claim_scopes;
}
Names<WhenUnsatisfiable> api_names(WhenUnsatisfiable) {
  return when_unsatisfiable;
}
Names<ScalingMode> api_names(ScalingMode) {
  return scaling_modes;
}
Names<Enforcement> api_names(Enforcement) {
  return enforcements;
}
Names<ComputeDomainMode> api_names(ComputeDomainMode) {
  return compute_domain_modes;
}
Names<SchedulingBackend> api_names(SchedulingBackend) {
  return scheduling_backends;
}
Names<RolloutStrategy> api_names(RolloutStrategy) {
  return rollout_strategies;
}
Names<RoutingPolicy> api_names(RoutingPolicy) {
  return routing_policies;
}
Names<ToolFormat> api_names(ToolFormat) {
  return tool_formats;
}
Names<ReasoningFormat> api_names(ReasoningFormat) {
  return reasoning_formats;
}
Names<RouterServiceType> api_names(RouterServiceType) {
  return router_service_types;
}
Names<KvTransfer> api_names(KvTransfer) {
  return kv_transfers;
}
Names<CacheState> api_names(CacheState) {
  return cache_states;
}

}  // namespace penstock::ctl::api
