// Lambdas as the visitor of a variant.
#pragma once

namespace penstock::sim {

template <class... Handlers>
struct Overload : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overload(Handlers...) -> Overload<Handlers...>;

}  // namespace penstock::sim
