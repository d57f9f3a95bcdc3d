#!/bin/sh
# console.sh [TFVARS]: runs the lab with visitors and a console until Ctrl-C. It stops the lab
# only if it started it. LAB is its folder.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
scripts=$(cd "$(dirname "$0")" && pwd)
export LAB="${LAB:-$root/.lab}"
export LAB_BIN="${LAB_BIN:-$root/bin}"
mine=1
[ ! -d "$LAB" ] || mine=
visitors=
end() {
  trap '' INT TERM
  [ -z "$visitors" ] || kill "$visitors" 2>/dev/null || true
  [ -z "$visitors" ] || wait "$visitors" || true
  [ -z "$mine" ] || "$scripts/down.sh"
}
trap end EXIT
trap 'exit 130' INT TERM
"$scripts/up.sh" "$@"
dns=$(sed -n 's/^dns  *\([^ ]*\) port \([0-9]*\), zone \(.*\)$/-dns \1:\2 -zone \3/p' "$LAB/summary")
[ -n "$dns" ] || {
  echo "console: visitors follow DNS, and this lab has no router; set dns = true" >&2
  exit 1
}
# shellcheck disable=SC2086 # words
"$LAB_BIN/visitors" $dns -rate "${CONSOLE_RATE:-60}" &
visitors=$!
echo "visitors send ${CONSOLE_RATE:-60} requests per second; Ctrl-C ends them and the console${mine:+, and removes the lab}"
prometheus=$(sed -n 's/^prometheus  *//p' "$LAB/summary")
WEIR_USER=${WEIR_USER:-$(id -un)@lab} "$LAB_BIN/regionctl" --fleet "$LAB/fleet.yaml" console --listen "${CONSOLE_LISTEN:-127.0.0.1:8090}" ${prometheus:+--prometheus "$prometheus"}
