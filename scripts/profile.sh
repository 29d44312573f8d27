#!/usr/bin/env bash
# What an operation on one cell costs, as no machine changes it: instructions, by callgrind, and system calls that
# write, sync or wake, by strace. Each kind is done N times and 2 N times; the difference is what N operations take.
#
#   scripts/profile.sh [N]
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in valgrind strace; do
    command -v "$tool" >/dev/null || { echo "$tool is missing: install the package $tool" >&2; exit 77; }
done
n=${1:-2000}
cargo build --quiet --release --locked -p percolator-cli --example operations
program=${CARGO_TARGET_DIR:-target}/release/examples/operations
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$@" 2>"$work/said" ||
        { cat "$work/said" >&2; exit 1; }
    sed -n 's/.*Collected : //p' "$work/said"
}
calls() {
    strace -f -c -o "$work/calls" "$program" "$@"
    awk '$NF ~ /write|sync|futex/ { sum += $4 } END { print sum + 0 }' "$work/calls"
}

printf '%-14s %14s %14s\n' operation instructions 'system calls'
for kind in fjall-get raw-get get fjall-insert fjall-packs raw-set-blind raw-set tx two-mutations two-phases; do
    few=$(instructions "$kind" "$n") many=$(instructions "$kind" $((2 * n)))
    few_calls=$(calls "$kind" "$n") many_calls=$(calls "$kind" $((2 * n)))
    awk -v kind="$kind" -v n="$n" -v i=$((many - few)) -v c=$((many_calls - few_calls)) \
        'BEGIN { printf "%-14s %14.0f %14.2f\n", kind, i / n, c / n }'
done
