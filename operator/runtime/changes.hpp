// Which changes of an object are news to those who look after it. Pure; any thread.
#pragma once

#include "common/kube/core/store.hpp"

namespace penstock::ctl {

/// It came, it went, or somebody wants something else of it. A status that was written, by the operator itself more
/// often than not, is no edit: generations count changes of the spec.
inline bool is_edit(const kube::ObjectMeta* before, const kube::ObjectMeta* after) {
  if (before == nullptr || after == nullptr) return true;
  return before->uid != after->uid || before->generation != after->generation || before->deleted != after->deleted ||
         before->labels != after->labels || before->annotations != after->annotations ||
         before->controller != after->controller || before->finalizers != after->finalizers;
}

template <class T>
bool is_edit(const kube::Change<T>& change) {
  return is_edit(change.before == nullptr ? nullptr : &change.before->meta,
                 change.after == nullptr ? nullptr : &change.after->meta);
}

/// A pod that could serve can no more, or is gone. T has `bool lost() const`.
template <class T>
bool is_loss(const kube::Change<T>& change) {
  if (change.before == nullptr || change.before->lost()) return false;
  return change.after == nullptr || change.after->lost();
}

}  // namespace penstock::ctl
