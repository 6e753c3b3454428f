# Writes OUTPUT, a C file with the text of every file in INPUTS (parted by |): see src/cuda/sources.h. Run as a script, by
# the build, whenever one of them changes.
string(REPLACE "|" ";" INPUTS "${INPUTS}")
set(texts "")
set(table "")
set(number 0)
foreach(input ${INPUTS})
  get_filename_component(name "${input}" NAME)
  file(READ "${input}" bytes HEX)
  string(LENGTH "${bytes}" length)
  math(EXPR length "${length} / 2")
  # Bytes rather than a string: C promises no string longer than 4095 characters.
  string(REGEX REPLACE "(................................)" "\\1\n    " bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1, " bytes "${bytes}")
  string(APPEND texts "static const unsigned char text_${number}[] = {\n    ${bytes}0};\n\n")
  string(APPEND table "    {\"${name}\", (const char *)text_${number}, ${length}},\n")
  math(EXPR number "${number} + 1")
endforeach()
string(SHA256 digest "${texts}")
file(WRITE "${OUTPUT}" "/* Made by cmake/EmbedSources.cmake. */\n#include \"cuda/sources.h\"\n\n${texts}"
  "const lac_cuda_source lac_cuda_sources[] = {\n${table}};\nconst size_t lac_cuda_source_count = ${number};\n"
  "const char lac_cuda_sources_digest[] = \"${digest}\";\n")
