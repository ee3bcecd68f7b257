#include "worker/executor/cuda/row_sampler.hpp"

#include "kernels/cuda/sampler.hpp"

namespace penstock::worker {

namespace cuda = kernels::cuda;
using cuda::LogitAdjustment;
using cuda::SampleRow;

Result<RowSampler> RowSampler::make(std::uint32_t vocabulary, std::uint32_t rows_max, std::uint32_t adjustments_max) {
  RowSampler sampler;
  sampler.vocabulary_ = vocabulary;
  PENSTOCK_TRY(sampler.host_rows_, cuda::PinnedBuffer::make(rows_max * sizeof(SampleRow)));
  PENSTOCK_TRY(sampler.host_adjustments_, cuda::PinnedBuffer::make(adjustments_max * sizeof(LogitAdjustment)));
  PENSTOCK_TRY(sampler.results_, cuda::PinnedBuffer::make(rows_max * sizeof(cuda::SampledToken)));
  PENSTOCK_TRY(sampler.device_rows_, cuda::DeviceBuffer::make(rows_max * sizeof(SampleRow)));
  PENSTOCK_TRY(sampler.device_adjustments_, cuda::DeviceBuffer::make(adjustments_max * sizeof(LogitAdjustment)));
  sampler.rows_ =
      std::make_unique<SampleRows>(vocabulary, std::span(sampler.host_rows_.as<SampleRow>(), rows_max),
                                   std::span(sampler.host_adjustments_.as<LogitAdjustment>(), adjustments_max));
  return sampler;
}

Result<void> RowSampler::queue(const float* logits, std::uint32_t count, cuda::Stream stream) {
  PENSTOCK_TRY_VOID(device_rows_.queue_upload(host_rows_.as<SampleRow>(), count * sizeof(SampleRow), stream));
  if (rows_->used() > 0) {
    PENSTOCK_TRY_VOID(device_adjustments_.queue_upload(host_adjustments_.as<LogitAdjustment>(),
                                                       rows_->used() * sizeof(LogitAdjustment), stream));
  }
  const cuda::SampleTokens work{logits,
                                count,
                                vocabulary_,
                                device_rows_.as<SampleRow>(),
                                device_adjustments_.as<LogitAdjustment>(),
                                results_.as<cuda::SampledToken>()};
  return sample_tokens(work, cuda::Start::ordered, stream);
}

}  // namespace penstock::worker
