#!/bin/sh
# Make .venv ready: the package in editable form with its development tools, versions pinned by constraints.txt.
# Installs missing system packages itself as root; otherwise says, in one line, what to install.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

need=""
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || need="$need python3"
"$python" -c 'import ensurepip, venv' 2>/dev/null || need="$need python3-venv"
command -v ip >/dev/null 2>&1 || need="$need iproute2"
command -v unshare >/dev/null 2>&1 || need="$need util-linux"
if [ -n "$need" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "setup: installing$need"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $need >/dev/null
    else
        echo "setup: missing system packages; run: sudo apt-get install -y$need" >&2
        exit 1
    fi
fi

[ -x .venv/bin/python ] || "$python" -m venv .venv
echo "setup: installing Python packages into .venv"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
touch .venv/ready
