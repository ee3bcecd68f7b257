// write_tiny_model FILE.gguf: a small random model that the GPU's kernels have sizes for.
#include <cstdio>
#include <exception>

#include "tests/support/tiny_model.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_tiny_model FILE.gguf\n");
    return 2;
  }
  try {
    penstock::test::TinyModel model;
    model.hidden = 256;
    model.heads = 8;
    model.kv_heads = 2;
    model.head_dim = 64;
    model.ffn = 512;
    model.layers = 3;
    model.context = 2048;
    model.format = penstock::kernels::cpu::WeightFormat::bf16;
    penstock::test::write_tiny_gguf(model, argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "write_tiny_model: %s\n", error.what());
    return 1;
  }
  return 0;
}
