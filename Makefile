# A thin front for CMake and Ninja: `make help` lists what it can do. Everything it makes lies in build*/.

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_FLAGS ?=
FUZZ_SECONDS ?= 60

# The sanitizers slow the randomised tests down; they run a fraction of the cases (1/LAC_TEST_SCALE).
ASAN_SCALE ?= 10
TSAN_SCALE ?= 40

# Threads that wait at a barrier give their core to the test beside them.
export OMP_WAIT_POLICY ?= passive

CONFIGURE = cmake -S . -B $(BUILD) -G Ninja -DCMAKE_INSTALL_PREFIX="$(PREFIX)" $(CMAKE_FLAGS)
COMPILE = cmake --build $(BUILD) -j $(JOBS)

.PHONY: all demo test install check-format format sanitize asan tsan clang fuzz clean help bench bench-store

all:
	@scripts/setup.sh build
	@$(CONFIGURE)
	@$(COMPILE)

demo:
	@scripts/setup.sh build
	@$(CONFIGURE)
	@$(COMPILE) --target demo

test:
	@scripts/setup.sh test $(BUILD)
	@$(CONFIGURE)
	@$(COMPILE)
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

install: all
	DESTDIR="$(DESTDIR)" cmake --install $(BUILD)

check-format:
	@scripts/setup.sh ci $(BUILD)
	@scripts/format.sh --check

format:
	@scripts/setup.sh ci $(BUILD)
	@scripts/format.sh

sanitize: asan tsan

asan:
	@scripts/setup.sh ci $(BUILD)
	@scripts/sanitize.sh address build-asan $(JOBS) $(ASAN_SCALE)

tsan:
	@scripts/setup.sh ci $(BUILD)
	@scripts/sanitize.sh thread build-tsan $(JOBS) $(TSAN_SCALE)

clang:
	@scripts/setup.sh ci $(BUILD)
	cmake -S . -B build-clang -G Ninja -DCMAKE_C_COMPILER=clang \
		-DLAC_TEST_PYTHON:FILEPATH=$(BUILD)/venv/bin/python $(CMAKE_FLAGS)
	cmake --build build-clang -j $(JOBS)
	LAC_TEST_SCALE=$(ASAN_SCALE) ctest --test-dir build-clang --output-on-failure -j $(JOBS)

fuzz:
	@scripts/setup.sh ci $(BUILD)
	tests/fuzz/run.sh $(FUZZ_SECONDS)

clean:
	rm -rf $(BUILD) build-asan build-tsan build-clang build-fuzz

help:
	@echo 'make               build the library, the command line and the tests in build/'
	@echo 'make demo          prune, save, load, multiply and verify a small checkpoint, end to end'
	@echo 'make test          build and run every test'
	@echo 'make install       PREFIX=/usr/local, DESTDIR= for packagers'
	@echo 'make clang         build and test with clang, in build-clang/'
	@echo 'make sanitize      the tests under ASan + UBSan (make asan) and under TSan (make tsan)'
	@echo 'make fuzz          the fuzz targets, FUZZ_SECONDS=60 each'
	@echo 'make check-format  is the code as clang-format would write it? make format writes it so'
	@echo 'make bench         time a standing set of problems, and say which got slower than stored; under five minutes'
	@echo 'make bench-store   the same, stored in bench/results/ instead of compared'
	@echo 'make clean         remove the build folders'
	@echo ''
	@echo 'BUILD=build JOBS=2 CMAKE_FLAGS=... work everywhere. Missing Debian packages are installed when that is allowed.'

# The benchmark wants its threads awake, and the machine to itself. bench/standing.sh says what is run.
bench bench-store:
	@scripts/setup.sh bench
	@$(CONFIGURE)
	@$(COMPILE) --target lacuna_cli
	@env -u OMP_WAIT_POLICY bench/standing.sh $(BUILD)/lacuna $(BUILD) $@
