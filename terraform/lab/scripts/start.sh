#!/bin/sh
# start.sh NAME: starts a process and waits until it is ready. A running one, as after
# an interrupted apply, is kept if it is the requested one. COMMAND, CONFIG, CONFIG_FILE
# and READY describe it: see process/main.tf.
. "$(dirname "$0")/lib.sh"
enter
dir=$LAB/$1
mkdir -p "$dir"

file=$dir/${CONFIG_FILE:-config}
if alive "$dir" >/dev/null; then
  if [ "$(cat "$dir/command")" != "$COMMAND" ] || [ "$(cat "$file" 2>/dev/null)" != "$CONFIG" ]; then
    stop "$dir"
  fi
fi
put() {
  printf '%s\n' "$2" >"$1.new"
  mv "$1.new" "$1"
}
[ -z "$CONFIG_FILE" ] || put "$file" "$CONFIG"
put "$dir/ready" "$READY"
begin() {
  alive "$dir" >/dev/null || launch "$dir"
  await "$dir"
}
put "$dir/command" "$COMMAND"
if ! (begin); then
  # Terraform will request it again; until then it is not a process of the lab.
  stop "$dir"
  rm -f "$dir/command"
  exit 1
fi
