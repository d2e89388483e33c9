"""Options that several commands share: which files, which machines, which cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from dranet.cli.live_cluster import LiveCluster, read_cluster
from dranet.manifests.claim_views import World, world_of
from dranet.manifests.reading import Object, ReadProblem, must_read, read_usable
from dranet.model.errors import InvalidInput
from dranet.predict.hardware import Hardware, hardware_of_shapes, hardware_of_slices
from dranet.topology.shape_devices import nodes_of

NEWEST = "1.36"
F = TypeVar("F", bound=Callable[..., Any])

files_option = click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="Manifests, YAML or JSON; - is standard input."
)
kubeconfig_option = click.option("--kubeconfig", metavar="FILE", help="Kubeconfig of the live cluster.")
kubernetes_option = click.option(
    "--kubernetes", metavar="1.XX", help=f"Version of the scheduler; the live cluster's, else {NEWEST}."
)
live_option = click.option("--live", is_flag=True, help="Read slices, classes and claims from the cluster.")


def hardware_options(command: F) -> F:
    """``--shape`` and ``--slices``, both repeatable."""
    shape = click.option(
        "--shape", "shapes", multiple=True, metavar="NAME[=COUNT]", help="Nodes of a machine shape, or a shape file."
    )
    slices = click.option(
        "--slices", "slices", multiple=True, metavar="FILE", help="ResourceSlices, as kubectl get -o yaml writes them."
    )
    return shape(slices(command))


@dataclass(frozen=True)
class Given:
    """What the options named: the objects to look at, and the machines."""

    world: World
    hardware: Hardware | None
    """None where no machines were named."""
    problems: tuple[ReadProblem, ...] = ()
    """What in the files was no object."""
    cluster: LiveCluster = LiveCluster()
    """The cluster that was read, if one was."""

    def release(self, wanted: str | None) -> tuple[int, int]:
        """The version that was asked for, else the cluster's, else the newest that was tried."""
        return release(wanted or self.cluster.version or NEWEST)

    @property
    def machines(self) -> Hardware:
        """The hardware, without which there is nothing to do."""
        if self.hardware is None:
            raise InvalidInput("no machines: name them with --shape NAME=COUNT, --slices FILE or --live")
        return self.hardware


def gather(
    files: tuple[str, ...],
    shapes: tuple[str, ...] = (),
    slices: tuple[str, ...] = (),
    live: bool = False,
    kubeconfig: str | None = None,
) -> Given:
    """Read everything; slices may stand in their own files or among the manifests.

    What a cluster holds beside its slices (claims, classes, nodes) is what the manifests meet there. Without any
    manifests it is the cluster itself that is asked about.
    """
    objects, problems = read_usable(files)
    cluster = read_cluster(kubeconfig) if live or kubeconfig else LiveCluster()
    known = [*recorded(slices), *cluster.objects]
    around = [*cluster.surroundings]
    world = world_of(objects, [*around, *known]) if files else world_of(known, around)
    return Given(world, hardware(world, shapes), tuple(problems), cluster)


def recorded(slices: tuple[str, ...]) -> list[Object]:
    """The objects of files that must hold slices."""
    found = must_read(slices)
    if slices and not any(obj.kind == "ResourceSlice" for obj in found):
        names = ", ".join(f"{'<stdin>' if file == '-' else file}:1" for file in slices)
        raise InvalidInput(f"{names}: no ResourceSlice in there; record some with kubectl get resourceslices -o yaml")
    return found


def hardware(world: World, shapes: tuple[str, ...]) -> Hardware | None:
    """Machines from ``--shape`` and from all slices at hand; several sources add up."""
    found = world.checked_slices()
    if not shapes:
        return hardware_of_slices(found) if found else None
    made = hardware_of_shapes(nodes_of(list(shapes)))
    if not found:
        return made
    both = hardware_of_slices(found)
    return Hardware((*both.slices, *made.slices), {**both.machines, **made.machines})


def release(text: str) -> tuple[int, int]:
    """``1.36`` or ``v1.36.4`` as numbers."""
    major, _, minor = text.lstrip("v").partition(".")
    minor = minor.partition(".")[0]
    if not (major.isdecimal() and minor.isdecimal()):
        raise click.UsageError(f"--kubernetes {text}: write a version such as 1.36")
    return int(major), int(minor)


_COLOURS = {
    "SYS": "red",
    "UNSCHEDULABLE": "red",
    "UNREACHABLE": "red",
    "error:": "red",
    "NODE": "yellow",
    "UNKNOWN": "yellow",
    "warning:": "yellow",
    "PHB": "green",
    "PXB": "green",
    "PIX": "green",
}
_WORD = re.compile("|".join(rf"(?<![\w-]){re.escape(word)}(?!\w)" for word in _COLOURS))


def print_coloured(text: str) -> None:
    """Text with the words that matter coloured; click takes the colours out where there is no terminal."""
    click.echo(_WORD.sub(lambda match: click.style(match[0], fg=_COLOURS[match[0]]), text))


def print_json(value: Any) -> None:
    """Two-space JSON, as every command prints it."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
