#!/bin/sh
# Installs the named Debian packages whose program is missing, and prevents their services from
# starting: tests start their own servers.
set -eu
missing=
for name in "$@"; do
  case "$name" in
    tomcat) test -e /usr/share/java/tomcat10-catalina.jar || missing="$missing libtomcat10-java" ;;
    *) PATH="$PATH:/usr/sbin" command -v "$name" >/dev/null 2>&1 || missing="$missing $name" ;;
  esac
  case "$missing" in
    *\ dpkg-deb) missing="${missing% dpkg-deb} dpkg" ;;
    *\ gcc) missing="$missing libc6-dev" ;;
    *\ ssh-keygen) missing="${missing% ssh-keygen} openssh-client" ;;
    *\ debootstrap) missing="$missing debian-archive-keyring" ;; # on Ubuntu
    *\ dig) missing="${missing% dig} dnsutils" ;; # the package has another name than its program
    *\ node) missing="${missing% node} nodejs" ;;
    *\ h2load) missing="${missing% h2load} nghttp2-client" ;;
    *\ mkdocs) missing="$missing-material" ;; # the theme brings mkdocs
    *\ java) missing="${missing% java} default-jdk-headless" ;;
  esac
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
  echo "install$missing with this machine's package manager, then run this again" >&2
  exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null 2>&1 || { echo "run as root, or install sudo: missing$missing" >&2; exit 1; }
  sudo=sudo
fi
echo "installing$missing"
policy=/usr/sbin/policy-rc.d
made=
log=$(mktemp)
trap 'rm -f "$log"; [ -z "$made" ] || $sudo rm -f "$policy"' EXIT
trap 'exit 130' INT TERM
# In a machine's first minutes, another apt may hold the locks. install can wait for its own, update cannot.
for _ in $(seq 120); do
  status=0
  $sudo env LC_ALL=C apt-get update -qq >"$log" 2>&1 || status=$?
  grep -q 'Could not get lock' "$log" || break
  sleep 5
done
if [ ! -e "$policy" ]; then
  made=1
  printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
  $sudo chmod +x "$policy"
fi
[ "$status" != 0 ] || $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -o DPkg::Lock::Timeout=600 -y -qq --no-install-recommends $missing >>"$log" 2>&1 || status=$?
[ "$status" = 0 ] || { tail -20 "$log" >&2; exit "$status"; }
