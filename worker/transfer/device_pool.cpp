#include "worker/transfer/device_pool.hpp"

namespace penstock::worker::transfer {

Result<void> wait_for(DevicePool& pool, Result<CopyId> copy) {
  if (!copy) return std::move(copy).error();
  pool.wait();
  PENSTOCK_TRY(const bool is_done, pool.is_done(*copy));
  if (!is_done) return make_error(ErrorCode::internal, "a copy on the device did not end");
  return {};
}

}  // namespace penstock::worker::transfer
