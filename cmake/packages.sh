# SPDX-License-Identifier: MIT
# Sourced by check.sh and capstone.sh. need_packages LIST... looks for each Debian package; what is
# missing it names and, on Debian and Ubuntu as root or with sudo, installs. HALFSTEP_OFFLINE=1
# never installs. Returns 1 if something is still missing.

have_package() {
  dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q '^install ok installed$'
}

# Without dpkg: whether the program or header that the package is needed for is there.
have_file_of() {
  case $1 in
    cmake | g++ | pkg-config) command -v "$1" ;;
    ninja-build) command -v ninja ;;
    clang) command -v clang++ ;;
    bible-kjv | bible-kjv-text) command -v bible ;;
    libeigen3-dev) have_header eigen3/Eigen/Core ;;
    libgtest-dev) have_header gtest/gtest.h ;;
    libgmock-dev) have_header gmock/gmock.h ;;
    libbenchmark-dev) have_header benchmark/benchmark.h ;;
    nlohmann-json3-dev) have_header nlohmann/json.hpp ;;
    libcli11-dev) have_header CLI/CLI.hpp ;;
    python3-venv) python3 -c 'import ensurepip' ;;
    *) false ;;
  esac >/dev/null 2>&1
}

have_header() {
  [ -f "/usr/include/$1" ] || [ -f "/usr/local/include/$1" ]
}

need_packages() {
  missing=
  for package in "$@"; do
    if command -v dpkg-query >/dev/null 2>&1; then
      have_package "$package" || missing="$missing $package"
    else
      have_file_of "$package" || missing="$missing $package"
    fi
  done
  [ -z "$missing" ] && return 0
  if [ "${HALFSTEP_OFFLINE:-0}" = 1 ]; then
    echo "missing, and not installed because HALFSTEP_OFFLINE=1:$missing"
    return 1
  fi
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "missing (named as Debian names them; this system has no apt-get, so please install them):$missing"
    return 1
  fi
  as_root=
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
      echo "missing, and neither root nor sudo to install it:$missing"
      echo "as root: apt-get install --no-install-recommends$missing"
      return 1
    fi
    as_root=sudo
  fi
  echo "installing with apt-get:$missing"
  # Lists that are there may be enough, and a mirror out of reach is then no reason to stop.
  # shellcheck disable=SC2086
  if ! install_now $missing; then
    $as_root apt-get update -qq || echo "apt-get update failed"
    # shellcheck disable=SC2086
    install_now $missing || {
      echo "apt-get could not install:$missing"
      return 1
    }
  fi
  echo "installed:$missing"
}

install_now() {
  log=$(mktemp)
  # A container has nobody to answer questions, and needs no recommended package.
  if $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "$@" >"$log" 2>&1; then
    rm -f "$log"
    return 0
  fi
  tail -n 5 "$log"
  rm -f "$log"
  return 1
}

# The sanitizers' run time is a package of its own since LLVM 14 on Debian, named after the version.
need_sanitizers() {
  probe=$(mktemp -d)
  echo 'int main() { return 0; }' >"$probe/probe.cpp"
  found=0
  clang++ -fsanitize=address,undefined "$probe/probe.cpp" -o "$probe/probe" 2>/dev/null || found=1
  rm -rf "$probe"
  [ $found = 0 ] && return 0
  version=$(clang++ -dumpversion | cut -d. -f1)
  need_packages "libclang-rt-$version-dev"
}

build_packages="cmake ninja-build g++ clang libeigen3-dev libgtest-dev libgmock-dev libbenchmark-dev nlohmann-json3-dev libcli11-dev pkg-config"
