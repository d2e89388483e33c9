"""``dranet enable-nri``: enable NRI in the containerd of a node.

The chart runs it in an init container (value `nri.enable`) with the root directory of the node at `--root`. It changes
the configuration and restarts containerd only if NRI does not answer. Containers keep running during the restart,
because each has a separate shim process.
"""

from __future__ import annotations

import os
import re
import shlex
import socket as socketlib
import subprocess
import time
import tomllib
from pathlib import Path

import click

from dranet.core.errors import DranetError

_RESTART = "systemctl restart containerd"


@click.command(name="enable-nri")
@click.option(
    "--root", default="/", show_default=True, type=click.Path(file_okay=False), help="Root directory of the node."
)
@click.option(
    "--config",
    default="/etc/containerd/config.toml",
    show_default=True,
    help="Configuration file of containerd on the node.",
)
@click.option("--socket", default="/var/run/nri/nri.sock", show_default=True, help="NRI socket on the node.")
@click.option(
    "--restart",
    default=_RESTART,
    show_default=True,
    help="Command that restarts containerd, run in the root directory of the node.",
)
@click.option("--wait", default=60, show_default=True, help="Seconds to wait for the socket after the restart.")
def enable_nri(root: str, config: str, socket: str, restart: str, wait: int) -> None:
    """Enable NRI in the containerd of a node and restart containerd. Does nothing if NRI is already enabled."""
    if root != "/":
        _enter(root)
    if _listens(socket):
        click.echo(f"NRI is already enabled at {socket}")
        return
    file = Path(config)
    before = file.read_text() if file.exists() else ""
    after = with_nri(before)
    if after != before:
        _replace(file, after)
        click.echo(f"{config}: enabled NRI")
    _restart(restart)
    _await(socket, wait)
    click.echo(f"NRI is enabled at {socket}")


def _enter(root: str) -> None:
    """Change the root of this process: /var/run is a symlink, which must resolve on the node and not in the image."""
    os.chroot(root)
    os.chdir("/")


def _listens(path: str) -> bool:
    """Connect to it: a stopped containerd may leave the file behind."""
    with socketlib.socket(socketlib.AF_UNIX) as client:
        return client.connect_ex(path) == 0


def _replace(file: Path, text: str) -> None:
    """Replace the file in one step, because containerd may start and read it at any time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.dranet")
    fresh.write_text(text)
    fresh.chmod(file.stat().st_mode & 0o777 if file.exists() else 0o644)
    fresh.replace(file)


def _restart(command: str) -> None:
    # systemctl does nothing in a chroot without SYSTEMD_IGNORE_CHROOT.
    environment = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_IGNORE_CHROOT": "1"}
    done = subprocess.run(shlex.split(command), env=environment, capture_output=True, text=True)
    if done.returncode:
        raise DranetError(f"{command} exited with {done.returncode}: {(done.stderr or done.stdout).strip()}")


def _await(socket: str, seconds: int) -> None:
    until = time.monotonic() + seconds
    while not _listens(socket):
        if time.monotonic() > until:
            raise DranetError(
                f"NRI does not listen at {socket} {seconds} s after containerd restarted; see journalctl -u containerd"
            )
        time.sleep(0.2)


PLUGIN = "io.containerd.nri.v1.nri"
_HEADER = re.compile(rf"""^\[plugins\.(["']){re.escape(PLUGIN)}\1\]\s*$""")
_SECTION = f"""
# Added by dranet, which attaches NICs to pods through NRI.
[plugins."{PLUGIN}"]
  disable = false
  socket_path = "/var/run/nri/nri.sock"
  plugin_registration_timeout = "5s"
  plugin_request_timeout = "5s"
"""


def with_nri(text: str) -> str:
    """The configuration with NRI enabled, with all other lines unchanged."""
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DranetError(f"the configuration of containerd is not valid TOML: {error}; it was not changed") from error
    if text.strip() and read.get("version", 1) not in {2, 3, 4}:
        raise DranetError(
            f"the configuration of containerd has version {read.get('version', 1)}; NRI needs version 2 or later"
        )
    section = read.get("plugins", {}).get(PLUGIN)
    if section is None:
        return (text.rstrip("\n") + "\n" if text.strip() else "version = 2\n") + _SECTION
    return _enable(text) if section.get("disable", False) else text


def _enable(text: str) -> str:
    """Change `disable = true` in the section of NRI to `false`."""
    lines, inside = text.splitlines(keepends=True), False
    for number, line in enumerate(lines):
        if line.lstrip().startswith("["):
            inside = bool(_HEADER.match(line.strip()))
        elif inside and re.match(r"\s*disable\s*=", line):
            lines[number] = re.sub(r"=\s*true", "= false", line, count=1)
    changed = "".join(lines)
    if tomllib.loads(changed)["plugins"][PLUGIN].get("disable", False):
        raise DranetError(f'NRI is disabled, but not by disable = true in [plugins."{PLUGIN}"]; enable it by hand')
    return changed
