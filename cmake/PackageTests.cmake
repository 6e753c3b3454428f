# Tests of what is built rather than of what the code does: exported symbols, the installed package, the set-up, the
# README, the links of the pages, the file format read by other people's code. They need an ordinary build, so sanitizer builds leave them out.
if(LAC_SANITIZE)
  return()
endif()

add_test(NAME symbols COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tests/consumer/symbols.sh
  ${CMAKE_CURRENT_SOURCE_DIR}/include/lacuna.h $<TARGET_FILE:lacuna> $<TARGET_FILE:lacuna_static> ${CMAKE_NM})

add_test(NAME consumer COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tests/consumer/run.sh
  ${CMAKE_CURRENT_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR}/consumer ${CMAKE_C_COMPILER})

add_test(NAME setup COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/test-setup.sh)
add_test(NAME readme COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/check-readme.sh)
add_test(NAME links COMMAND python3 -B ${CMAKE_CURRENT_SOURCE_DIR}/scripts/check-links.py)
set_tests_properties(symbols consumer setup readme links PROPERTIES LABELS package)

if(TARGET lacuna_cli)
  cmake_path(ABSOLUTE_PATH LAC_TEST_PYTHON BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE LAC_TEST_PYTHON_PATH)
  add_test(NAME python_safetensors COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tests/python/run.sh
    ${LAC_TEST_PYTHON_PATH} $<TARGET_FILE:lacuna_cli> ${CMAKE_CURRENT_BINARY_DIR}/python_safetensors)
  set_tests_properties(python_safetensors PROPERTIES SKIP_RETURN_CODE 77 LABELS package)
endif()
