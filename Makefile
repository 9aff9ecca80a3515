# SPDX-License-Identifier: Apache-2.0
# The few commands of the project; CMake does the work.
#
#     make          builds the release: build/release/bin/cadre
#     make demo     trains on real data with two ranks, and shows what it proves
#     make test     every test but the slow ones, in three builds
#     make install  the libraries, headers, command and manuals (PREFIX, DESTDIR)
#
# `demo` and `test` first install what is missing (Debian 12; as root).

# What the build, the tests and the demo need, as Debian 12 calls it.  oneDNN is
# libdnnl-dev; its CMake file asks for OpenCL, which we do not use.
PACKAGES := gcc g++ libc6-dev cmake ninja-build pkg-config python3 \
    libdnnl-dev ocl-icd-opencl-dev libjansson-dev libssl-dev libyaml-dev \
    libxxhash-dev zlib1g-dev libjpeg62-turbo-dev libpng-dev libcmocka-dev \
    dataset-fashion-mnist

PREFIX ?= /usr/local

MAKEFLAGS += --no-print-directory

SOURCES = $(shell git ls-files '*.c' '*.h')

all: build/release/build.ninja
	cmake --build build/release --target cadre cadre_nn bin/cadre examples/all

deps:
	@tools/install_deps $(PACKAGES)

# Programs find the libraries where the system's loader looks: `ldconfig` tells
# it, where that may be done.
install: all
	cmake --build build/release --target manuals
	cmake --install build/release --prefix "$(PREFIX)" >/dev/null
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi
	@echo "Installed in $(DESTDIR)$(PREFIX)"

demo: deps
	$(MAKE) all
	tools/demo.sh

test: deps
	tools/run_tests release asan tsan

# Campaigns: hours of dying ranks, the whole matrix, a second compiler.
test-slow: deps
	@tools/install_deps clang
	tools/run_tests clang dev slow

# Ten minutes of each fuzz target, or FUZZ_SECONDS.
FUZZ_SECONDS := 600
fuzz: deps
	@tools/install_deps clang libclang-rt-14-dev
	tools/fuzz $(FUZZ_SECONDS)

format:
	@tools/install_deps clang-format
	clang-format -i $(SOURCES)

# What lies in bench/ is built with what it measures, such as an MPI.
lint: build/dev/build.ninja
	@tools/install_deps clang-format clang-tidy
	clang-format --dry-run -Werror $(SOURCES)
	tools/check_floors
	printf '%s\n' $(filter-out bench/%,$(filter %.c,$(SOURCES))) | \
	    xargs -P $$(nproc) -n 1 clang-tidy --quiet -p build/dev

clean:
	rm -rf build

build/%/build.ninja:
	cmake --preset $* --log-level=WARNING

.PHONY: all deps install demo test test-slow fuzz format lint clean
