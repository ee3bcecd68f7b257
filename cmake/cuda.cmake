# The CUDA language, when PENSTOCK_CUDA is ON: deploy/build cuda sets PENSTOCK_CUDA_ROOT and takes the CMake beside it.
if(CMAKE_VERSION VERSION_LESS 3.31)
  message(FATAL_ERROR "PENSTOCK_CUDA needs CMake 3.31 or newer: run deploy/build cuda, which brings one")
endif()
set(CMAKE_CUDA_ARCHITECTURES ${PENSTOCK_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
# No path into the toolkit in binaries: they run elsewhere.
set(CMAKE_SKIP_BUILD_RPATH ON)
if(CCACHE_PROGRAM)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
enable_language(CUDA)
find_package(CUDAToolkit 13.0 REQUIRED)

# Flags for device code: penstock_cuda_library() links this privately.
add_library(penstock_cuda_flags INTERFACE)
target_compile_options(penstock_cuda_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Wall,-Werror --expt-relaxed-constexpr -lineinfo>)
target_include_directories(penstock_cuda_flags INTERFACE ${PROJECT_SOURCE_DIR})

# penstock_cuda_library(NAME SOURCES... DEPS...): as penstock_library(), of .cu and .cpp files.
function(penstock_cuda_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  set(cpp_sources ${ARG_SOURCES})
  list(FILTER cpp_sources INCLUDE REGEX "\\.cpp$")
  set(cuda_sources ${ARG_SOURCES})
  list(FILTER cuda_sources EXCLUDE REGEX "\\.cpp$")
  add_library(penstock_${name}_device OBJECT ${cuda_sources})
  target_link_libraries(penstock_${name}_device PRIVATE penstock_cuda_flags)
  add_library(penstock_${name} STATIC ${cpp_sources} $<TARGET_OBJECTS:penstock_${name}_device>)
  target_link_libraries(penstock_${name} PUBLIC ${ARG_DEPS} CUDA::cudart_static PRIVATE penstock_flags)
  target_include_directories(penstock_${name} PUBLIC ${PROJECT_SOURCE_DIR})
endfunction()
