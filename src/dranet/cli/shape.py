"""``dranet shape``: the machines we know, and how to write down another."""

from __future__ import annotations

import re
import socket
from typing import IO

import click

from dranet.model.errors import DranetError
from dranet.topology.shape import load_shape, shape_names
from dranet.topology.shape_toml import to_toml


@click.group(help="List, show and capture machine shapes.")
def shape() -> None:
    """The group; each command below prints to standard output."""


@shape.command("list", help="The built-in shapes.")
def list_shapes() -> None:
    """One line a shape."""
    for name in shape_names():
        click.echo(f"{name:20}{load_shape(name).title}")


@shape.command("show", help="A shape as a file to start one's own from.")
@click.argument("name")
def show(name: str) -> None:
    """Print TOML."""
    try:
        click.echo(to_toml(load_shape(name)), nl=False)
    except DranetError as error:
        raise click.ClickException(str(error)) from error


@shape.command("capture", help="Write down this machine as a shape.")
@click.option("--sysfs", metavar="DIR", default="/sys", show_default=True, help="The sysfs to read.")
@click.option("--name", default=None, help="Name of the shape; the host name where none is given.")
@click.option("--nvlinks", type=click.IntRange(0), default=0, help="NVLinks of each GPU (nvidia-smi nvlink -s).")
@click.option(
    "--nvlink-gbytes", type=click.FloatRange(0), default=0, help="GB/s of all NVLinks of a GPU, one direction."
)
@click.option("-o", "--output", type=click.File("w"), default="-", help="File to write; standard output otherwise.")
def capture(sysfs: str, name: str | None, nvlinks: int, nvlink_gbytes: float, output: IO[str]) -> None:
    """Read sysfs, print TOML."""
    from dranet.topology.capture import capture as look

    try:
        machine = look(name or _host_name(), sysfs, nvlinks=nvlinks, nvlink_gbytes=nvlink_gbytes)
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    click.echo(to_toml(machine), file=output, nl=False)


def _host_name() -> str:
    return re.sub(r"[^a-z0-9-]", "-", socket.gethostname().partition(".")[0].lower()) or "machine"
