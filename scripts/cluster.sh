#!/usr/bin/env bash
# Loads a web index with a cluster of local processes, kills some of them with SIGKILL meanwhile, and verifies.
#
#   scripts/cluster.sh [--pages N] [--seed N] [--emulator | --hbase] [--etcd]
#
# A table server, two oracles and three workers; during the load a worker, the oracle that leads and the table
# server are killed and started again. `webindex verify` must find no difference, before and after a recrawl, and
# an oracle must answer within three seconds of its leader's death. With --emulator the store is Google's
# emulator, which keeps nothing and so is not killed. With --hbase it is a cluster of HBase, of which region servers are
# killed and started again, also the one with hbase:meta, while regions are split, merged and moved. With --etcd the
# lock service is etcd. Ends with 77 if one of them is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."

pages=600 seed=1 emulator= hbase= etcd=
while [ $# -gt 0 ]; do
    case $1 in
        --pages) pages=$2; shift ;;
        --seed) seed=$2; shift ;;
        --emulator) emulator=1 ;;
        --hbase) hbase=1 ;;
        --etcd) etcd=1 ;;
        *) sed -n '2,4s/^# //p' "$0" >&2; exit 2 ;;
    esac
    shift
done
if [ -n "$emulator" ] && [ -z "${BIGTABLE_EMULATOR_HOST:-}" ]; then
    exec scripts/emulator.sh "$0" --emulator ${etcd:+--etcd} --pages "$pages" --seed "$seed"
fi
if [ -n "$hbase" ] && [ -z "${PERCOLATOR_HBASE:-}" ]; then
    # A dead server is missed soon, and is back a little later.
    export HBASE_SESSION_MS=6000 HBASE_RESTART_S=10
    exec scripts/hbase.sh "$0" --hbase ${etcd:+--etcd} --pages "$pages" --seed "$seed"
fi
if [ -n "$etcd" ] && ! command -v etcd >/dev/null; then
    echo "SKIPPED: etcd is not installed (Debian: etcd-server)" >&2
    exit 77
fi
RANDOM=$seed

percolator=$(scripts/programs.sh)/percolator
work=$(mktemp -d)
cluster=$work/cluster
finish() {
    "$percolator" cluster down --data "$cluster" --quiet 2>/dev/null || true
    # shellcheck disable=SC2046
    kill $(jobs -p) 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

fail() {
    echo "error: $1" >&2
    for log in "$work/load" "$work/refused" "$cluster"/log/*; do
        [ -e "$log" ] || continue
        echo "--- $(basename "$log")" >&2
        tail -n 15 "$log" >&2
    done
    exit 1
}

flags=(--workers 3 --data "$cluster" --quiet)
if [ -n "$emulator" ]; then flags+=(--store bigtable://percolator/cluster); fi
if [ -n "$hbase" ]; then flags+=(--store "$PERCOLATOR_HBASE"); fi
if [ -n "$etcd" ]; then
    client=$((20000 + RANDOM % 10000))
    etcd --data-dir "$work/etcd" --listen-client-urls "http://127.0.0.1:$client" \
        --advertise-client-urls "http://127.0.0.1:$client" \
        --listen-peer-urls "http://127.0.0.1:$((client + 1))" >"$work/etcd.log" 2>&1 &
    for _ in $(seq 300); do
        (exec 3<>"/dev/tcp/127.0.0.1/$client") 2>/dev/null && break
        sleep 0.1
    done
    flags+=(--locks "etcd://127.0.0.1:$client/cluster")
fi

up() { "$percolator" cluster up "${flags[@]}" >/dev/null || fail "the cluster did not come up"; }
# Kills a process of the cluster, which must be running, while the load runs.
strike() {
    kill -0 "$load" 2>/dev/null || fail "the load ended before $1 was killed: give --pages more"
    local struck
    struck=$("${percolator}-torture" strike --process "$cluster/run/$1")
    [ "$struck" = killed ] || fail "$1 did not run any more"
    echo "killed $1"
}
leader() { { "$percolator" cluster status --data "$cluster" --quiet || true; } | sed -n 's/^ *\(oracle-[0-9]*\).*leads.*/\1/p'; }
a_while() { sleep "$((1 + RANDOM % 2)).$((RANDOM % 10))"; }
verify() {
    "$percolator" webindex verify --config "$cluster/percolator.toml" --quiet || fail "the verification found a difference"
}

"$percolator" webindex generate "$work/site" --pages "$pages" --seed 7 --quiet
up
# Without a kill the load takes so many seconds.
seconds=15
[ -z "$hbase" ] || seconds=120
"$percolator" webindex load "$work/site" --base https://example.org/ --rate $((pages / seconds + 1)) \
    --config "$cluster/percolator.toml" --quiet >"$work/load" 2>&1 &
load=$!
if [ -n "$hbase" ]; then
    "$percolator-torture" hbase status "$PERCOLATOR_HBASE"
    "$percolator-torture" hbase reshape "$PERCOLATOR_HBASE" --seed "$seed" >"$work/reshaped" 2>"$work/refused" &
    reshaping=$!
fi

a_while
strike worker-$((1 + RANDOM % 3))
a_while
up

oracle=$(leader)
[ -n "$oracle" ] || fail "no oracle leads"
strike "$oracle"
begun=$(date +%s%N)
PERCOLATOR_ORACLES=$(sed -n 's/^oracles = \[\(.*\)\]/\1/p' "$cluster/percolator.toml" | tr -d '" ') \
    "$percolator" oracle status --timeout 10 --quiet >/dev/null || fail "no oracle answers after $oracle was killed"
took=$((($(date +%s%N) - begun) / 1000000))
echo "the other oracle answers after $took ms"
[ "$took" -lt 3000 ] || fail "fail-over of the oracle took $took ms, and may take 3,000"
up

if [ -n "$hbase" ]; then
    for server in any meta any; do
        a_while
        kill -0 "$load" 2>/dev/null || fail "the load ended before a region server was killed: give --pages more"
        "$percolator-torture" hbase kill "$PERCOLATOR_HBASE" --server $server --seed $RANDOM ||
            fail "a region server could not be killed"
        # Most of the cluster's answers wait until its regions are on other servers.
        sleep 20
    done
elif [ -z "$emulator" ]; then
    a_while
    strike table
    a_while
    up
fi

wait "$load" || { cat "$work/load" >&2; fail "the load failed"; }
cat "$work/load"
verify
if [ -n "$hbase" ]; then
    kill "$reshaping" 2>/dev/null || fail "the change of regions ended: $(cat "$work/refused")"
    for change in split merged moved; do
        # Two neighbours may be merged only after both have been compacted, so there may be no merge.
        count=$(grep -c ": $change " "$work/reshaped") || [ "$change" = merged ] || fail "no region was $change"
        echo "$count times regions were $change"
    done
fi
"$percolator" webindex recrawl --pct 10 --seed "$seed" --config "$cluster/percolator.toml" --quiet
panics=$(grep -l "panicked" "$cluster"/log/* 2>/dev/null || true)
[ -z "$panics" ] || fail "a process panicked: $panics"
verify
"$percolator" cluster down --data "$cluster" --quiet
state=$("$percolator" cluster status --data "$cluster" --quiet 2>/dev/null || true)
if grep -q ' runs' <<<"$state"; then fail "a process still runs: $state"; fi
killed="a worker, the oracle that led"
if [ -n "$hbase" ]; then killed="$killed and three region servers"
elif [ -z "$emulator" ]; then killed="$killed and the table server"; fi
echo "verified; $killed were killed while $pages pages were loaded"
