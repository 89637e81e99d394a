# LibTorch's CPU part: headers, libtorch_cpu and libc10 only, so that the binary starts without CUDA.
# Looks in CMAKE_PREFIX_PATH, which may name the root of a LibTorch archive, the `torch` folder of the Python package,
# or torch.utils.cmake_prefix_path. Torch's own config is not used: it pulls in CUDA and clashes with older CMake.
set(_hints)
foreach(prefix ${CMAKE_PREFIX_PATH} $ENV{CMAKE_PREFIX_PATH})
  list(APPEND _hints ${prefix} ${prefix}/../..)
endforeach()

find_path(LibTorch_INCLUDE_DIR torch/csrc/api/include/torch/torch.h HINTS ${_hints} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS ${_hints} PATH_SUFFIXES lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 HINTS ${_hints} PATH_SUFFIXES lib NO_DEFAULT_PATH)

set(LibTorch_VERSION "")
if(LibTorch_INCLUDE_DIR)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h _line REGEX "define TORCH_VERSION_${part} ")
    string(REGEX MATCH "[0-9]+" _number "${_line}")
    list(APPEND _numbers ${_number})
  endforeach()
  string(REPLACE ";" "." LibTorch_VERSION "${_numbers}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "Run scripts/setup, or pass -DCMAKE_PREFIX_PATH=<LibTorch folder>.")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  get_filename_component(LibTorch_LIBRARY_DIR ${LibTorch_CPU_LIBRARY} DIRECTORY)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    ${LibTorch_INCLUDE_DIR} ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include)
  target_link_libraries(LibTorch::LibTorch INTERFACE ${LibTorch_CPU_LIBRARY} ${LibTorch_C10_LIBRARY})
  # Its headers share work among threads by OpenMP: without the flag at::parallel_for quietly uses one.
  find_package(OpenMP COMPONENTS CXX)
  if(OpenMP_CXX_FOUND)
    target_link_libraries(LibTorch::LibTorch INTERFACE OpenMP::OpenMP_CXX)
  else()
    message(WARNING "The compiler has no OpenMP: the CPU kernels will use one thread.")
  endif()
  # libtorch_cpu asks for CUDA's run-time libraries, which are found at run time or not needed at all.
  target_link_options(LibTorch::LibTorch INTERFACE LINKER:--allow-shlib-undefined LINKER:-rpath,${LibTorch_LIBRARY_DIR})
endif()
