#!/usr/bin/env bash
# Lets a stranger use Holdfast in one of the ways of docs/start/install.md.
#   check.sh WAY CMAKE CXX BUILD_DIR WORK_DIR      WAY: one of the functions that follow the helpers
set -euo pipefail
way=$1 cmake=$2 cxx=$3 build=$4 work=$5
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

fail() { printf '%s\n' "$*" >&2; exit 1; }
skip() { printf 'Skipped: %s\n' "$*"; exit 77; }

# Runs it, and shows what it said only when it fails.
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "This failed, its own words are above: $*"; }; }

install_build() { quietly env -u DESTDIR "$cmake" --install "$build" --prefix "$work/prefix" "$@"; }

configure() {  # configure SOURCE INTO OPTIONS...
  quietly "$cmake" -S "$1" -B "$2" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" "${@:3}"
}

build_and_run_consumer() {  # build_and_run_consumer PREFIX: by find_package
  configure "$here/consumer" "$work/out" -DCMAKE_PREFIX_PATH="$1"
  quietly "$cmake" --build "$work/out"
  run_consumer "$1"
}

# Only a shared build needs the path; it does no harm to a static one.
run_consumer() {  # run_consumer PREFIX
  LD_LIBRARY_PATH=$(dirname "$(find "$1" -name 'libholdfast.*' | head -n 1)") "$work/out/consumer"
}

find_package() {
  install_build
  build_and_run_consumer "$work/prefix"
}

pkg_config() {
  install_build
  PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name holdfast.pc)")
  export PKG_CONFIG_PATH
  mkdir "$work/out"
  # Unquoted: pkg-config prints several words. --static also asks for what the static library leaves open.
  # shellcheck disable=SC2046
  "$cxx" -std=c++20 "$here/consumer/main.cpp" -o "$work/out/consumer" $(pkg-config --static --cflags --libs holdfast)
  run_consumer "$work/prefix"
}

# As FETCHCONTENT_SOURCE_DIR_HOLDFAST the tree itself, so that what is not committed is tested, too.
fetch_content() {
  configure "$here/fetch" "$work/out" -DFETCHCONTENT_SOURCE_DIR_HOLDFAST="$root"
  "$cmake" --build "$work/out" --target help >"$work/targets"
  grep -q '^holdfast: ' "$work/targets" || fail "The library is no target of a project that fetches Holdfast."
  ! grep -E '^(holdfast_cli|unit_tests|six_lines|file_baseline): ' "$work/targets" ||
    fail "A project that fetches Holdfast builds more than the library."
}

# `make install` strips.
stripped_command() {
  install_build --strip
  [[ -x $work/prefix/bin/holdfast ]] || skip "this build has no command."
  "$work/prefix/bin/holdfast" --version
  [[ $(file "$work/prefix/bin/holdfast") == *', stripped'* ]] || fail "The installed command has debug symbols."
}

# An engine that is left out leaves nothing behind: neither does CMake look for its libraries, nor is anything linked
# with them, nor are they named to users.
switches() {
  expect_needed_by memory ''
  expect_needed_by redis 'openssl'
  expect_needed_by mysql 'mariadb'
  expect_needed_by etcd 'nghttp2 openssl protobuf'
  expect_needed_by zk 'openssl'
  expect_needed_by consul 'libcurl nghttp2'  # CMake's own module for libcurl names what that is linked with
  expect_needed_by http 'openssl'
}

expect_needed_by() {  # expect_needed_by ENGINE LIBRARIES
  local options=() engine out=$work/$1 needed
  for engine in redis mysql etcd zk consul http; do
    options+=("-DHOLDFAST_ENGINE_${engine^^}=$([[ $engine == "$1" ]] && echo ON || echo OFF)")
  done
  configure "$root" "$out" -DHOLDFAST_BUILD_TESTS=OFF -DHOLDFAST_BUILD_BENCH=OFF -DHOLDFAST_SERVE=OFF "${options[@]}"
  needed=$(cat "$out"/{CMakeCache.txt,build.ninja,cmake_install.cmake,holdfast.pc,holdfast-config.cmake} |
    { grep -oiE 'openssl|nghttp2|mariadb|protobuf|libcurl' || true; } | tr '[:upper:]' '[:lower:]' | sort -u | xargs)
  [[ $needed == "$2" ]] || fail "A build with the engine $1 needs \"$2\", but its files name \"$needed\"."
}

# What must not compile says why.
refusals() {
  expect_refused old_standard.cpp c++17 'needs C++20'
  if [[ $("$cxx" --version) == *'Free Software Foundation'* ]]; then
    expect_refused options_as_a_temporary.cpp c++20 NAME_THE_OPTIONS_FIRST
  fi
}

expect_refused() {  # expect_refused FILE STANDARD WORD
  ! "$cxx" "-std=$2" -fsyntax-only -I"$root/include" "$here/refused/$1" >"$work/log" 2>&1 || fail "$1 was not refused."
  grep -qF "$3" "$work/log" || { head -n 20 "$work/log" >&2; fail "The compiler refused $1 without the word $3."; }
}

# The packages of `make package`, made of this build, are installed into an empty folder, as dpkg does it: it knows the
# packages of this machine, so a dependency that is wrong or missing from the list is an error.
debian() {
  command -v dpkg-shlibdeps >/dev/null && command -v file >/dev/null || skip "dpkg-dev or file is not installed."
  [[ -f $build/CPackConfig.cmake ]] || skip "this build makes no packages."
  local packages=$work/packages clean=$work/root as_root=()
  quietly "$root/tools/package" "$build" "$packages" -D CPACK_DEBIAN_COMPRESSION_TYPE=none  # or it takes a minute
  ((EUID == 0)) || as_root=(fakeroot)

  mkdir -p "$clean"/var/lib/dpkg/{info,updates}
  cp /var/lib/dpkg/status "$clean/var/lib/dpkg/status"
  (cd "$clean/var/lib/dpkg/info" && dpkg-query --show --showformat '${binary:Package}.list\n' | xargs touch)
  quietly "${as_root[@]}" dpkg --root="$clean" --no-triggers --install "$packages"/*.deb

  check_command_package "$clean" "$packages"/holdfast_*.deb
  build_and_run_consumer "$clean/usr"
  [[ -n $(find "$clean/usr/lib/debug" -name '*.debug') ]] || fail "There is no package of debug symbols."
  [[ -s $clean/usr/share/doc/libholdfast-dev/copyright ]] || fail "libholdfast-dev has no copyright file."
  check_sources "$packages"
}

check_command_package() {  # check_command_package ROOT PACKAGE
  local usr=$1/usr depends
  "$usr/bin/holdfast" --version
  "$usr/bin/holdfast" --store "file:$work/store" run demo -- echo 'The installed command holds a lock.'
  [[ $(file "$usr/bin/holdfast") == *', stripped'* ]] || fail "The packed command has its debug symbols."
  gzip --test "$usr/share/man/man1/holdfast.1.gz"
  for file in doc/holdfast/copyright bash-completion/completions/holdfast.bash zsh/vendor-completions/_holdfast \
    fish/vendor_completions.d/holdfast.fish; do
    [[ -s $usr/share/$file ]] || fail "The package holdfast has no /usr/share/$file."
  done
  depends=$(dpkg-deb --field "$2" Depends)
  [[ $depends == *libc6* && $depends == *libfmt* ]] || fail "The package holdfast depends on \"$depends\" only."
}

# The tarball is what is committed, so there is one only in a clone.
check_sources() {  # check_sources PACKAGES
  local tarball=("$1"/holdfast-*.tar.gz)
  [[ -f ${tarball[0]} ]] || return 0
  mkdir "$work/sources"
  tar --extract --file "${tarball[0]}" --directory "$work/sources" --strip-components=1
  [[ ! -e $work/sources/.git && -x $work/sources/tools/setup ]] || fail "The source tarball is not what it should be."
  configure "$work/sources" "$work/sources/build" -DHOLDFAST_BUILD_TESTS=OFF
}

rm -rf "$work"
mkdir -p "$work"
"$way"
