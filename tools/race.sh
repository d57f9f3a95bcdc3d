#!/usr/bin/env bash
# race.sh ARGUMENTS: go test -race. Seldom, while hundreds of goroutines wait, the detector itself
# ends with "ThreadSanitizer: CHECK failed". That is no race and no failure of a test, so what has
# not passed runs once more.
set -o pipefail
out=$(mktemp); trap 'rm -f "$out"' EXIT
run() { CGO_ENABLED=1 "${GO:-go}" test -vet=off -race "$@" 2>&1 | tee "$out"; }
run "$@" && exit
grep -q '^ThreadSanitizer: CHECK failed' "$out" && ! grep -qE '^ *--- FAIL|DATA RACE|^panic:' "$out" && run "$@"
