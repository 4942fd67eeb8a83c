# The commands of daily work. `make run` and `make test` start from a bare machine.
.DEFAULT_GOAL := help
.PHONY: help run test build check bench soak install format clean configure
.PHONY: wheel deb programs site setup setup-test setup-check setup-package setup-site

PREFIX ?= /usr/local
# A file that includes torch takes about 2 GB to compile.
JOBS ?= $(shell awk -v cores=$$(nproc) '/MemAvailable/ {fit = int($$2 / 2097152); \
	print (fit < 1 ? 1 : fit < cores ? fit : cores)}' /proc/meminfo)
# A test that runs processes counts as two: two of them run at once and another test beside them,
# because they often wait.
TEST_JOBS ?= 5

help:
	@echo 'make run      set up the machine, build, train on the digits data set with 2 workers'
	@echo 'make test     set up the machine, build, run every test'
	@echo 'make build    set up the machine, build'
	@echo 'make check    format, order of rooms, words, length of lines, lint'
	@echo 'make bench    the benchmark suite, beside its peers'
	@echo 'make soak     200 random faults on processes, 2000 on a cluster of threads'
	@echo 'make install  build and install to PREFIX (now $(PREFIX))'
	@echo 'make wheel    make dist/trireme-*.whl for pip, for the LibTorch of the build'
	@echo 'make deb      make dist/trireme_*.deb for Debian'
	@echo 'make site     make build/site from the documents: searchable, with the API'
	@echo 'make format   format all sources'
	@echo 'make clean    remove the build folder'

# Builds only the programmes, because the tests take as long again to build.
run: configure
	cmake --build --preset release -j$(JOBS) --target trireme trireme-worker
	build/bin/trireme train examples/digits.yaml --workers 2

test: setup-test build
	ctest --test-dir build --output-on-failure --no-tests=error -j$(TEST_JOBS)

build: configure
	cmake --build --preset release -j$(JOBS)

configure: setup
	cmake --preset release -DTORCH_DIR='$(TORCH_DIR)'

check: setup-check build-lint/compile_commands.json
	scripts/check build-lint

# The linter needs the compile command of each source, which a build in batches does not have. It
# needs no compiled files.
build-lint/compile_commands.json: | setup
	cmake --preset lint -DTORCH_DIR='$(TORCH_DIR)'

bench: configure
	cmake --build --preset release -j$(JOBS) --target trireme trireme-worker trireme-bench \
	  bench_input_loops
	.venv/bin/python bench/run.py

soak: setup-test build
	TRIREME_SOAK=200 timeout 900 build/bin/test_membership --gtest_filter='ElasticCluster.*'
	TRIREME_SOAK=200 timeout 900 .venv/bin/python tests/system/test_soak.py
	TRIREME_SOAK=200 timeout 1800 .venv/bin/python tests/system/test_server_soak.py
	TRIREME_SOAK=60 timeout 1800 .venv/bin/python tests/system/test_server_cluster.py

install: build
	cmake --install build --prefix $(PREFIX)

# Everything that is installed; no tests.
programs: configure
	cmake --build --preset release -j$(JOBS) --target trireme trireme-worker trireme-bench trireme_c

wheel: setup-package programs
	.venv/bin/python scripts/make_wheel.py

deb: setup-package programs
	.venv/bin/python scripts/make_deb.py

# Opens from the disk: build/site/index.html.
site: setup-site
	.venv/bin/python docs/site/build.py build/site

format: setup-check
	git ls-files -z '*.h' '*.cc' | xargs -0 .venv/bin/clang-format -i

clean:
	rm -rf build build-lint dist

setup:
	@scripts/setup
setup-test:
	@scripts/setup test
setup-check:
	@scripts/setup check
setup-package:
	@scripts/setup package
setup-site:
	@scripts/setup site
