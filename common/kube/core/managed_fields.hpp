// Takes `metadata.managedFields` out of an object's text before it is parsed: who set which field when. Nothing here
// reads it, and it is up to half of an object's bytes and most of its keys. Pure; one owner. The bytes are hostile.
#pragma once

#include <string>
#include <string_view>

namespace penstock::kube {

class ManagedFieldsFilter {
 public:
  /// The text with an empty list in their place, or as it is if there is none that ends. Good until the next call, and
  /// no longer than the text given.
  std::string_view without(std::string_view object);

 private:
  std::string buffer_;  // reused: as large as the largest object was
};

}  // namespace penstock::kube
