# What `make install` installs of the library: lacuna.h, both libraries, lacuna.pc and the CMake package.
# The command line installs itself, in its own CMakeLists.txt.
include(CMakePackageConfigHelpers)

# What a program that links the static library needs of OpenMP: the runtime alone, by name when the linker knows it.
set(LAC_STATIC_OPENMP "")
if(LAC_OPENMP)
  if("gomp" IN_LIST OpenMP_C_LIB_NAMES)
    set(LAC_STATIC_OPENMP gomp)
  else()
    set(LAC_STATIC_OPENMP ${OpenMP_C_LIBRARIES})
    list(FILTER LAC_STATIC_OPENMP EXCLUDE REGEX "pthread")
  endif()
  target_link_libraries(lacuna_static INTERFACE $<INSTALL_INTERFACE:${LAC_STATIC_OPENMP}>)
endif()

install(FILES include/lacuna.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Two export sets: a program that links the shared library needs no jansson to build.
install(TARGETS lacuna EXPORT lacunaTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS lacuna_static EXPORT lacunaStaticTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(LAC_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/lacuna)
foreach(set lacunaTargets lacunaStaticTargets)
  install(EXPORT ${set} NAMESPACE lacuna:: DESTINATION ${LAC_PACKAGE_DIR})
endforeach()
configure_package_config_file(cmake/lacunaConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/lacunaConfig.cmake
  INSTALL_DESTINATION ${LAC_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/lacunaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lacunaConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/lacunaConfigVersion.cmake
  DESTINATION ${LAC_PACKAGE_DIR})

# lacuna.pc finds its prefix from where it lies, so that an installed tree can be moved.
set(LAC_PC_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(LAC_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH LAC_PC_UP /prefix/${LAC_PC_DIR} /prefix)
  string(REGEX REPLACE "/$" "" LAC_PC_UP "${LAC_PC_UP}")
  set(LAC_PC_PREFIX "\${pcfiledir}/${LAC_PC_UP}")
endif()
foreach(dir LIB INCLUDE)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}DIR}")
    set(LAC_PC_${dir}DIR ${CMAKE_INSTALL_${dir}DIR})
  else()
    set(LAC_PC_${dir}DIR "\${prefix}/${CMAKE_INSTALL_${dir}DIR}")
  endif()
endforeach()
set(LAC_PC_OPENMP "")
foreach(library ${LAC_STATIC_OPENMP})
  if(IS_ABSOLUTE "${library}")
    string(APPEND LAC_PC_OPENMP "${library} ")
  else()
    string(APPEND LAC_PC_OPENMP "-l${library} ")
  endif()
endforeach()
configure_file(cmake/lacuna.pc.in ${CMAKE_CURRENT_BINARY_DIR}/lacuna.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lacuna.pc DESTINATION ${LAC_PC_DIR})
