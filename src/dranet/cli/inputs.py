"""Options that several commands share: which files, which machines, which cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import click
import msgspec

from dranet.cli.live_cluster import Cluster as Cluster
from dranet.cli.live_cluster import LiveCluster, read_cluster
from dranet.cli.progress import one_answer, stage
from dranet.manifests.claim_views import World, world_of
from dranet.manifests.reading import Object, ReadProblem, manifests_below, must_read, read_usable
from dranet.model.errors import InvalidInput
from dranet.predict.hardware import Hardware, hardware_of_shapes, hardware_of_slices
from dranet.topology.shape_devices import nodes_of

NEWEST = "1.36"
F = TypeVar("F", bound=Callable[..., Any])

kubernetes_option = click.option(
    "--kubernetes", metavar="1.XX", help=f"Version of the scheduler; the live cluster's, else {NEWEST}."
)


def files_option(command: F) -> F:
    """``-f`` and ``-R``: the command gets ``files``, folders searched where that was asked for."""

    @wraps(command)
    def expanded(*args: Any, files: tuple[str, ...], recursive: bool, **more: Any) -> Any:
        given = {"files": files, **{key: more.pop(key) for key in ("more_files",) if key in more}}
        if recursive:
            given = {key: manifests_below(names) for key, names in given.items()}
        return command(*args, **given, **more)

    named = click.option(
        "-f", "--filename", "files", multiple=True, metavar="FILE",
        help="Manifests, YAML or JSON; - is standard input, a folder its manifests.",
    )  # fmt: skip
    deep = click.option("-R", "--recursive", is_flag=True, help="Folders with all folders below them.")
    return cast(F, named(deep(expanded)))


def cluster_options(command: F) -> F:
    """``--kubeconfig`` and ``--context``: the command gets ``cluster``, None where neither is named."""

    @wraps(command)
    def joined(*args: Any, kubeconfig: str | None, context: str | None, **more: Any) -> Any:
        named = Cluster(kubeconfig, context) if kubeconfig or context else None
        return command(*args, cluster=named, **more)

    config = click.option("--kubeconfig", metavar="FILE", help="Kubeconfig of the live cluster.")
    return cast(F, config(click.option("--context", metavar="NAME", help="Context of the kubeconfig.")(joined)))


def progress_option(command: F) -> F:
    """``--progress``, around all the command does."""

    @wraps(command)
    def ticking(*args: Any, progress: bool | None, **more: Any) -> Any:
        with one_answer(progress):
            return command(*args, **more)

    help_ = "A line on standard error while it takes long; by default on a terminal."
    return cast(F, click.option("--progress/--no-progress", default=None, help=help_)(ticking))


def complete_shape(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Names of shapes, for the shell."""
    from dranet.topology.shape import shape_names

    return [name for name in shape_names() if name.startswith(begun)]


live_option = click.option("--live", is_flag=True, help="Read slices, classes and claims from the cluster.")


def hardware_options(command: F) -> F:
    """``--shape`` and ``--slices``, both repeatable."""
    shape = click.option(
        "--shape", "shapes", multiple=True, metavar="NAME[=COUNT]", shell_complete=complete_shape,
        help="Nodes of a machine shape, or a shape file.",
    )  # fmt: skip
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
    cluster: Cluster | None = None,
) -> Given:
    """Read everything; slices may stand in their own files or among the manifests.

    What a cluster holds beside its slices (claims, classes, nodes) is what the manifests meet there. Without any
    manifests it is the cluster itself that is asked about.
    """
    stage("reading")
    objects, problems = read_usable(files)
    there = read_cluster(cluster or Cluster()) if live or cluster else LiveCluster()
    known = [*recorded(slices), *there.objects]
    around = [*there.surroundings]
    world = world_of(objects, [*around, *known]) if files else world_of(known, around)
    return Given(world, hardware(world, shapes), tuple(problems), there)


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
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def some(names: Sequence[str], shown: int = 5) -> str:
    """The first names, and how many there are more."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
