#!/usr/bin/env bash
# Runs a command with Google's Bigtable emulator at BIGTABLE_EMULATOR_HOST, and stops it afterwards:
#   scripts/emulator.sh cargo run -p percolator-bench -- micro rpc
# The emulator is the program that CBTEMULATOR names, or cbtemulator on PATH or in the Cloud SDK's folder
# (package google-cloud-cli-bigtable-emulator). CBTEMULATOR=debian builds scripts/emulator/main.go with Debian's
# packages golang-go and golang-google-cloud-dev: the same server as of 2020, whose cells end in the year 9999,
# so that the conformance suite fails on it. Ends with 77 if there is none. Tests start it by themselves.
set -euo pipefail

if [ $# -eq 0 ]; then
    sed -n '2,7s/^# //p' "$0" >&2
    exit 2
fi

root=$(cd "$(dirname "$0")/.." && pwd)
gocode=/usr/share/gocode

# Builds the Go program unless it was built since it was last changed, and prints its path.
build() {
    command -v go >/dev/null && [ -d "$gocode/src/cloud.google.com/go/bigtable/bttest" ] || return 0
    local source=$root/scripts/emulator/main.go
    local dir=${CARGO_TARGET_DIR:-$root/target}/emulator
    if ! [ "$dir/bttest" -nt "$source" ]; then
        mkdir -p "$dir"
        # Several may build at the same time: each its own file, the last one stays.
        GO111MODULE=off GOPATH=$gocode GOFLAGS='' GOCACHE=$dir/cache \
            go build -o "$dir/bttest.$$" "$source" >&2
        mv "$dir/bttest.$$" "$dir/bttest"
    fi
    echo "$dir/bttest"
}

emulator=${CBTEMULATOR:-$(command -v cbtemulator || true)}
emulator=${emulator:-${CLOUDSDK_ROOT_DIR:-/usr/lib/google-cloud-sdk}/platform/bigtable-emulator/cbtemulator}
[ "$emulator" != debian ] || emulator=$(build)
if ! [ -x "$emulator" ]; then
    echo "SKIPPED: no emulator of Bigtable (package google-cloud-cli-bigtable-emulator)" >&2
    exit 77
fi

output=$(mktemp)
"$emulator" -host 127.0.0.1 -port 0 >"$output" 2>&1 &
pid=$!
trap 'kill "$pid" 2>/dev/null || true; rm -f "$output"' EXIT

# It prints the address when it listens.
address=
for _ in $(seq 100); do
    address=$(sed -n 's/.*running on \(127\.0\.0\.1:[0-9]*\).*/\1/p' "$output")
    [ -n "$address" ] && break
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
done
if [ -z "$address" ]; then
    echo "the emulator $emulator did not say where it listens:" >&2
    cat "$output" >&2
    exit 1
fi

BIGTABLE_EMULATOR_HOST=$address "$@"
