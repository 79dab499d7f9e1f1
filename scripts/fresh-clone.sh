#!/usr/bin/env bash
# Try the README's two commands as a new user would: a fresh clone, an empty home, nothing installed.
#
#   scripts/fresh-clone.sh          both commands
#   scripts/fresh-clone.sh run      only `make run`
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
git clone --quiet "$root" "$place/hermes"
cd "$place/hermes"
export HOME="$place/home" HERMES_HOME="$place/home/.hermes"
mkdir -p "$HOME"

echo "== make run (first) =="
time make run < /dev/null | tee "$place/first"
grep -q . "$place/first"
echo "== make run (second) =="
time make run < /dev/null
[ "${1:-}" = run ] && exit 0
echo "== make test =="
time make test
