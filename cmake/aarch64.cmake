# A build for 64-bit Arm on another machine, whose tests run under qemu: `make neon` uses it. The compiler and its C library
# are Debian's cross packages; jansson and cmocka lie unpacked in the build folder, where `scripts/setup.sh neon` puts them.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-L;/usr/aarch64-linux-gnu")
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# Programs are this machine's; headers and libraries never are. A try_compile reads this file too, with a binary folder of
# its own, and would leave the environment pointing there.
get_property(trying GLOBAL PROPERTY IN_TRY_COMPILE)
if(NOT trying)
  set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu ${CMAKE_BINARY_DIR}/sysroot)
  set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_BINARY_DIR}/sysroot/usr/lib/aarch64-linux-gnu/pkgconfig)
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY BOTH) # pkg-config's answers lie in the root already
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
