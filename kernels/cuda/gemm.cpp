#include "kernels/cuda/gemm.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/cuda/cublaslt_api.hpp"

namespace penstock::kernels::cuda {
namespace {

namespace lt = cublaslt;

constexpr std::string_view name = "gemm";
constexpr std::size_t workspace_bytes_max = std::size_t{32} << 20;

Result<void> checked(int status, std::string_view what) {
  if (status == lt::status_success) return {};
  return make_error(ErrorCode::internal,
                    "gemm: cuBLASLt: " + std::string(what) + " failed with status " + std::to_string(status));
}

/// The largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 256;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

/// What the library gets as its first and second matrix.
const void* weights_of(const GemmProduct& p) {
  return p.is_fp8() ? static_cast<const void*>(p.fp8_weights.values) : p.weights;
}
const void* x_of(const GemmProduct& p) {
  return p.is_fp8() ? static_cast<const void*>(p.fp8_x.codes) : p.x;
}
std::uint64_t x_stride_of(const GemmProduct& p) {
  return p.is_fp8() ? p.columns : p.x_stride;
}

Result<void> validate_fp8(const GemmProduct& p) {
  if (p.fp8_weights.kind == Fp8Scales::tensor)
    return bad_shape(name, "one scale for all e4m3 weights is not supported");
  if (p.fp8_weights.kind != p.fp8_x.kind) return bad_shape(name, "scales of weights and x must be of one kind");
  const bool has_blocks = p.fp8_weights.kind == Fp8Scales::block;
  if (p.columns % (has_blocks ? 512 : 16) != 0) {
    return bad_shape(name, "columns must be a multiple of 16 with e4m3 weights, of 512 with blocks");
  }
  if (has_blocks && p.tokens % 4 != 0) return bad_shape(name, "tokens must be a multiple of 4 with blocks");
  if (p.rows % 16 != 0) return bad_shape(name, "rows must be a multiple of 16 with e4m3 weights");
  if (p.fp8_x.codes == nullptr || p.fp8_weights.scales == nullptr || p.fp8_x.scales == nullptr) {
    return bad_shape(name, "e4m3 tokens and all scales are needed");
  }
  return {};
}

Result<void> validate(const GemmProduct& p) {
  constexpr std::uint32_t most = 0x7fffff00u;
  if (p.tokens == 0 || p.tokens > most) return bad_shape(name, "tokens must be 1 to 2^31");
  if (p.rows == 0 || p.rows > most) return bad_shape(name, "rows must be 1 to 2^31");
  if (p.columns == 0 || p.columns % 8 != 0 || p.columns > most)
    return bad_shape(name, "columns must be a multiple of 8");
  if (p.is_fp8()) PENSTOCK_TRY_VOID(validate_fp8(p));
  if (x_stride_of(p) % 8 != 0 || x_stride_of(p) < p.columns) {
    return bad_shape(name, "x_stride must be columns or more, by 8");
  }
  if (p.y_stride < p.rows) return bad_shape(name, "y_stride is less than rows");
  if (weights_of(p) == nullptr || x_of(p) == nullptr || p.y == nullptr) {
    return bad_shape(name, "weights, x and y are needed");
  }
  if (alignment_of(weights_of(p)) < 16 || alignment_of(x_of(p)) < 16) {
    return bad_shape(name, "weights and x must be aligned to 16 bytes");
  }
  // Elsewhere the library rounds before it adds a bias.
  if (p.bias != nullptr && (p.output != OutputType::bf16 || p.rows % 8 != 0 || p.y_stride % 8 != 0)) {
    return bad_shape(name, "a bias needs bf16 output, with rows and y_stride multiples of 8");
  }
  if (p.residual != nullptr && p.output != OutputType::bf16) return bad_shape(name, "a residual needs bf16 output");
  return {};
}

}  // namespace

struct Gemm::Library {
  lt::Functions functions{};
  void* file = nullptr;

  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  /// Never unloaded once it works: it keeps state of the device.
  ~Library() = default;

  template <class Function>
  bool find(Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(dlsym(file, symbol));
    return function != nullptr;
  }
  static Result<std::shared_ptr<const Library>> load();
};

Result<std::shared_ptr<const Gemm::Library>> Gemm::Library::load() {
  auto library = std::make_shared<Library>();
  library->file = dlopen(lt::file_name, RTLD_NOW | RTLD_LOCAL);
  if (library->file == nullptr) {
    return make_error(
        ErrorCode::unavailable,
        std::string(lt::file_name) +
            " was not found, which prompts need on a GPU: install cuBLAS of CUDA 13, or name its folder in "
            "LD_LIBRARY_PATH");
  }
  lt::Functions& f = library->functions;
  const bool is_complete = library->find(f.create, "cublasLtCreate") && library->find(f.destroy, "cublasLtDestroy") &&
                           library->find(f.layout_create, "cublasLtMatrixLayoutCreate") &&
                           library->find(f.layout_destroy, "cublasLtMatrixLayoutDestroy") &&
                           library->find(f.desc_create, "cublasLtMatmulDescCreate") &&
                           library->find(f.desc_destroy, "cublasLtMatmulDescDestroy") &&
                           library->find(f.desc_set, "cublasLtMatmulDescSetAttribute") &&
                           library->find(f.preference_create, "cublasLtMatmulPreferenceCreate") &&
                           library->find(f.preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
                           library->find(f.preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
                           library->find(f.heuristic, "cublasLtMatmulAlgoGetHeuristic") &&
                           library->find(f.matmul, "cublasLtMatmul");
  if (!is_complete) {
    return make_error(ErrorCode::unavailable, std::string(lt::file_name) + " lacks functions that cuBLASLt 13 has");
  }
  return std::shared_ptr<const Library>(std::move(library));
}

/// A shape's descriptors and the choices for it. The library's matrices are column-major: its first one is ours of
/// weights, transposed, its second one x.
struct Gemm::Plan {
  explicit Plan(std::shared_ptr<const Library> owner) : library(std::move(owner)) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    const lt::Functions& f = library->functions;
    for (lt::Layout layout : {weights, x, y}) {
      if (layout != nullptr) f.layout_destroy(layout);
    }
    if (descriptor != nullptr) f.desc_destroy(descriptor);
  }
  Result<void> describe(const GemmProduct& p);
  Result<void> describe_fp8(const GemmProduct& p);
  /// Where bias and scales are, which may change from product to product.
  Result<void> point(const GemmProduct& p) const;
  Result<void> choose(const GemmProduct& p, lt::Handle handle);
  Result<void> start(const GemmProduct& p, std::uint32_t choice, lt::Handle handle, const DeviceBuffer& workspace,
                     Stream stream) const;

  std::shared_ptr<const Library> library;
  lt::Descriptor descriptor = nullptr;
  lt::Layout weights = nullptr, x = nullptr, y = nullptr;
  std::array<lt::HeuristicResult, choices_max> choices{};
  int found = 0;
};

Result<void> Gemm::Plan::describe(const GemmProduct& p) {
  const lt::Functions& f = library->functions;
  const int y_type = p.output == OutputType::f32 ? lt::real_32f : lt::real_16bf;
  PENSTOCK_TRY_VOID(checked(f.desc_create(&descriptor, lt::compute_32f, lt::real_32f), "a descriptor"));
  const int transposed = lt::transposed;
  PENSTOCK_TRY_VOID(
      checked(f.desc_set(descriptor, lt::desc_transa, &transposed, sizeof transposed), "transposing the weights"));
  if (p.bias != nullptr) {
    const int epilogue = lt::epilogue_bias, type = lt::real_16bf;
    PENSTOCK_TRY_VOID(checked(f.desc_set(descriptor, lt::desc_epilogue, &epilogue, sizeof epilogue), "a bias"));
    PENSTOCK_TRY_VOID(checked(f.desc_set(descriptor, lt::desc_bias_data_type, &type, sizeof type), "a bias's type"));
  }
  const auto layout = [&](lt::Layout& out, int type, std::uint64_t rows, std::uint64_t columns, std::uint64_t stride) {
    return checked(f.layout_create(&out, type, rows, columns, static_cast<std::int64_t>(stride)), "a layout");
  };
  if (p.is_fp8()) PENSTOCK_TRY_VOID(describe_fp8(p));
  const int type = p.is_fp8() ? lt::real_8f_e4m3 : lt::real_16bf;
  PENSTOCK_TRY_VOID(layout(weights, type, p.columns, p.rows, p.columns));
  PENSTOCK_TRY_VOID(layout(x, type, p.columns, p.tokens, x_stride_of(p)));
  return layout(y, y_type, p.rows, p.tokens, p.y_stride);
}

Result<void> Gemm::Plan::describe_fp8(const GemmProduct& p) {
  const lt::Functions& f = library->functions;
  const bool has_blocks = p.fp8_weights.kind == Fp8Scales::block;
  const int of_weights = has_blocks ? lt::scale_of_128_by_128 : lt::scale_of_row;
  const int of_x = has_blocks ? lt::scale_of_128 : lt::scale_of_row;
  const std::int8_t is_fast = p.fp8_sums == Fp8Sums::fast && !has_blocks ? 1 : 0;
  PENSTOCK_TRY_VOID(
      checked(f.desc_set(descriptor, lt::desc_a_scale_mode, &of_weights, sizeof of_weights), "scales of weights"));
  PENSTOCK_TRY_VOID(checked(f.desc_set(descriptor, lt::desc_b_scale_mode, &of_x, sizeof of_x), "scales of tokens"));
  PENSTOCK_TRY_VOID(
      checked(f.desc_set(descriptor, lt::desc_fast_accumulation, &is_fast, sizeof is_fast), "a way to add up"));
  return point(p);
}

Result<void> Gemm::Plan::point(const GemmProduct& p) const {
  const std::pair<int, const void*> places[] = {{lt::desc_bias_pointer, p.bias},
                                                {lt::desc_a_scale_pointer, p.fp8_weights.scales},
                                                {lt::desc_b_scale_pointer, p.fp8_x.scales}};
  for (const auto& [attribute, place] : places) {
    if (place == nullptr) continue;
    PENSTOCK_TRY_VOID(
        checked(library->functions.desc_set(descriptor, attribute, &place, sizeof place), "a place of scales or bias"));
  }
  return {};
}

/// Partial sums are added in float only, in memory of our own. No choice is found where the library has none.
Result<void> Gemm::Plan::choose(const GemmProduct& p, lt::Handle handle) {
  const lt::Functions& f = library->functions;
  lt::Preference preference = nullptr;
  PENSTOCK_TRY_VOID(checked(f.preference_create(&preference), "a preference"));
  const std::size_t bytes = workspace_bytes_max;
  const std::uint32_t schemes = lt::reduction_in_compute_type;
  int status = f.preference_set(preference, lt::preference_workspace_bytes, &bytes, sizeof bytes);
  if (status == 0) status = f.preference_set(preference, lt::preference_reduction_schemes, &schemes, sizeof schemes);
  const void* const source = p.residual != nullptr ? static_cast<const void*>(p.residual) : p.y;
  const std::pair<int, const void*> operands[] = {{lt::preference_alignment_a, weights_of(p)},
                                                  {lt::preference_alignment_b, x_of(p)},
                                                  {lt::preference_alignment_c, source},
                                                  {lt::preference_alignment_d, p.y}};
  for (const auto& [attribute, pointer] : operands) {
    const std::uint32_t alignment = alignment_of(pointer);
    if (status == 0) status = f.preference_set(preference, attribute, &alignment, sizeof alignment);
  }
  if (status == 0) {
    status = f.heuristic(handle, descriptor, weights, x, y, y, preference, choices_max, choices.data(), &found);
  }
  f.preference_destroy(preference);
  if (status == lt::status_not_supported) return {};
  return checked(status, "choosing an algorithm");
}

Result<void> Gemm::Plan::start(const GemmProduct& p, std::uint32_t choice, lt::Handle handle,
                               const DeviceBuffer& workspace, Stream stream) const {
  const lt::Functions& f = library->functions;
  if (found == 0) return make_error(ErrorCode::unsupported, "gemm: cuBLASLt has no algorithm for this shape");
  if (choice >= static_cast<std::uint32_t>(found)) return bad_shape(name, "there is no such choice");
  PENSTOCK_TRY_VOID(point(p));
  const float one = 1, added = p.residual != nullptr ? 1.0f : 0.0f;
  const void* const source = p.residual != nullptr ? static_cast<const void*>(p.residual) : p.y;
  return checked(f.matmul(handle, descriptor, &one, weights_of(p), weights, x_of(p), x, &added, source, y, p.y, y,
                          &choices[choice].algorithm, workspace.data(), workspace.bytes(), stream),
                 "a product");
}

std::uint64_t bytes_of(const GemmProduct& p) {
  const std::uint64_t rows = p.rows, columns = p.columns, tokens = p.tokens;
  const std::uint64_t output = tokens * rows * (p.output == OutputType::f32 ? 4 : 2);
  const std::uint64_t inputs = p.is_fp8() ? rows * columns + tokens * columns +
                                                sizeof(float) * fp8_scale_count(p.tokens, p.columns, p.fp8_x.kind)
                                          : 2 * (rows * columns + tokens * columns);
  return inputs + output + (p.bias != nullptr ? 2 * rows : 0) + (p.residual != nullptr ? 2 * tokens * rows : 0);
}

double operations_of(const GemmProduct& p) {
  return 2.0 * p.rows * p.columns * p.tokens;
}

Result<Gemm> Gemm::make() {
  Gemm gemm;
  PENSTOCK_TRY(gemm.library_, Library::load());
  PENSTOCK_TRY(gemm.workspace_, DeviceBuffer::make(workspace_bytes_max));
  PENSTOCK_TRY_VOID(checked(gemm.library_->functions.create(&gemm.handle_), "starting"));
  return gemm;
}

Gemm::Gemm() = default;

Gemm::Gemm(Gemm&& other) noexcept
    : library_(std::move(other.library_)),
      handle_(std::exchange(other.handle_, nullptr)),
      workspace_(std::move(other.workspace_)),
      plans_(std::move(other.plans_)) {}

Gemm& Gemm::operator=(Gemm&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(handle_, other.handle_);
  std::swap(workspace_, other.workspace_);
  std::swap(plans_, other.plans_);
  return *this;
}

Gemm::~Gemm() {
  plans_.clear();
  if (handle_ != nullptr) library_->functions.destroy(handle_);
}

Gemm::Key Gemm::key_of(const GemmProduct& p) {
  const std::uint64_t kinds = (p.output == OutputType::f32 ? 1 : 0) | (p.bias != nullptr ? 2 : 0) |
                              (p.residual != nullptr ? 4 : 0) | (p.residual == p.y ? 8 : 0) | (p.is_fp8() ? 16 : 0) |
                              (p.fp8_weights.kind == Fp8Scales::block ? 32 : 0) |
                              (p.fp8_sums == Fp8Sums::fast ? 64 : 0);
  std::uint64_t alignments = 0;
  for (const void* pointer :
       {weights_of(p), x_of(p), static_cast<const void*>(p.y), static_cast<const void*>(p.residual)}) {
    alignments = alignments << 12 | alignment_of(pointer);
  }
  return {{std::uint64_t{p.rows} << 32 | p.columns, std::uint64_t{p.tokens} << 8 | kinds, x_stride_of(p), p.y_stride,
           alignments}};
}

Result<const Gemm::Plan*> Gemm::plan_of(const GemmProduct& product) {
  const Key key = key_of(product);
  const auto found = plans_.find(key);
  if (found != plans_.end()) return static_cast<const Plan*>(found->second.get());
  auto plan = std::make_unique<Plan>(library_);
  PENSTOCK_TRY_VOID(plan->describe(product));
  PENSTOCK_TRY_VOID(plan->choose(product, handle_));
  if (plans_.size() >= kept_max) plans_.clear();
  return static_cast<const Plan*>(plans_.emplace(key, std::move(plan)).first->second.get());
}

Result<void> Gemm::run_choice(const GemmProduct& product, std::uint32_t choice, Stream stream) {
  PENSTOCK_TRY_VOID(validate(product));
  PENSTOCK_TRY(const Plan* plan, plan_of(product));
  return plan->start(product, choice, handle_, workspace_, stream);
}

Result<bool> Gemm::offers(const GemmProduct& product) {
  PENSTOCK_TRY_VOID(validate(product));
  PENSTOCK_TRY(const Plan* plan, plan_of(product));
  return plan->found > 0;
}

Result<void> Gemm::run(const GemmProduct& product, Stream stream) {
  return run_choice(product, 0, stream);
}

}  // namespace penstock::kernels::cuda
