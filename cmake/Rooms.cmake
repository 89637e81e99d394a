# vlmtune_room(name SOURCES ... USES rooms... LIBS libs... [TORCH]): one static library `vlmtune_<name>` a room.
# vlmtune_test(name SOURCES ... USES rooms... [LABELS ...]): one GoogleTest program and one ctest entry.
include(CheckCXXCompilerFlag)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(vlmtune_flags INTERFACE)
target_compile_options(vlmtune_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror>)
target_compile_definitions(vlmtune_flags INTERFACE FMT_HEADER_ONLY=1 VLMTUNE_VERSION="${PROJECT_VERSION}")
target_include_directories(vlmtune_flags INTERFACE ${PROJECT_SOURCE_DIR})
if(VLMTUNE_SANITIZE)
  target_compile_options(vlmtune_flags INTERFACE -fsanitize=${VLMTUNE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(vlmtune_flags INTERFACE -fsanitize=${VLMTUNE_SANITIZE})
endif()

# One precompiled torch/torch.h serves every room that uses LibTorch (about 6 s a file instead of 22).
function(_vlmtune_torch target)
  target_link_libraries(${target} PUBLIC LibTorch::LibTorch)
  if(NOT TARGET vlmtune_torch_pch)
    file(WRITE ${PROJECT_BINARY_DIR}/torch_pch.cpp "")
    add_library(vlmtune_torch_pch OBJECT ${PROJECT_BINARY_DIR}/torch_pch.cpp)
    target_link_libraries(vlmtune_torch_pch PUBLIC vlmtune_flags LibTorch::LibTorch)
    target_precompile_headers(vlmtune_torch_pch PRIVATE <torch/torch.h> <fmt/format.h> <fmt/ranges.h> <filesystem>)
  endif()
  target_precompile_headers(${target} REUSE_FROM vlmtune_torch_pch)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)  # compiled as the precompiled header was: -fPIC, not -fPIE
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
  endif()
endfunction()

function(vlmtune_room name)
  cmake_parse_arguments(R "TORCH" "" "SOURCES;USES;LIBS" ${ARGN})
  if(VLMTUNE_DRAFT)  # DRAFT
    foreach(f ${R_SOURCES})  # DRAFT
      if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${f})  # DRAFT
        list(REMOVE_ITEM R_SOURCES ${f})  # DRAFT
      endif()  # DRAFT
    endforeach()  # DRAFT
    list(APPEND R_SOURCES ${PROJECT_BINARY_DIR}/empty.cpp)  # DRAFT
    file(WRITE ${PROJECT_BINARY_DIR}/empty.cpp "")  # DRAFT
  endif()  # DRAFT
  add_library(vlmtune_${name} STATIC ${R_SOURCES})
  target_link_libraries(vlmtune_${name} PUBLIC vlmtune_flags)
  if(R_TORCH)
    _vlmtune_torch(vlmtune_${name})
  endif()
  foreach(use ${R_USES})
    target_link_libraries(vlmtune_${name} PUBLIC vlmtune_${use})
  endforeach()
  target_link_libraries(vlmtune_${name} PRIVATE ${R_LIBS})
endfunction()

function(vlmtune_test name)
  cmake_parse_arguments(T "TORCH" "" "SOURCES;USES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE vlmtune_flags GTest::gmock GTest::gtest_main ${T_LIBS})
  target_compile_definitions(${name} PRIVATE VLMTUNE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests")
  if(T_TORCH)
    _vlmtune_torch(${name})
  endif()
  foreach(use ${T_USES})
    target_link_libraries(${name} PRIVATE vlmtune_${use})
  endforeach()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(NOT T_LABELS)
    set(T_LABELS cpu)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}")
endfunction()
