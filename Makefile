# The everyday commands. Each one sets up what it needs; underneath are CMake presets, one folder of build/ each.

JOBS ?= $(shell nproc)
# Most tests wait most of the time.
TEST_JOBS ?= $(shell echo $$((2 * $(JOBS))))
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 30

sources = $(shell find include src cli server examples bench tests -name fixture -prune -o -name '*.[ch]pp' -print 2>/dev/null)

# TSan of gcc 12 cannot map its shadow where the kernel randomises addresses strongly, and some containers forbid
# to switch that off; so switch it off where it is allowed.
fixed_addresses = $(shell setarch --addr-no-randomize true 2>/dev/null && echo setarch --addr-no-randomize)

configure_and_build = cmake --preset $(1) && cmake --build --preset $(1) --parallel $(JOBS)

.DEFAULT_GOAL := quick
.NOTPARALLEL:
.PHONY: quick run build test check quick-check format format-check lint asan tsan fuzz bench flash-sale servers install package clean help

quick:  ## build and run the fast tests (plain `make`)
	@tools/setup build test
	@$(call configure_and_build,dev)
	@ctest --preset dev --parallel $(JOBS) --label-regex '^(unit|tidy)$$'

run:  ## build and run the example: many processes, one counter, no lost update
	@tools/setup run
	@$(call configure_and_build,run)
	@build/run/examples/counter_race

build:  ## build the library, the command, the examples and the benchmarks, in build/release
	@tools/setup build
	@$(call configure_and_build,release)

test:  ## build and run all tests
	@tools/setup build test
	@$(call configure_and_build,dev)
	@tools/run-tests --preset dev --parallel $(TEST_JOBS)

check: format-check lint asan tsan  ## format, warnings of clang, clang-tidy, include rule, sanitizers

# What fits into every run of CI: all of it is part of `make check`, on fewer rows and files.
QUICK_ROWS ?= memory|file|redis|zk|http
quick_suites = unit_tests engines_tests conformance_tests
quick-check: format-check  ## the part of check that takes about half an hour
	@tools/setup build test check
	@$(call configure_and_build,clang) --target $(quick_suites) holdfast_cli
	@tools/run-tests --preset clang-asan --parallel $(JOBS) --tests-regex '^unit|^engines\.(layouts|redis)|/($(QUICK_ROWS))$$'
	@tools/lint build/clang $(JOBS) HEAD~10
	@$(call configure_and_build,tsan-core)
	@$(fixed_addresses) tools/run-tests --preset tsan-core --parallel $(JOBS)

format:  ## format the sources in place
	@tools/setup check
	@clang-format -i $(sources)

format-check:
	@tools/setup check
	@clang-format --dry-run -Werror $(sources)

lint:
	@tools/setup build test check
	@$(call configure_and_build,clang) --target all all_verify_interface_header_sets
	@ctest --preset clang --label-regex '^tidy$$'
	@tools/lint build/clang $(JOBS)

asan:
	@tools/setup build test
	@$(call configure_and_build,asan)
	@ctest --preset asan --parallel $(JOBS)

tsan:
	@tools/setup build test
	@$(call configure_and_build,tsan)
	@$(fixed_addresses) ctest --preset tsan --parallel $(JOBS)

fuzz:  ## fuzz each decoder for FUZZ_SECONDS (30 unless given)
	@tools/setup build test fuzz
	@$(call configure_and_build,fuzz)
	@tools/fuzz build/fuzz $(FUZZ_SECONDS)

bench:  ## build and run the baseline benchmarks
	@tools/setup build bench
	@$(call configure_and_build,release)
	@build/release/bench/file_baseline
	@build/release/bench/redis_baseline
	@build/release/bench/redlock_baseline
	@build/release/bench/redis_ha_baseline
	@build/release/bench/mysql_baseline
	@test ! -x build/release/bench/etcd_baseline || build/release/bench/etcd_baseline
	@test ! -x build/release/bench/zk_baseline || build/release/bench/zk_baseline
	@PATH="$$PATH:$(CURDIR)/build/tools/consul" build/release/bench/consul_baseline
	@test ! -x build/release/bench/serve_baseline || build/release/bench/serve_baseline
	@echo 'For a store of your own: build/release/cli/holdfast bench --help'

flash-sale:  ## sell one stock under every scheme on every real server, and make a page of it
	@tools/setup build test
	@$(call configure_and_build,release) --target holdfast_cli
	@mkdir -p build/flash-sale
	@tools/servers -- sh -c 'build/release/cli/holdfast flash-sale --stores "$$HOLDFAST_SERVERS" \
	  --faults none,kill,pause --html build/flash-sale/index.html --json build/flash-sale/result.json'
	@echo 'The page: $(CURDIR)/build/flash-sale/index.html'

servers:  ## start lock servers to play with
	@tools/servers

install: build  ## install to PREFIX (/usr/local unless given)
	@cmake --install build/release --prefix $(PREFIX) --strip

package:  ## make Debian packages and a source tarball in build/packages
	@tools/setup build package
	@$(call configure_and_build,package)
	@tools/package build/package build/packages

clean:  ## remove everything that was built
	@rm -rf build

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'JOBS=N sets how many processes build and test (all cores unless given).'
