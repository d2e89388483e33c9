#!/bin/sh
# The tests of the page run in a real browser: Debian's chromium and its driver. Installs them as root where they are
# missing; otherwise, or where apt does not reach its mirror, says in one line what to install. Never a reason to fail.
set -eu
if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then
    exit 0
fi
packages="chromium chromium-driver"
install() {
    echo "browser: installing $packages"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages >/dev/null
}
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && install; then
    exit 0
fi
echo "browser: the tests of the page are skipped without a browser; run: sudo apt-get install -y $packages" >&2
