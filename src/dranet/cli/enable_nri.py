"""``dranet enable-nri``: NRI on, on a node whose containerd is not ours to edit by other means.

The chart runs it in an init container (value `nri.enable`), with the node's root folder at `--root`. What is there
already is left alone: only an NRI that is off, or that containerd 1.7 was not told of, is switched on and containerd
restarted. Containers survive that restart; each has a shim of its own.
"""

from __future__ import annotations

import os
import shlex
import socket as socketlib
import subprocess
import time
from pathlib import Path

import click

from dranet.cli.installing.containerd_config import with_nri
from dranet.model.errors import DranetError

RESTART = "systemctl restart containerd"


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
