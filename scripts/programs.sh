#!/usr/bin/env bash
# Builds the release programs of the command and of torture, and prints their directory.
#
#   scripts/programs.sh
#
# With PERCOLATOR_PROGRAMS, a directory with both programs, it builds nothing and prints that.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${PERCOLATOR_PROGRAMS:-}" ]; then
    cargo build --quiet --release --locked -p percolator-cli -p percolator-torture
fi
echo "${PERCOLATOR_PROGRAMS:-${CARGO_TARGET_DIR:-target}/release}"
