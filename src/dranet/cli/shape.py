"""``dranet shape``: list, show, capture and import machine shapes."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path
from typing import IO

import click

from dranet.core.errors import DranetError, InvalidInput
from dranet.machines.shape import Shape, load_shape, parse_shape, shape_names, to_toml

_IMPORT = """Write a shape from recorded files: nvidia-smi topo -m, rocm-smi --showtopo, XML of NCCL or hwloc, or
ResourceSlices of a node. The list of unknowns in the shape shows what the files do not contain."""

_SLICES = """Print what a node of this shape will publish, for autoscalers that need it before the node exists:
ResourceSlices (for a node group of Cluster Autoscaler with zero nodes), the fields of an instance type of Karpenter
(templates and attribute bindings), or the DRAConfig of Karpenter for tests. Values that change at every boot are left
out."""
_FORMATS = ("slices", "karpenter", "draconfig")


@click.group(help="List, show, capture and import machine shapes.")
def shape() -> None:
    """Each subcommand prints to standard output."""


@shape.command("list", help="List the built-in shapes.")
def list_shapes() -> None:
    for name in shape_names():
        click.echo(f"{name:20}{load_shape(name).title}")


@shape.command("show", help="Print a shape as TOML.")
@click.argument("name")
def show(name: str) -> None:
    click.echo(to_toml(load_shape(name)), nl=False)


@shape.command("slices", help=_SLICES)
@click.argument("name")
@click.option("--as", "form", type=click.Choice(_FORMATS), default="slices", show_default=True, help="Output format.")
@click.option("--node", default="NODE", show_default=True, help="Node name in slices and pools.")
def slices(name: str, form: str, node: str) -> None:
    import yaml

    from dranet.machines.node_templates import node_template

    made = node_template(load_shape(name), form, node)
    click.echo(yaml.safe_dump_all(made, sort_keys=False), nl=False)


@shape.command("import", help=_IMPORT)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--name", default=None, help="Name of the shape; by default the file name.")
@click.option("--node", default=None, help="Node to import, if the slices are of several nodes.")
@click.option("--nvlinks", type=click.IntRange(0), default=0, help="NVLinks of each GPU, for hwloc files.")
@click.option(
    "--nvlink-gbytes", type=click.FloatRange(0), default=0, help="GB/s of all NVLinks of a GPU, one direction."
)
@click.option("-o", "--output", type=click.File("w"), default="-", help="Output file; by default standard output.")
def import_shape(
    files: tuple[str, ...], name: str | None, node: str | None, nvlinks: int, nvlink_gbytes: float, output: IO[str]
) -> None:
    shown = ", ".join("<stdin>" if file == "-" else file for file in files)
    try:
        made = _imported(files, name or _valid_name(Path(files[0]).stem) or "machine", node, nvlinks, nvlink_gbytes)
        text = to_toml(made)
        parse_shape(text, shown)
    except DranetError as error:
        raise click.ClickException(f"{shown}: {error}") from error
    click.echo(text, file=output, nl=False)


def _imported(files: tuple[str, ...], name: str, node: str | None, nvlinks: int, nvlink_gbytes: float) -> Shape:
    """Import one file of any kind, or several with slices of one node."""
    from dranet.advise.manifests import Manifests, read_text
    from dranet.machines.importers.detect import MAX_BYTES, shape_of_text
    from dranet.machines.importers.slices import shape_of_slices

    texts = [_text(file, MAX_BYTES + 1) for file in files]
    for text in texts:
        if (made := shape_of_text(text, name, nvlinks=nvlinks, nvlink_gbytes=nvlink_gbytes)) is not None:
            if len(files) > 1:
                raise InvalidInput("only ResourceSlices can be in several files; import one other file at a time")
            return made
    read = [read_text(text, file) for text, file in zip(texts, files, strict=True)]
    slices = Manifests([obj for objects, _ in read for obj in objects]).checked_slices()
    if not slices:
        why = next((f" ({problem.message})" for _, problems in read for problem in problems), "")
        raise InvalidInput(f"unknown format: expected a topology matrix, NCCL or hwloc XML, or ResourceSlices{why}")
    return shape_of_slices(slices, name, node)


def _text(file: str, most: int) -> str:
    try:
        raw = sys.stdin.buffer.read(most) if file == "-" else _bytes(Path(file), most)
    except OSError as error:
        raise InvalidInput(f"cannot read the file: {error.strerror or error}") from error
    return raw.decode("utf-16" if raw[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8", "replace")


def _bytes(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


@shape.command("capture", help="Write a shape of this machine.")
@click.option("--sysfs", metavar="DIR", default="/sys", show_default=True, help="Directory where sysfs is mounted.")
@click.option("--name", default=None, help="Name of the shape; by default the host name.")
@click.option("--nvlinks", type=click.IntRange(0), default=0, help="NVLinks of each GPU (nvidia-smi nvlink -s).")
@click.option(
    "--nvlink-gbytes", type=click.FloatRange(0), default=0, help="GB/s of all NVLinks of a GPU, one direction."
)
@click.option("-o", "--output", type=click.File("w"), default="-", help="Output file; by default standard output.")
def capture(sysfs: str, name: str | None, nvlinks: int, nvlink_gbytes: float, output: IO[str]) -> None:
    from dranet.machines.capture import capture as capture_shape

    machine = capture_shape(name or _host_name(), sysfs, nvlinks=nvlinks, nvlink_gbytes=nvlink_gbytes)
    click.echo(to_toml(machine), file=output, nl=False)


def _host_name() -> str:
    return _valid_name(socket.gethostname().partition(".")[0]) or "machine"


def _valid_name(text: str) -> str:
    """A valid node name."""
    return re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip("-.")
