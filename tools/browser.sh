#!/bin/sh
# The tests of the page run in a real browser: Debian's chromium and its driver. Installs them as root where they are
# missing; otherwise says, in one line, what to install.
set -eu
if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then
    exit 0
fi
packages="chromium chromium-driver"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "browser: installing $packages"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages >/dev/null
else
    echo "browser: the tests of the page are skipped without a browser; run: sudo apt-get install -y $packages" >&2
fi
