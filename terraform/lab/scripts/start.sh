#!/bin/sh
# start.sh NAME: starts a process and waits until it is ready. It keeps a running one, as after
# an interrupted apply, if that is the requested one. COMMAND, FILES, BEFORE and READY describe
# it: see process/main.tf.
. "$(dirname "$0")/lib.sh"
enter
dir=$LAB/$1
mkdir -p "$dir"

put() { # FILE: standard input
  mkdir -p "$(dirname "$1")"
  cat >"$1.new"
  mv "$1.new" "$1"
}
# same reports whether the process has the requested files. Every line of FILES is a name and its
# content in base64.
same() {
  printf '%s\n' "$FILES" | while read -r name content; do
    [ -z "$name" ] || printf '%s' "$content" | base64 -d | cmp -s - "$dir/$name" || exit 1
  done
}
if alive "$dir" >/dev/null; then
  if [ "$(cat "$dir/command")" != "$COMMAND" ] || [ "$(cat "$dir/before" 2>/dev/null)" != "$BEFORE" ] || ! same; then
    stop "$dir"
  fi
fi
printf '%s\n' "$FILES" | while read -r name content; do
  [ -z "$name" ] || printf '%s' "$content" | base64 -d | put "$dir/$name"
done
printf '%s\n' "$BEFORE" | put "$dir/before"
printf '%s\n' "$READY" | put "$dir/ready"
begin() {
  alive "$dir" >/dev/null || launch "$dir"
  await "$dir"
}
printf '%s\n' "$COMMAND" | put "$dir/command"
if ! (begin); then
  # Terraform will request it again; until then it does not belong to the lab.
  stop "$dir"
  rm -f "$dir/command"
  exit 1
fi
