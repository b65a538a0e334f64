#!/usr/bin/env bash
# Installs a build into a throw-away prefix and lets a stranger use it, by find_package or by pkg-config.
#   check.sh find_package|pkg_config CMAKE CXX BUILD_DIR WORK_DIR
set -euo pipefail
way=$1 cmake=$2 cxx=$3 build=$4 work=$5
consumer=$(dirname "$0")/consumer

rm -rf "$work"
mkdir -p "$work"
env -u DESTDIR "$cmake" --install "$build" --prefix "$work/prefix"

case $way in
  find_package)
    "$cmake" -S "$consumer" -B "$work/out" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$work/prefix"
    "$cmake" --build "$work/out"
    ;;
  pkg_config)
    PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name holdfast.pc)")
    export PKG_CONFIG_PATH
    mkdir "$work/out"
    # Unquoted: pkg-config prints several words. --static also asks for what the static library leaves open.
    # shellcheck disable=SC2046
    "$cxx" -std=c++20 "$consumer/main.cpp" -o "$work/out/consumer" $(pkg-config --static --cflags --libs holdfast)
    ;;
esac

if [[ -x $work/prefix/bin/holdfast ]]; then
  "$work/prefix/bin/holdfast" --version
fi
# Only a shared build needs the path; it does no harm to a static one.
LD_LIBRARY_PATH=$(dirname "$(find "$work/prefix" -name 'libholdfast.*' | head -n 1)") "$work/out/consumer"
