#!/bin/sh
# Install the programs that tests talk to. On Debian as root they are installed;
# elsewhere the missing ones are named and their tests skip themselves.
set -eu

missing=""
need() { # need PROGRAM PACKAGE
    PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 && return
    case " $missing " in *" $2 "*) ;; *) missing="$missing $2" ;; esac
}

need bwrap bubblewrap
need nsenter util-linux
need setpriv util-linux
need busybox busybox-static
need dockerd docker.io
need docker docker.io
need sshd openssh-server
need ssh openssh-client
need rg ripgrep
need tmux tmux

[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "Not installed, so some tests will be skipped:$missing" >&2
    exit 0
fi

export DEBIAN_FRONTEND=noninteractive
# Services must not start by themselves while they are installed.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
echo "Installing for the tests:$missing"
# shellcheck disable=SC2086 # a list of packages
{ apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >/dev/null ||
    echo "Could not install:$missing. Some tests will be skipped." >&2
