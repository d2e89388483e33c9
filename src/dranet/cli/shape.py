"""``dranet shape``: the machines we know, and how to write down another."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path
from typing import IO

import click

from dranet.model.errors import DranetError, InvalidInput
from dranet.topology.shape import Shape, load_shape, parse_shape, shape_names
from dranet.topology.shape_toml import to_toml

IMPORT = """Write down a machine that others have recorded: nvidia-smi topo -m, rocm-smi --showtopo, NCCL's or hwloc's
XML, or ResourceSlices of a node. What the file does not tell stands in the shape's list of unknowns."""

SLICES = """The slices a node of this shape will have, for autoscalers that must know them before the node exists:
ResourceSlices (what Cluster Autoscaler needs of a node group that is at zero), the fields of Karpenter's instance type
(templates and attribute bindings), or Karpenter's DRAConfig for tests. What differs from boot to boot is left out."""
FORMS = ("slices", "karpenter", "draconfig")


@click.group(help="List, show, capture and import machine shapes.")
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


@shape.command("slices", help=SLICES)
@click.argument("name")
@click.option("--as", "form", type=click.Choice(FORMS), default="slices", show_default=True, help="What to write.")
@click.option("--node", default="NODE", show_default=True, help="Name of the node in slices and pools.")
def slices(name: str, form: str, node: str) -> None:
    """Print YAML."""
    import yaml

    from dranet.topology.node_templates import node_template

    try:
        made = node_template(load_shape(name), form, node)
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    click.echo(yaml.safe_dump_all(made, sort_keys=False), nl=False)


@shape.command("import", help=IMPORT)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--name", default=None, help="Name of the shape; the file's name where none is given.")
@click.option("--node", default=None, help="With slices of several nodes: the one to write down.")
@click.option("--nvlinks", type=click.IntRange(0), default=0, help="NVLinks of each GPU, where hwloc was used.")
@click.option(
    "--nvlink-gbytes", type=click.FloatRange(0), default=0, help="GB/s of all NVLinks of a GPU, one direction."
)
@click.option("-o", "--output", type=click.File("w"), default="-", help="File to write; standard output otherwise.")
def import_shape(
    files: tuple[str, ...], name: str | None, node: str | None, nvlinks: int, nvlink_gbytes: float, output: IO[str]
) -> None:
    """Find out what the files are, print TOML."""
    shown = ", ".join("<stdin>" if file == "-" else file for file in files)
    try:
        made = _imported(files, name or _plain(Path(files[0]).stem) or "machine", node, nvlinks, nvlink_gbytes)
        text = to_toml(made)
        parse_shape(text, shown)
    except DranetError as error:
        raise click.ClickException(f"{shown}: {error}") from error
    click.echo(text, file=output, nl=False)


def _imported(files: tuple[str, ...], name: str, node: str | None, nvlinks: int, nvlink_gbytes: float) -> Shape:
    """One file of any kind, or several with slices of one node."""
    from dranet.manifests.claim_views import world_of
    from dranet.manifests.reading import read_text
    from dranet.topology.importers.detecting import MOST_BYTES, shape_of_text
    from dranet.topology.importers.slices import shape_of_slices

    texts = [_text(file, MOST_BYTES + 1) for file in files]
    for text in texts:
        if (made := shape_of_text(text, name, nvlinks=nvlinks, nvlink_gbytes=nvlink_gbytes)) is not None:
            if len(files) > 1:
                raise InvalidInput("several files are for ResourceSlices only; import one matrix or XML file at a time")
            return made
    read = [read_text(text, file) for text, file in zip(texts, files, strict=True)]
    slices = world_of([obj for objects, _ in read for obj in objects]).checked_slices()
    if not slices:
        why = next((f" ({problem.message})" for _, problems in read for problem in problems), "")
        raise InvalidInput(f"neither a topology matrix, NCCL or hwloc XML nor ResourceSlices{why}")
    return shape_of_slices(slices, name, node)


def _text(file: str, most: int) -> str:
    try:
        raw = sys.stdin.buffer.read(most) if file == "-" else _bytes(Path(file), most)
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}") from error
    return raw.decode("utf-16" if raw[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8", "replace")


def _bytes(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


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
    return _plain(socket.gethostname().partition(".")[0]) or "machine"


def _plain(text: str) -> str:
    """A name that a node may have too."""
    return re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip("-.")
