#!/usr/bin/env bash
# Kills the program with SIGKILL in the middle of its work, runs the same command again, and verifies.
#
#   scripts/kill-nine.sh [ROUNDS] [SEED]
#
# Each round builds a web index from nothing on a store of its own and is killed several times: during
# `webindex load`, during `rank`, during `recrawl`, and in the search index's own commit. Afterwards
# `webindex verify` must find no difference. Over all rounds the kills must have caused at least one
# roll-forward, one roll-back, one observer that ran again and one export that was delivered again; a run in
# which they did not has shown nothing, and fails. Rounds commit in two phases and in one step, in turns: a
# commit in one step leaves nothing to roll forward or back. Rounds in two phases sync each commit. So
# transactions hold their locks for most of their time, and a kill strikes between the phases.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-20}
RANDOM=${2:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

percolator=$(scripts/programs.sh)/percolator

"$percolator" webindex generate "$work/site" --pages 600 --seed 7 --quiet

kills=0 forward=0 back=0 again=0 redelivered=0

# Runs a command and kills it: `kill_in WHEN NAME ARGS...`; WHEN is `random`, or an event to wait for.
kill_in() {
    local when=$1 events=$2
    shift 2
    local moment=()
    if [ "$when" != random ]; then moment=(--after "$when" --events "$events"); fi
    # Between the search index's commit and the acknowledgement lie milliseconds.
    if [ "$when" = export_began ]; then moment+=(--within-ms 59); fi
    local struck
    struck=$("${percolator}-torture" strike --seed "$RANDOM" "${moment[@]}" -- "$percolator" "$@" --events "$events")
    if [ "$struck" = killed ]; then kills=$((kills + 1)); fi
}

# Runs a command to its end and counts what the kill before it has caused.
finish() {
    local before=$1 events=$2
    shift 2
    "$percolator" "$@" --events "$events" --quiet >/dev/null
    forward=$((forward + $(resolved_older rolled_forward "$events")))
    back=$((back + $(resolved_older rolled_back "$events")))
    again=$((again + $(started_again "$before" "$events")))
    redelivered=$((redelivered + $(exported_again "$before" "$events")))
}

field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }

# Transactions of an earlier process that this one resolved: those that began before its first.
resolved_older() {
    local first
    first=$({ grep -hE '"(observer_started|batch_started)"' "$2" || true; } | field start_ts | sort -n | sed -n 1p)
    { grep -h "\"$1\"" "$2" || true; } | field start_ts | awk -v first="${first:-0}" '$1 + 0 < first + 0' | wc -l
}

# Observers whose last start in the first run was cut short, and that started on the same row in the second.
started_again() {
    local name
    for name in observer_started observer_committed; do
        grep -h "\"$name\"" "$1" 2>/dev/null \
            | sed -n 's/.*"observer":"\([^"]*\)".*/\1 &/p' \
            | sed -n 's/^\([^ ]*\) .*"row":"\([^"]*\)".*"start_ts":\([0-9]*\).*/\1 \2 \3/p' >"$work/$name"
    done
    awk '{ last[$1 " " $2] = $3 } END { for (row in last) print row, last[row] }' "$work/observer_started" \
        | sort >"$work/last"
    sort "$work/observer_committed" | comm -23 "$work/last" - | cut -d' ' -f1,2 | sort -u >"$work/cut-short"
    grep -h '"observer_started"' "$2" 2>/dev/null \
        | sed -n 's/.*"observer":"\([^"]*\)".*/\1 &/p' \
        | sed -n 's/^\([^ ]*\) .*"row":"\([^"]*\)".*/\1 \2/p' | sort -u >"$work/second"
    comm -12 "$work/cut-short" "$work/second" | wc -l
}

# Pages whose export reached the search index in the first run, whose batch was not acknowledged, and that
# were exported again in the second.
exported_again() {
    grep -h '"batch_committed"' "$1" 2>/dev/null | field start_ts | sort -u >"$work/acknowledged"
    grep -h '"exported_page"' "$1" 2>/dev/null \
        | sed -n 's/.*"seq":\([0-9]*\).*"url":"\([^"]*\)".*/\1 \2/p' | sort -u \
        | join -v1 - "$work/acknowledged" | cut -d' ' -f2 | sort -u >"$work/unacknowledged"
    grep -h '"exported_page"' "$2" 2>/dev/null | field url | sort -u >"$work/second"
    comm -12 "$work/unacknowledged" "$work/second" | wc -l
}

export LC_ALL=C
# Where a kill strikes is chance. So rounds are added, up to nine times as many, until each effect was seen.
round=0
while [ "$round" -lt "$rounds" ] || { [ "$round" -lt $((rounds * 10)) ] \
    && [ $((forward && back && again && redelivered)) -eq 0 ]; }; do
    round=$((round + 1))
    data=$work/data-$round
    if [ $((round % 2)) -eq 1 ]; then commit=two-phases level=sync; else commit=one-step level=buffered; fi
    store=(--data "$data" --commit "$commit" --durability "$level")
    load=(webindex load "$work/site" --base https://example.org/ "${store[@]}")
    kill_in random "$work/e1" "${load[@]}"
    kill_in exported "$work/e2" "${load[@]}"
    finish "$work/e2" "$work/e3" "${load[@]}"
    kill_in random "$work/e4" webindex rank "${store[@]}"
    finish "$work/e4" "$work/e5" webindex rank "${store[@]}"
    recrawl=(webindex recrawl --pct 10 --seed "$round" "${store[@]}")
    kill_in random "$work/e6" "${recrawl[@]}"
    kill_in export_began "$work/e7" "${recrawl[@]}"
    finish "$work/e7" "$work/e8" "${recrawl[@]}"
    "$percolator" webindex verify --data "$data" --quiet
    rm -rf "$data" "$work"/e?
    echo "round $round ($commit): verified ($kills kills: $forward rows rolled forward, $back transactions" \
        "rolled back, $again observers run again, $redelivered exports delivered again)"
done

for count in forward back again redelivered; do
    if [ "${!count}" -eq 0 ]; then
        echo "error: no kill caused '$count': the run has shown nothing about it" >&2
        echo "  help: run more rounds, or another seed: scripts/kill-nine.sh $((rounds * 2)) $((RANDOM))" >&2
        exit 1
    fi
done
echo "$round rounds passed"
