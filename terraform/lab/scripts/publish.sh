#!/bin/sh
# publish.sh: names new regions, gives those that have none initial rules, shedder settings and a behavior
# policy, and the topology to all. It keeps what an operator has applied: a new region gets what
# the others have. REGIONCTL is the program, RULES the file of the first rules.
. "$(dirname "$0")/lib.sh"
enter
export WEIR_FLEET="$LAB/fleet.yaml" WEIR_USER=lab NO_COLOR=1

# current REGION=ADDRESS KIND prints the active version, or nothing.
current() {
  answer=$(curl -sS -m 5 -w '\n%{http_code}' "http://${1#*=}:8500/v1/kv/weir/$2/current?raw") || fail "consul of ${1%%=*} does not answer"
  case $answer in
    *"
404") return ;;
    *"
200") ;;
    *) fail "consul of ${1%%=*}: $answer" ;;
  esac
  printf '%s' "$answer" | tr -d ' \n' | sed -n 's/.*"version":"\([^"]*\)".*/\1/p'
}

try() { # COMMAND...: shows its output if it fails
  "$@" >"$LAB/publish.log" 2>"$LAB/publish.err" || fail "$(printf '%s\n' "$*" && cat "$LAB/publish.log" "$LAB/publish.err")"
}

# A regionctl without a command predates the lab.
if "$REGIONCTL" --help | grep -q '^  init '; then
  try "$REGIONCTL" init --yes
fi
for kind in rules shedder policy; do
  file=$scripts/../$kind.yaml
  [ $kind != rules ] || file=${RULES:-$file}
  donor='' bare=''
  # shellcheck disable=SC2013 # words
  for pair in $(cat "$LAB/wan"); do
    version=$(current "$pair" $kind)
    if [ -z "$version" ]; then
      bare=$bare${bare:+,}${pair%%=*}
    elif [ -z "$donor" ]; then
      donor=${pair%%=*}
      file=$LAB/publish.yaml
      try "$REGIONCTL" $kind show "$version" --region "$donor"
      mv "$LAB/publish.log" "$file"
    fi
  done
  [ -n "$bare" ] || continue
  case $kind in shedder) verb=set ;; *) verb=apply ;; esac
  try "$REGIONCTL" $kind $verb "$file" --region "$bare" --yes --wait "${start_limit}s" -m "first $kind of a new region"
done

if "$REGIONCTL" --help | grep -q '^  topology '; then
  try "$REGIONCTL" topology apply "$LAB/topology.yaml" --yes
fi
rm -f "$LAB"/publish.log "$LAB"/publish.err "$LAB/publish.yaml"
