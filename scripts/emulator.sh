#!/usr/bin/env bash
# Runs a command with Google's Bigtable emulator at BIGTABLE_EMULATOR_HOST, and stops it afterwards:
#   scripts/emulator.sh cargo test -p bigtable-grpc googles_emulator
# The emulator is the program cbtemulator (package google-cloud-cli-bigtable-emulator). CBTEMULATOR names it if it is
# neither on PATH nor in the Cloud SDK's folder. Ends with 77 if there is none.
set -euo pipefail

if [ $# -eq 0 ]; then
    sed -n '2,5s/^# //p' "$0" >&2
    exit 2
fi

sdk=${CLOUDSDK_ROOT_DIR:-/usr/lib/google-cloud-sdk}
emulator=${CBTEMULATOR:-$(command -v cbtemulator || true)}
emulator=${emulator:-$sdk/platform/bigtable-emulator/cbtemulator}
if ! [ -x "$emulator" ]; then
    echo "SKIPPED: cbtemulator is not installed (package google-cloud-cli-bigtable-emulator)" >&2
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
    echo "the emulator did not say where it listens:" >&2
    cat "$output" >&2
    exit 1
fi

BIGTABLE_EMULATOR_HOST=$address "$@"
