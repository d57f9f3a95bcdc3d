# shellcheck shell=sh
# Shared by the lab's scripts. LAB is the lab's folder; below it, each process has a
# folder region/process with
#   command  what was started, one argument a line
#   pid      of the process, which writes the file itself
#   before   a shell command that it runs first
#   ready    a shell command that succeeds once it may be used
#   log      its output
# A pid alone proves nothing, because the number may belong to another process by now. A
# process to be signaled must also have the command line that was started.
set -eu

: "${LAB:?names the folder of the lab}"
scripts=$(cd "$(dirname "$0")" && pwd)

# Far above what a busy machine needs: only failures ever wait this long.
start_limit=180

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "lab: $*"
  exit 1
}

now() { cut -d. -f1 /proc/uptime; }

# enter admits a script to the lab. make lab-down marks the lab as closing and then ends
# every script that has entered; later ones see the mark.
enter() {
  [ -d "$LAB/scripts" ] || fail "there is no lab in $LAB; make lab makes one"
  echo $$ >"$LAB/scripts/$$"
  trap 'rm -f "$LAB/scripts/$$"' EXIT
  [ ! -e "$LAB/closing" ] || fail "the lab is being taken down"
}

command_line() { { tr '\0' '\n' <"/proc/$1/cmdline"; } 2>/dev/null || true; }

# alive DIR prints the pid if the process runs. Just before it runs, the shell that will
# become it has the same command line after its own.
alive() {
  pid=$(cat "$1/pid" 2>/dev/null) || return 1
  case $pid in '' | *[!0-9]*) return 1 ;; esac
  want=$(cat "$1/command" 2>/dev/null) || return 1
  is=$(command_line "$pid")
  case $is in
    "$want" | *"
$want") echo "$pid" ;;
    *) return 1 ;;
  esac
}

ready() { (eval "$(cat "$1/ready")") >"$1/ready.log" 2>&1; }

# launch DIR starts the command in its own session, which neither Terraform's exit nor Ctrl-C
# reaches. It does not wait.
#
# A killed make lab may have launched it too, with a shell that has not run yet. The lock orders
# the shells: the first one that finds no pid becomes the process.
launch() {
  (flock 8 && { alive "$1" >/dev/null || rm -f "$1/pid"; }) 8>"$1/lock"
  [ ! -e "$1/pid" ] || return 0
  program=$(head -n 1 "$1/command")
  command -v "$program" >/dev/null || fail "$program is missing; make lab builds or installs it"
  ! ready "$1" || fail "${1#"$LAB/"} not started: something that is not of this lab answers in its place already: $(cat "$1/ready"); end it, or choose another network, as in: TF_VAR_network=127.2 make lab LAB_DIR=\$PWD/.lab2"
  (
    unset COMMAND FILES BEFORE READY BEFORE_STOP
    set -f
    IFS='
'
    # shellcheck disable=SC2046 # one argument a line
    set -- "$1" $(cat "$1/command")
    unset IFS
    # The order matters: see enter.
    export LAB WEIR_LAB_MARK="$LAB"
    # shellcheck disable=SC2016 # expanded by the inner shell
    exec setsid sh -c '
      cd "$0" && exec 8>lock && flock 8 && [ ! -e pid ] && echo $$ >pid.new && mv pid.new pid && exec 8>&- && [ ! -e "$LAB/closing" ] && [ -e pid ] && { [ ! -e before ] || . ./before; } && exec "$@"
    ' "$@" >>"$1/log" 2>&1 </dev/null 9>&-
  ) &
}

# await DIR waits until a process is ready. It fails immediately if the process has exited.
await() {
  began=$(now)
  until ready "$1"; do
    passed=$(($(now) - began))
    # On a busy machine it may take seconds to write its pid.
    if [ "$passed" -ge 2 ] && [ -e "$1/pid" ] && ! alive "$1" >/dev/null; then
      explain "$1" "has ended"
      return 1
    fi
    if [ "$passed" -ge "$start_limit" ]; then
      explain "$1" "is not ready after $start_limit s: $(tail -n 1 "$1/ready.log")"
      return 1
    fi
    sleep 0.1
  done
  rm -f "$1/ready.log"
  # Another process on the same address would answer just as well.
  alive "$1" >/dev/null || { explain "$1" "has ended, and something else answers in its place"; return 1; }
}

explain() {
  say "lab: ${1#"$LAB/"} $2"
  say "the end of $1/log:"
  tail -n 15 "$1/log" 2>/dev/null | sed 's/^/  /' >&2 || true
}

# stop DIR terminates a process and its children, and kills them after 10 s.
stop() {
  pid=$(alive "$1") || { rm -f "$1/pid"; return 0; }
  signal=TERM
  began=$(now)
  while alive "$1" >/dev/null; do
    [ $(($(now) - began)) -lt 10 ] || signal=KILL
    # It leads its group, unless it has not joined it yet.
    kill -s $signal -- "-$pid" 2>/dev/null || kill -s $signal "$pid" 2>/dev/null || true
    sleep 0.1
  done
  rm -f "$1/pid"
}

# processes PATTERN... prints the folders of matching processes.
processes() {
  for file in "$LAB"/*/*/command; do
    [ -e "$file" ] || continue
    dir=${file%/command}
    name=${dir#"$LAB/"}
    for pattern in "$@"; do
      # shellcheck disable=SC2254 # it is a pattern
      case $name in $pattern)
        echo "$dir"
        break
        ;;
      esac
    done
  done
}
