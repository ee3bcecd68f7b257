# What a builder may choose. Presets in CMakePresets.json set these; nothing else does.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(PENSTOCK_TESTS "Build the tests" ON)
option(PENSTOCK_BENCH "Build the benchmarks" ON)
option(PENSTOCK_FUZZ "Build the fuzz targets with libFuzzer (clang); otherwise they replay their seeds" OFF)
option(PENSTOCK_SLOW_TESTS "Register the tests that take minutes each" OFF)
option(PENSTOCK_CUDA "Build the GPU kernels; the cuda preset sets it" OFF)
set(PENSTOCK_CUDA_ARCHITECTURES "90a-real" CACHE STRING "GPUs to build for, as CMAKE_CUDA_ARCHITECTURES: 80-real;90a-real;100a-real")
set(PENSTOCK_SANITIZE "" CACHE STRING "Sanitizers for all code, e.g. address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Precompiled headers are told apart by their content.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()
