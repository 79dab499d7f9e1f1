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
need zsh zsh
need fish fish
need node nodejs
need npm npm
need jq jq
need curl curl
need openssl openssl
need chromium chromium
need ngircd ngircd
need espeak-ng espeak-ng

install_programs() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        echo "Not installed, so some tests will be skipped:$missing" >&2
        return
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
}

# The client library for JavaScript (the last major version that runs on Node 20), and what makes
# a client of the OpenAPI document.
packages="openai@6.49.0 openapi-typescript@7.13.0 openapi-fetch@0.17.0 typescript@5.9.3"
folder="$(cd "$(dirname "$0")/.." && pwd)/.venv/npm"

install_client() {
    command -v npm >/dev/null 2>&1 || return 0
    [ "$(cat "$folder/installed" 2>/dev/null)" != "$packages" ] || return 0
    echo "Installing for the tests: $packages (npm)"
    mkdir -p "$folder"
    # shellcheck disable=SC2086 # a list of packages
    if npm install --silent --prefix "$folder" --no-package-lock --no-save --no-audit --no-fund \
        $packages >/dev/null; then
        echo "$packages" >"$folder/installed"
    else
        echo "Could not install npm packages. Some tests will be skipped." >&2
    fi
}

[ -z "$missing" ] || install_programs
install_client
