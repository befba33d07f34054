# Shared by the scripts that build third-party Go programs for tests: each at one pinned version, once. Sourced, never run.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The oldest Go that builds all of them, and which one is fetched instead of an older one.
oldest=1.26
toolchain=go1.26.8
export GOWORK=off GOFLAGS='' GOTOOLCHAIN=local CGO_ENABLED=0

# go_module NAME@VERSION: its directory in Go's cache, downloaded and checked against its checksum database where needed.
go_module() {
    local answer
    answer=$(cd / && "$go" mod download -json "$1") || die "downloading $1: $answer"
    sed -n 's/^\t"Dir": "\(.*\)",\?$/\1/p' <<<"$answer"
}

# Sets `go`: the installed one, or a newer one that is fetched as a module (as Go does by itself since 1.21).
find_go() {
    command -v go >/dev/null || need_packages golang-go >&2
    go=$(command -v go)
    local version; version=$("$go" env GOVERSION)
    if [ "$(printf '%s\n' "$oldest" "${version#go}" | sort -V | head -n 1)" = "$oldest" ]; then return; fi
    local machine
    case $(uname -m) in x86_64) machine=amd64 ;; aarch64) machine=arm64 ;; *) die "no newer Go than $version is known for $(uname -m): install $oldest or newer" ;; esac
    local copy=$TOOLS/$toolchain
    if [ ! -x "$copy/bin/go" ]; then
        say "$version is older than go$oldest: fetching $toolchain" >&2
        local cached; cached=$(go_module "golang.org/toolchain@v0.0.1-$toolchain.linux-$machine")
        [ -n "$cached" ] || die "fetching $toolchain"
        # Files of modules are not executable: a copy can be.
        rm -rf "$copy.new" && cp -r --no-preserve=mode "$cached" "$copy.new"
        chmod +x "$copy.new"/bin/* "$copy.new"/pkg/tool/*/*
        mv "$copy.new" "$copy"
    fi
    # It finds its own GOROOT; a GOROOT in the environment belongs to the older one.
    unset GOROOT
    go=$copy/bin/go
}

# The key of a finished program: when it differs from the recorded key, the program is built again.
identity() { # name source part tags
    if [ -e "$here/sources.sed" ] && [ "$2" != here ]; then sha256sum <"$here/sources.sed" | cut -c1-16 | tr '\n' ' '; fi
    if [ "$2" = here ]; then cat "$here/$1"/*.go "$here/$1"/go.* | sha256sum | cut -c1-16 | tr '\n' ' '; else printf '%s %s ' "$2" "$3${4:+ $4}"; fi
    "$go" env GOVERSION
}

# is_current NAME SOURCE PART TAGS: it exists, from this source and this compiler.
is_current() { [ -x "$TOOLS/bin/$1" ] && [ "$(cat "$TOOLS/stamps/$1" 2>/dev/null)" = "$(identity "$@")" ]; }

# In a copy of the module's own tree, so that its go.mod (with its replacements) and go.sum hold. `sources.sed` beside the table changes others' sources.
build() { # name source part tags
    local wanted stamp=$TOOLS/stamps/$1 tree=$scratch/$1
    if is_current "$@"; then return; fi
    wanted=$(identity "$@")
    say "building $1" >&2
    local source=$here/$1
    if [ "$2" != here ]; then source=$(go_module "$2"); fi
    [ -n "$source" ] || die "downloading $2"
    cp -r --no-preserve=mode "$source" "$tree"
    rm -rf "$tree/vendor" "$tree/go.work"
    if [ -e "$here/sources.sed" ] && [ "$2" != here ]; then find "$tree" -name '*.go' -exec sed -i -f "$here/sources.sed" {} +; fi
    (cd "$tree" && nice -n 10 "$go" build -mod=readonly -buildvcs=false -trimpath -tags="${4:-}" -ldflags='-s -w' -o "$scratch/$1.built" "$3") >&2 || die "building $1"
    # Replaced atomically: another run may be using it.
    install -m 755 "$scratch/$1.built" "$TOOLS/bin/.$1.new" && mv "$TOOLS/bin/.$1.new" "$TOOLS/bin/$1"
    printf '%s\n' "$wanted" >"$stamp"
}

# build_go_programs [NAME...]: those of $table (name, module and version or `here`, what of it, build tags), all of them where none is named; the folder of
# the programs is the last line of standard output. `here` is the directory of our own sources.
build_go_programs() {
    local name source part tags
    for name in "$@"; do grep -q "^$name " <<<"$table" || die "no program $name: $(awk 'NF { printf "%s ", $1 }' <<<"$table")"; done
    # A finished program need not wait for a process that builds another one.
    local missing=yes
    if go=$(command -v go); then
        missing=
        while read -r name source part tags; do
            case " ${*:-$name} " in *" $name "*) [ -z "$name" ] || is_current "$name" "$source" "$part" "$tags" || missing=yes ;; esac
        done <<<"$table"
    fi
    if [ -z "$missing" ]; then printf '%s\n' "$TOOLS/bin"; return; fi
    mkdir -p "$TOOLS/bin" "$TOOLS/stamps"
    exec 9>"$TOOLS/lock"; flock 9
    scratch=$(mktemp -d); trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
    find_go
    while read -r name source part tags; do
        [ -n "$name" ] || continue
        case " ${*:-$name} " in *" $name "*) build "$name" "$source" "$part" "$tags" ;; esac
    done <<<"$table"
    printf '%s\n' "$TOOLS/bin"
}
