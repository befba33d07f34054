# Shared by the scripts in this directory: paths, and installation of missing packages (named first). Sourced, never run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
TOOLS=${DISKVITALS_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/diskvitals-tools}
PATH="$HOME/.cargo/bin:$TOOLS/bin:$PATH:/usr/sbin:/sbin"

# What is installed, in scripts/install, scripts/package and scripts/release; `folder_of` is the place below the prefix.
PROGRAMS=(diskvitalsd diskvitals diskvitals-csi diskvitals-notify)
# What the image has: also the controller, which runs once in a cluster and on no node of its own.
IMAGE_PROGRAMS=("${PROGRAMS[@]}" diskvitals-fleet)
folder_of() { case $1 in diskvitalsd|diskvitals-notify) echo sbin ;; *) echo bin ;; esac; }
# What scripts/release also builds static, with musl, for any Linux.
STATIC_PROGRAMS=(diskvitals diskvitals-csi kubectl-diskvitals)
# A program's package, in src/.
package_of() {
    case $1 in
        diskvitals) echo diskvitals-cli ;;
        diskvitalsd) echo diskvitals-daemon ;;
        diskvitals-notify) echo diskvitals-notifier ;;
        kubectl-diskvitals) echo diskvitals-plugin ;;
        *) echo "$1" ;;
    esac
}
# build_programs PROGRAM... [-- ARGUMENT...]: cargo build, a call for each: one call for several would give each what another one needs of a crate.
build_programs() {
    local programs=() program
    while [ $# -gt 0 ]; do
        if [ "$1" = -- ]; then shift; break; fi
        programs+=("$1"); shift
    done
    for program in "${programs[@]}"; do cargo build --locked --package "$(package_of "$program")" --bins "$@" || return; done
}
# As the tests want them: in target/debug, all in one call and with the tests' features, so that nothing is built twice.
build_test_programs() { need_build_packages; cargo build --quiet --locked --workspace --features diskvitals/hwtests --bins --example budgets; }

version_of_cargo() { sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1; }

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
is_root() { [ "$(id -u)" = 0 ]; }

# need_packages PACKAGE...: installs the Debian packages that are missing, by name; without root it lists them and fails if any is missing.
need_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing Debian packages: ${missing[*]}"
    is_root || die "as root: apt-get install ${missing[*]}"
    apt-get update -qq || say "apt-get update had errors; going on with the lists that are there"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || die "apt-get install ${missing[*]}"
}

# need_smartctl: drives are queried with it; without root its absence is reported, and everything else works.
need_smartctl() {
    command -v smartctl >/dev/null && return 0
    if is_root && command -v apt-get >/dev/null; then need_packages smartmontools
    else say "smartctl is missing: drives are not asked for their SMART data until smartmontools is installed"; fi
}

# need_checkers: the programs that check filesystems; without root missing ones are reported, and everything else works.
need_checkers() {
    local program missing=()
    for program in e2fsck:e2fsprogs xfs_repair:xfsprogs btrfs:btrfs-progs; do
        command -v "${program%:*}" >/dev/null || missing+=("${program#*:}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if is_root && command -v apt-get >/dev/null; then need_packages "${missing[@]}"
    else say "filesystems are not checked until these are installed: ${missing[*]}"; fi
}

need_build_packages() { need_packages gcc libc6-dev pkg-config libudev-dev; command -v cargo >/dev/null || die "cargo is missing: install Rust (rustup), then run this again"; }

# need_cargo_tool CRATE VERSION: builds it once.
need_cargo_tool() {
    cargo "${1#cargo-}" --version 2>/dev/null | grep -qF "$2" && return 0
    say "installing the cargo tool $1 $2 (a few minutes, once)"
    cargo install --quiet --locked "$1" --version "$2"
}

# need_nightly TOOLCHAIN: prints the name of a nightly compiler: the pinned one, an installed one, or the pinned one after installing it.
need_nightly() {
    local have; have=$(rustup toolchain list)
    if grep -q "^$1" <<<"$have"; then echo "$1"; return; fi
    if grep -q '^nightly-[a-z]' <<<"$have"; then say "using the nightly compiler that is there instead of $1" >&2; echo nightly; return; fi
    say "installing the compiler $1" >&2
    rustup toolchain install --profile minimal "$1" >&2 || die "rustup toolchain install $1"
    echo "$1"
}
