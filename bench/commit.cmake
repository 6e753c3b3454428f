# commit.cmake - writes OUT, a header that names the commit being built; touches it only when that changes. Run at every
# build: cmake -DSOURCE=... -DOUT=... -P commit.cmake
set(commit "unknown")
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE head ERROR_QUIET
    RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed)
    set(commit ${head})
    execute_process(COMMAND ${git} -C ${SOURCE} status --porcelain --untracked-files=no -- src include OUTPUT_VARIABLE changes
      ERROR_QUIET)
    if(changes)
      set(commit "${head}+changes")
    endif()
  endif()
endif()
set(text "#define LAC_BUILD_COMMIT \"${commit}\"\n")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT "${text}" STREQUAL "${before}")
  file(WRITE ${OUT} "${text}")
endif()
