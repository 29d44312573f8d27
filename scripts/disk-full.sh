#!/usr/bin/env bash
# Makes the disk under a store fail and recover, while rows are written and read, and compares.
#
#   scripts/disk-full.sh
#
# Six runs: a disk that becomes full (a tmpfs of 64 MiB), a limit of the size of files (RLIMIT_FSIZE), and a sync
# of the journal that fails (scripts/failing-sync.c, where there is a C compiler), each under a table server and
# under the embedded library. Every acknowledged row must be there, reads must go on all the while, and writes
# must resume without a restart. Prints for each run how many rows were acknowledged and lost, the reads while
# writes were refused, and how it recovered; ends with 1 if one of them is wrong, and with 77 where no tmpfs may
# be mounted. A server that can sync nothing must end with exit status 7.
set -euo pipefail
cd "$(dirname "$0")/.."

percolator=$(scripts/programs.sh)/percolator
driver=("${percolator}-torture" disk-full)
work=$(mktemp -d)
finish() {
    # shellcheck disable=SC2046
    kill $(jobs -p) 2>/dev/null || true
    wait 2>/dev/null || true
    umount --lazy "$work/small" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/small"
if ! mount -t tmpfs -o size=64m tmpfs "$work/small" 2>/dev/null; then
    echo "SKIPPED: a full disk, because this user may not mount a tmpfs" >&2
    exit 77
fi
failed=0

# Starts a table server on a directory: `serve DIR LOG` sets `server` and `store`. Its syncs may fail.
serve() {
    rm -f "$work/address"
    env ${LD_PRELOAD_SYNC:+"LD_PRELOAD=$LD_PRELOAD_SYNC"} \
        "$percolator" serve table --listen 127.0.0.1:0 --data "$1" >"$work/address" 2>"$2" &
    server=$!
    until [ -s "$work/address" ]; do
        kill -0 "$server" || { cat "$2" >&2; exit 1; }
        sleep 0.05
    done
    store=bigtable://$(head -n 1 "$work/address")/project/instance
}

# Runs the driver and says how the store recovered: `run NAME LOG STORE BREAK HEAL`.
run() {
    local name=$1 log=$2
    shift 2
    echo "$name"
    if ! env ${LD_PRELOAD_DRIVER:+"LD_PRELOAD=$LD_PRELOAD_DRIVER"} "${driver[@]}" "$@" 2>>"$log" | sed 's/^/  /'; then
        failed=1
        echo "  FAILED:"
        tail -n 20 "$log"
    fi
    events=$(sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -oE 'event="[a-z_]+"' | uniq -c | tr -s '\n ' ' ' || true)
    echo "  said by the store:${events:- nothing}"
}

ballast="head -c 28M /dev/zero >$work/small/ballast"
sh -c "$ballast"
serve "$work/small/served" "$work/log-1"
run "a full disk under a table server" "$work/log-1" "$store" true "rm $work/small/ballast"
kill -0 "$server" || { echo "  FAILED: the server has ended"; failed=1; }
kill "$server"; wait "$server" || true
rm -rf "${work:?}/small/served"

sh -c "$ballast"
run "a full disk under the library" "$work/log-2" "$work/small/own" true "rm $work/small/ballast"

serve "$work/served" "$work/log-3"
limit() { echo "prlimit --pid $1 --fsize=$2:"; }
run "a limit of the size of files under a table server" "$work/log-3" "$store" \
    "$(limit "$server" 25000000)" "$(limit "$server" unlimited)"
kill -0 "$server" || { echo "  FAILED: the server has ended"; failed=1; }
kill "$server"; wait "$server" || true

(
    trap '' XFSZ
    run "a limit of the size of files under the library" "$work/log-4" "$work/own" \
        "$(limit '$DISK_FULL_PID' 25000000)" "$(limit '$DISK_FULL_PID' unlimited)"
    exit "$failed"
) || failed=1

export FAILING_SYNC=$work/sync
mkdir "$FAILING_SYNC"
shim=$FAILING_SYNC/failing-sync.so
if ! command -v cc >/dev/null; then
    echo "SKIPPED: syncs that fail, because there is no C compiler (cc)" >&2
    exit "$failed"
fi
cc -shared -fPIC -o "$shim" scripts/failing-sync.c -ldl
fail_next="echo once .jnl >$FAILING_SYNC/fail"

LD_PRELOAD_SYNC=$shim serve "$work/syncing" "$work/log-5"
run "a sync that fails under a table server" "$work/log-5" "$store" "$fail_next" true
kill -0 "$server" || { echo "  FAILED: the server has ended"; failed=1; }
echo "always /engine/" >"$FAILING_SYNC/fail"
# The driver creates its table first, and that fails.
"${driver[@]}" "$store" true true >>"$work/log-5" 2>&1 && failed=1
status=0
wait "$server" || status=$?
echo "  with no sync that succeeds the server ended with $status"
[ "$status" = 7 ] || failed=1
rm "$FAILING_SYNC/fail"

LD_PRELOAD_DRIVER=$shim run "a sync that fails under the library" "$work/log-6" "$work/syncing-own" \
    "$fail_next" true
exit "$failed"
