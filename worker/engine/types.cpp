#include "worker/engine/executor.hpp"
#include "worker/engine/kv_transfer.hpp"

namespace penstock::worker {

std::size_t kv_dtype_bytes(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::bf16:
    case KvDtype::f16:
      return 2;
    case KvDtype::f32:
      return 4;
  }
  return 0;
}

std::string_view to_string(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::bf16:
      return "bf16";
    case KvDtype::f16:
      return "f16";
    case KvDtype::f32:
      return "f32";
  }
  return "";
}

std::string_view to_string(TransferEnd end) {
  switch (end) {
    case TransferEnd::committed:
      return "committed";
    case TransferEnd::invalid:
      return "invalid";
    case TransferEnd::expired:
      return "expired";
    case TransferEnd::aborted:
      return "aborted";
    case TransferEnd::failed:
      return "failed";
    case TransferEnd::released:
      return "released";
  }
  return "";
}

}  // namespace penstock::worker
