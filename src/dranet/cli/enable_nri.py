"""``dranet enable-nri``: NRI on, on a node whose containerd is not ours to edit by other means.

The chart runs it in an init container (value `nri.enable`), with the node's root folder at `--root`. What is there
already is left alone: only an NRI that is off, or that containerd 1.7 was not told of, is switched on and containerd
restarted. Containers survive that restart; each has a shim of its own.
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

from dranet.model.errors import DranetError

PLUGIN = "io.containerd.nri.v1.nri"
RESTART = "systemctl restart containerd"
HEADER = re.compile(rf"""^\[plugins\.(["']){re.escape(PLUGIN)}\1\]\s*$""")
SECTION = f"""
# Added by dranet, which moves cards into pods through NRI.
[plugins."{PLUGIN}"]
  disable = false
  socket_path = "/var/run/nri/nri.sock"
  plugin_registration_timeout = "5s"
  plugin_request_timeout = "5s"
"""


@click.command(name="enable-nri")
@click.option(
    "--root", default="/", show_default=True, type=click.Path(file_okay=False), help="The node's root folder."
)
@click.option(
    "--config", default="/etc/containerd/config.toml", show_default=True, help="containerd's file, on the node."
)
@click.option(
    "--socket", default="/var/run/nri/nri.sock", show_default=True, help="Where NRI will listen, on the node."
)
@click.option("--restart", default=RESTART, show_default=True, help="Run with the node's root folder as /.")
@click.option("--wait", default=60, show_default=True, help="Seconds until the socket must be there after the restart.")
def enable_nri(root: str, config: str, socket: str, restart: str, wait: int) -> None:
    """Switch containerd's NRI on, on a node, and restart containerd; nothing where it is on."""
    if root != "/":
        _enter(root)
    if _listens(socket):
        click.echo(f"NRI listens at {socket}; nothing to do")
        return
    file = Path(config)
    before = file.read_text() if file.exists() else ""
    after = with_nri(before)
    if after != before:
        _replace(file, after)
        click.echo(f"{config}: NRI is on now")
    _restart(restart)
    _await(socket, wait)
    click.echo(f"NRI listens at {socket}")


def with_nri(text: str) -> str:
    """A configuration of containerd with NRI on; the same text where it already says so."""
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DranetError(f"containerd's configuration cannot be read: {error}; it was left alone") from error
    if text.strip() and read.get("version", 1) not in {2, 3, 4}:
        raise DranetError(f"containerd's configuration is of version {read.get('version', 1)}; NRI needs 2 or later")
    said = read.get("plugins", {}).get(PLUGIN)
    if said is None:
        return (text.rstrip("\n") + "\n" if text.strip() else "version = 2\n") + SECTION
    return _switched(text) if said.get("disable", False) else text


def _switched(text: str) -> str:
    """`disable = true` of NRI's own section as `false`; every other line as it was."""
    lines, inside = text.splitlines(keepends=True), False
    for number, line in enumerate(lines):
        if line.lstrip().startswith("["):
            inside = bool(HEADER.match(line.strip()))
        elif inside and re.match(r"\s*disable\s*=", line):
            lines[number] = re.sub(r"=\s*true", "= false", line, count=1)
    changed = "".join(lines)
    if tomllib.loads(changed)["plugins"][PLUGIN].get("disable", False):
        raise DranetError(
            f'NRI is off in a way that is not [plugins."{PLUGIN}"] with disable = true; switch it on by hand'
        )
    return changed


def _enter(root: str) -> None:
    """For the rest of this process: /var/run is a link to /run, which must be the node's and not the image's."""
    os.chroot(root)
    os.chdir("/")


def _listens(path: str) -> bool:
    """A file alone says nothing: a containerd that ended may have left it."""
    with socketlib.socket(socketlib.AF_UNIX) as client:
        return client.connect_ex(path) == 0


def _replace(file: Path, text: str) -> None:
    """In one step: a containerd that starts meanwhile sees the old file or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.dranet")
    fresh.write_text(text)
    fresh.chmod(file.stat().st_mode & 0o777 if file.exists() else 0o644)
    fresh.replace(file)


def _restart(command: str) -> None:
    # systemctl does nothing in a chroot unless told that this is none.
    environment = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_IGNORE_CHROOT": "1"}
    done = subprocess.run(shlex.split(command), env=environment, capture_output=True, text=True)
    if done.returncode:
        raise DranetError(f"{command} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")


def _await(socket: str, seconds: int) -> None:
    until = time.monotonic() + seconds
    while not _listens(socket):
        if time.monotonic() > until:
            raise DranetError(f"containerd was restarted, and nobody listens at {socket} after {seconds} s")
        time.sleep(0.2)
