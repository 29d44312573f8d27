#!/usr/bin/env bash
# Measures what a database costs while nobody uses it: processor time, wake-ups, syncs, bytes written.
#
#   scripts/idle.sh [--pages N] [--loads N] [--workers N] [--after MINUTES,...] [--seconds N] [--embedded] \
#                   [--console]
#
# Starts `cluster up`, loads so many pages of a generated site (none without --pages) as often as --loads says, each
# time a site of its own, and waits until no change waits. Then, after so many minutes each, it measures all processes
# for --seconds (60): processor time and bytes written from /proc, syncs with `strace -c` where strace is installed.
# With --embedded one process holds the database and its observers instead. With --console a console shows the cluster,
# as one more process; with --embedded and --console a console holds a database, without observers. PERCOLATOR and HOLD
# name other binaries, KEEP a directory that is kept. Ends with 1 if a bar is missed: 1 CPU-second and 1 MB a minute and
# 3 syncs a second for all processes of a cluster, 0.1 CPU-seconds a minute for an embedded database; and for loads of
# 20,000 pages 200 CPU-seconds for the first and 1.2 times the first for each other one.
set -euo pipefail
cd "$(dirname "$0")/.."

pages=0 loads=1 workers=3 after=1 seconds=60 embedded= console=
while [ $# -gt 0 ]; do
    case $1 in
        --pages) pages=$2; shift ;;
        --loads) loads=$2; shift ;;
        --workers) workers=$2; shift ;;
        --after) after=$2; shift ;;
        --seconds) seconds=$2; shift ;;
        --embedded) embedded=1 ;;
        --console) console=1 ;;
        *) sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift
done

# The most that is allowed.
cpu_max=1.0 syncs_max=3.0 bytes_max=1000000 load_cpu_max=200 again_max=1.2
if [ -n "$embedded" ]; then cpu_max=0.1; fi
# So many pages are loaded when a load is held to its bar.
held_pages=20000
# Larger than what is loaded of it, so that no redirect is among the first pages.
site_pages=$((pages * 25 / 2))
strace_seconds=20

if [ -z "${PERCOLATOR:-}" ]; then
    cargo build --quiet --release --locked -p percolator-cli
    PERCOLATOR=${CARGO_TARGET_DIR:-target}/release/percolator
fi
if [ -n "$embedded" ] && [ -z "$console" ] && [ -z "${HOLD:-}" ]; then
    cargo build --quiet --release --locked -p webindex --example hold
    HOLD=${CARGO_TARGET_DIR:-target}/release/examples/hold
fi
work=${KEEP:-$(mktemp -d)}
mkdir -p "$work"
cluster=$work/cluster
holder=
shown=
finish() {
    # The end of its input ends the process that holds an embedded database.
    exec 9>&-
    if [ -n "$shown" ]; then kill "$shown" 2>/dev/null || true; fi
    "$PERCOLATOR" cluster down --data "$cluster" --quiet 2>/dev/null || true
    wait 2>/dev/null || true
    if [ -z "${KEEP:-}" ]; then rm -rf "$work"; fi
}
trap finish EXIT

# name and process number of each process, a line each
processes() {
    if [ -n "$embedded" ]; then
        echo "embedded $holder"
    else
        for file in "$cluster"/run/*; do echo "$(basename "$file") $(cat "$file")"; done
        if [ -n "$shown" ]; then echo "console $shown"; fi
    fi
}
ticks_of() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'; }
written_by() { awk '/^write_bytes/ { print $2 }' "/proc/$1/io"; }
wakeups_of() { cat "/proc/$1"/task/*/status 2>/dev/null | awk '/^voluntary/ { n += $2 } END { print n + 0 }'; }
counts() { while read -r name pid; do echo "$name $(ticks_of "$pid") $(written_by "$pid") $(wakeups_of "$pid")"; done < <(processes); }

missed=0
# what, what it is, the most that it may be
bar() {
    if awk -v is="$2" -v most="$3" 'BEGIN { exit !(is > most) }'; then
        echo "MISSED: $1: $2, at most $3" >&2
        missed=1
    fi
}

# Syncs per second of all processes, or "-" where they cannot be counted.
syncs() {
    if ! command -v strace >/dev/null; then echo "-"; return; fi
    local tracers=() out
    while read -r name pid; do
        strace -f -c -q -e trace=fdatasync,fsync -o "$work/strace.$name" -p "$pid" &
        tracers+=($!)
    done < <(processes)
    sleep "$strace_seconds"
    kill -INT "${tracers[@]}"
    wait "${tracers[@]}" 2>/dev/null || true
    out=$(awk '$NF == "fdatasync" || $NF == "fsync" { n += $4 } END { print n + 0 }' "$work"/strace.*)
    rm -f "$work"/strace.*
    awk -v n="$out" -v s="$strace_seconds" 'BEGIN { printf "%.2f", n / s }'
}

# Measures, prints a table and compares it with the bars. The argument says when.
measure() {
    counts >"$work/before"
    sleep "$seconds"
    counts >"$work/after"
    per_second=$(syncs)
    hz=$(getconf CLK_TCK)
    printf '\n%s: idle for %s s\n%-10s %12s %12s %14s\n' "$1" "$seconds" process "CPU s/min" "wakeups/s" "bytes/min"
    paste -d' ' "$work/before" "$work/after" | awk -v s="$seconds" -v hz="$hz" '
        { cpu = ($6 - $2) / hz * 60 / s; bytes = ($7 - $3) * 60 / s; wake = ($8 - $4) / s
          printf "%-10s %12.3f %12.1f %14d\n", $1, cpu, wake, bytes
          all += cpu; written += bytes; woken += wake }
        END { printf "%-10s %12.3f %12.1f %14d\n", "all", all, woken, written }' | tee "$work/table"
    echo "syncs per second: $per_second"
    if [ -n "$embedded" ]; then journals=$work/db; else journals=$cluster/table; fi
    du -cb "$journals"/engine/*.jnl | awk '/total$/ { print "journals: " $1 " bytes" }'
    read -r _ cpu _ bytes < <(tail -n 1 "$work/table")
    bar "$1: CPU seconds a minute" "$cpu" "$cpu_max"
    if [ -z "$embedded" ]; then
        bar "$1: bytes a minute" "$bytes" "$bytes_max"
        if [ "$per_second" != "-" ]; then bar "$1: syncs a second" "$per_second" "$syncs_max"; fi
    fi
}

# Loads one site, and prints the processor time that each process took for it.
load() {
    local site=$work/site-$1 begun ended
    "$PERCOLATOR" webindex generate "$site" --pages "$site_pages" --seed "$1" --quiet
    if [ -n "$embedded" ]; then
        "$PERCOLATOR" webindex load "$site" --base "https://site-$1.example/" --limit "$pages" --data "$work/db" --quiet
        return
    fi
    counts >"$work/before"
    begun=$(date +%s%N)
    TIMEFORMAT='%U %S'
    { time "$PERCOLATOR" webindex load "$site" --base "https://site-$1.example/" --limit "$pages" \
        --config "$cluster/percolator.toml" --quiet 2>"$work/load.err" >"$work/load.out"; } 2>"$work/time" ||
        { cat "$work/load.err" >&2; exit 1; }
    ended=$(date +%s%N)
    counts >"$work/after"
    printf '\nload %s of %s pages: %s s\n' "$1" "$pages" "$(((ended - begun) / 1000000000))"
    paste -d' ' "$work/before" "$work/after" | awk -v hz="$(getconf CLK_TCK)" -v own="$(tail -n 1 "$work/time")" '
        BEGIN { split(own, t, " "); all = t[1] + t[2]; printf "%-10s %12.1f CPU s\n", "load", all }
        { cpu = ($6 - $2) / hz; all += cpu; printf "%-10s %12.1f CPU s\n", $1, cpu }
        END { printf "%-10s %12.1f CPU s\n", "all", all }' | tee "$work/table"
    cost=$(awk '/^all/ { print $2 }' "$work/table")
    if [ "$1" = 1 ]; then
        first=$cost
        if [ "$pages" -ge "$held_pages" ]; then bar "load 1: CPU seconds" "$cost" "$load_cpu_max"; fi
    else
        bar "load $1: CPU seconds over those of the first" "$(awk -v a="$cost" -v b="$first" 'BEGIN { print a / b }')" "$again_max"
    fi
}

# Starts a console in the background, and waits until it listens.
show() {
    "$PERCOLATOR" console "$@" --listen 127.0.0.1:0 2>"$work/console.err" >&2 &
    shown=$!
    until grep -q 'http://' "$work/console.err"; do
        if ! kill -0 "$shown" 2>/dev/null; then cat "$work/console.err" >&2; exit 1; fi
        sleep 0.1
    done
}

if [ -z "$embedded" ]; then
    "$PERCOLATOR" cluster up --workers "$workers" --data "$cluster" --quiet >/dev/null
fi
if [ "$pages" -gt 0 ]; then
    for n in $(seq "$loads"); do load "$n"; done
fi
if [ -n "$console" ] && [ -z "$embedded" ]; then
    show --config "$cluster/percolator.toml"
elif [ -n "$console" ]; then
    # The console opens an existing database alone.
    "$PERCOLATOR" set row column value --data "$work/db" --quiet
    show --data "$work/db"
    holder=$shown
elif [ -n "$embedded" ]; then
    mkfifo "$work/input"
    "$HOLD" "$work/db" <"$work/input" >"$work/hold.out" &
    holder=$!
    exec 9>"$work/input"
    until grep -q ready "$work/hold.out"; do sleep 0.1; done
fi
waited=0
for minutes in ${after//,/ }; do
    sleep $((minutes * 60 > waited ? minutes * 60 - waited : 0))
    measure "after $minutes min"
    waited=$((minutes * 60 + seconds + strace_seconds))
done
exit "$missed"
