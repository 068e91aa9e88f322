#!/usr/bin/env bash
# Runs every fuzz target of the repository for the time given (default 30s).
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
grep -rlE '^func Fuzz' --include='*_test.go' . | while read -r file; do
  dir=$(dirname "$file")
  grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | awk '{print $2}' | while read -r target; do
    echo "== $dir $target"
    go test "$dir" -run '^$' -fuzz "^${target}\$" -fuzztime "$time" -fuzzminimizetime 10x
  done
done
