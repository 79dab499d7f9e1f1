#!/bin/sh
# Install the client libraries of the matrix (`make clients`), as they are published, pinned in
# tests/clients/*.txt and below: each family where its versions do not bend those of another.
set -eu

root="$(cd "$(dirname "$0")/.." && pwd)"
home="$root/.venv/clients"
packages="openai@6.49.0 @openai/agents@0.20.0 ai@6.0.326 @ai-sdk/openai@3.0.139 zod@4.6.7"

for name in python litellm instructor; do
    list="$root/tests/clients/$name.txt"
    cmp -s "$list" "$home/$name/installed.txt" && continue
    echo "Installing clients: $name"
    rm -rf "${home:?}/$name"
    "$root/.venv/bin/python" -m venv --without-pip "$home/$name"
    "$root/.venv/bin/python" -m pip --disable-pip-version-check --quiet \
        --python "$home/$name/bin/python" install --no-deps -r "$list"
    cp "$list" "$home/$name/installed.txt"
done

if [ "${1:-}" = browser ] && [ ! -e "$home/open-webui/bin/open-webui" ]; then
    echo "Installing clients: Open WebUI and playwright (a few gigabytes)"
    "$root/.venv/bin/python" -m venv --without-pip "$home/open-webui"
    "$root/.venv/bin/python" -m pip --disable-pip-version-check --quiet \
        --python "$home/open-webui/bin/python" install open-webui==0.12.4 playwright==1.65.0
fi

command -v npm >/dev/null 2>&1 || { echo "npm is not installed: its clients are skipped" >&2; exit 0; }
if [ "$(cat "$home/npm/installed.txt" 2>/dev/null)" != "$packages" ]; then
    echo "Installing clients: npm"
    mkdir -p "$home/npm"
    # shellcheck disable=SC2086 # a list of packages
    npm install --silent --prefix "$home/npm" --no-package-lock --no-save --no-audit --no-fund $packages
    echo "$packages" >"$home/npm/installed.txt"
fi

# The public conformance scenarios for MCP clients need a newer Node than Debian's, which npm has.
packages="@modelcontextprotocol/conformance@0.1.16 @modelcontextprotocol/server-filesystem@2026.8.31 node@22.23.3"
if [ "$(cat "$home/mcp/installed.txt" 2>/dev/null)" != "$packages" ]; then
    echo "Installing clients: mcp"
    mkdir -p "$home/mcp"
    # shellcheck disable=SC2086 # a list of packages
    npm install --silent --prefix "$home/mcp" --no-package-lock --no-save --no-audit --no-fund $packages
    echo "$packages" >"$home/mcp/installed.txt"
fi
