// From parsers of our own kinds to what informers want. Pure. Any thread.
#pragma once

#include <utility>

#include "common/base/error.hpp"
#include "common/json/json.hpp"
#include "common/kube/core/cache_sink.hpp"

namespace penstock::ctl {

/// Parsers of our own kinds tell the path of a wrong field; an informer wants a sentence.
template <class T>
kube::Projection<T> projection(json::FieldResult<T> (*parse)(const json::Value&)) {
  return [parse](const json::Object& object) -> Result<T> {
    auto parsed = parse(json::Value(object, object.storage()));
    if (!parsed) return make_error(ErrorCode::invalid_argument, parsed.error().path + ": " + parsed.error().reason);
    return std::move(*parsed);
  };
}

}  // namespace penstock::ctl
