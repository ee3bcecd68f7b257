#include "kernels/cuda/sampler.hpp"

#include "kernels/cuda/sampler_launch.hpp"

namespace penstock::kernels::cuda {

Result<void> sample_tokens(const SampleTokens& work, Start start, Stream stream) {
  constexpr std::string_view name = "sample_tokens";
  if (work.vocabulary == 0 || work.vocabulary > sampler_vocabulary_max) {
    return bad_shape(name, "the vocabulary must have 1 to 393216 tokens");
  }
  if (work.rows > 65535) return bad_shape(name, "more than 65535 rows");
  if (work.logits == nullptr || work.parameters == nullptr || work.out == nullptr) {
    return bad_shape(name, "logits, parameters and out are needed");
  }
  if (work.rows == 0) return {};
  const SampleArguments a{work.logits,
                          work.parameters,
                          work.adjustments,
                          work.out,
                          work.drawn,
                          static_cast<std::int32_t>(work.rows),
                          static_cast<std::int32_t>(work.vocabulary)};
  return check_launch(start_sampler(a, start == Start::overlapped, stream), name);
}

}  // namespace penstock::kernels::cuda
