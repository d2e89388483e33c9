"""Options that several commands share: files, machines, cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import msgspec

from dranet.advise.manifests import (
    RECORDING,
    Fetched,
    ManifestFile,
    Manifests,
    Object,
    ReadProblem,
    assumed_class,
    find_manifests,
    must_read,
    read_text,
    read_usable,
    recorded_version,
)
from dranet.advise.plan.hardware import Hardware, hardware_of_shapes, hardware_of_slices
from dranet.cli.live_cluster import Cluster as Cluster
from dranet.cli.live_cluster import LiveCluster, read_cluster
from dranet.cli.progress import single_run, stage
from dranet.core.errors import InvalidInput
from dranet.machines.shape_devices import expand_shape_specs
from dranet.scheduler.releases import OLDEST, PLANNED, read_release

NEWEST = "1.36"
F = TypeVar("F", bound=Callable[..., Any])

kubernetes_option = click.option(
    "--kubernetes",
    metavar="1.XX",
    help=f"Version of the scheduler; by default that of the live cluster, else {NEWEST}.",
)
feature_gates_option = click.option(
    "--feature-gates",
    metavar="NAME=BOOL,...",
    default="",
    help="Feature gates that differ from the defaults of the version, as for kube-scheduler.",
)


Files = tuple[ManifestFile, ...]


def files_option(command: F) -> F:
    """Add ``FILE...``, ``-f``, ``-R``, ``-k``, ``--helm`` and ``--values``; the command gets ``files``."""

    @wraps(command)
    def expanded(
        *args: Any,
        files: tuple[str, ...],
        more_files: tuple[str, ...],
        kustomize: str,
        helm: str,
        values: tuple[str, ...],
        recursive: bool,
        **more: Any,
    ) -> Any:
        given = (*files, *more_files)
        found: Files = tuple(fetch(one) for one in (find_manifests(given) if recursive else given))
        made = [build("-k", "kubectl", "kustomize", kustomize)] if kustomize else []
        settings = [part for file in values for part in ("--values", file)]
        made += [build("--helm", "helm", "template", helm, *settings)] if helm else []
        return command(*args, files=(*found, *made), **more)

    positional = click.argument("more_files", nargs=-1, metavar="[FILE]...")
    named = click.option(
        "-f", "--filename", "files", multiple=True, metavar="FILE",
        help="Manifests in YAML or JSON: a file, a folder, a URL, or - for standard input. -f may be left out.",
    )  # fmt: skip
    deep = click.option("-R", "--recursive", is_flag=True, help="Search directories recursively.")
    built = click.option("-k", "--kustomize", metavar="DIR", default="", help="Build a kustomization with kubectl.")
    chart = click.option("--helm", metavar="CHART", default="", help="Render a chart with helm.")
    settings = click.option("--values", multiple=True, metavar="FILE", help="Values for the chart of --helm.")
    return cast(F, positional(named(deep(built(chart(settings(expanded)))))))


def fetch(file: str) -> ManifestFile:
    """A file as it is named, or the text of a URL."""
    if not file.startswith(("http://", "https://")):
        if Path(file, "kustomization.yaml").is_file():
            click.echo(f"{file} has a kustomization.yaml, which is not built; to build it: -k {file}", err=True)
        return file
    from urllib.error import HTTPError, URLError
    from urllib.request import urlopen

    try:
        with urlopen(file, timeout=30) as response:
            return Fetched(file, response.read().decode("utf-8-sig"))
    except (URLError, OSError, UnicodeDecodeError) as error:
        if isinstance(error, HTTPError):
            error.close()
        raise InvalidInput(f"{file}: cannot read the URL: {getattr(error, 'reason', error)}") from error


def build(option: str, program: str, verb: str, folder: str, *settings: str) -> Fetched:
    """The manifests that a program makes of a kustomization or a chart."""
    import subprocess

    if not Path(folder).exists():
        raise InvalidInput(f"{option} {folder}: no such folder")
    try:
        command = [program, verb, folder, *settings]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise InvalidInput(f"{option} needs the program {program}, which is not in PATH") from None
    except subprocess.CalledProcessError as error:
        raise InvalidInput(f"{option} {folder}: {error.stderr.strip()}") from error
    return Fetched(folder, done.stdout)


def cluster_options(command: F) -> F:
    """Add ``--kubeconfig`` and ``--context``; the command gets ``cluster``, or None without them."""

    @wraps(command)
    def joined(*args: Any, kubeconfig: str | None, context: str | None, **more: Any) -> Any:
        named = Cluster(kubeconfig, context) if kubeconfig or context else None
        return command(*args, cluster=named, **more)

    config = click.option("--kubeconfig", metavar="FILE", help="Kubeconfig of the live cluster.")
    return cast(F, config(click.option("--context", metavar="NAME", help="Context of the kubeconfig.")(joined)))


def progress_option(command: F) -> F:
    """Add ``--progress``."""

    @wraps(command)
    def ticking(*args: Any, progress: bool | None, **more: Any) -> Any:
        with single_run(progress):
            return command(*args, **more)

    help_ = "Show a progress line on standard error; by default only on a terminal."
    return cast(F, click.option("--progress/--no-progress", default=None, help=help_)(ticking))


def complete_shape(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Shape names for shell completion."""
    from dranet.machines.shape import shape_names

    return [name for name in shape_names() if name.startswith(begun)]


live_option = click.option("--live", is_flag=True, help="Read slices, classes and claims from the cluster.")


def hardware_options(command: F) -> F:
    """Add ``--shape`` and ``--slices``."""
    shape = click.option(
        "--shape", "shapes", multiple=True, metavar="NAME[=COUNT]", shell_complete=complete_shape,
        help="Nodes of a machine shape or shape file.",
    )  # fmt: skip
    slices = click.option(
        "--slices",
        "slices",
        multiple=True,
        metavar="FILE",
        help="A recording of a cluster (dranet record), or its ResourceSlices.",
    )
    return shape(slices(command))


@dataclass(frozen=True)
class Given:
    """The input of a command: objects and machines."""

    manifests: Manifests
    hardware: Hardware | None
    """None without machines."""
    problems: tuple[ReadProblem, ...] = ()
    """Documents in the files that are not objects."""
    cluster: LiveCluster = LiveCluster()
    """The live cluster, if it was read."""

    def release(self, wanted: str | None, gates: str = "") -> tuple[int, int]:
        """The requested version, else that of the cluster, else the newest tested one, with its feature gates."""
        recorded = recorded_version(self.manifests.by_kind.get(RECORDING, ()))
        return release(wanted or self.cluster.version or recorded or NEWEST, gates)

    @property
    def machines(self) -> Hardware:
        """The hardware; raises InvalidInput without any."""
        if self.hardware is None and self.manifests.by_kind.get("Node"):
            return hardware_of_slices(())  # the nodes of a recording, without devices
        if self.hardware is None:
            raise InvalidInput("no machines: add --shape NAME=COUNT, --slices FILE or --live")
        return self.hardware


def gather(
    files: Files,
    shapes: tuple[str, ...] = (),
    slices: tuple[str, ...] = (),
    live: bool = False,
    cluster: Cluster | None = None,
    assumed: tuple[str, ...] = (),
) -> Given:
    """Read all input. Slices may be in separate files or among the manifests.

    With manifests, the other objects of the cluster (claims, classes, nodes) are their background. Without manifests
    the objects of the cluster are the subject.
    """
    stage("reading")
    objects, problems = read_usable(files)
    there = read_cluster(cluster or Cluster()) if live or cluster else LiveCluster()
    known = [*recorded(slices), *there.objects, *assumed_classes(assumed)]
    around = [*there.surroundings]
    manifests = Manifests(objects, [*around, *known]) if files else Manifests(known, around)
    return Given(manifests, hardware(manifests, shapes), tuple(problems), there)


def assume_class_option(command: F) -> F:
    """Add ``--assume-class``; the command gets ``assumed``."""
    option = click.option(
        "--assume-class", "assumed", multiple=True, metavar="NAME=CLASS|DRIVER|CEL",
        help="Selector of a DeviceClass that is not in the files: that of another class, a driver, or an expression.",
    )  # fmt: skip
    return option(command)


def assumed_classes(texts: tuple[str, ...]) -> list[Object]:
    """The DeviceClasses of ``--assume-class``."""
    return [obj for text in texts for obj in read_text(json.dumps(assumed_class(text)), "--assume-class")[0]]


def recorded(slices: tuple[str, ...]) -> list[Object]:
    """The objects of files that must contain slices."""
    found = must_read(slices)
    if slices and not any(obj.kind in {"ResourceSlice", RECORDING} for obj in found):
        names = ", ".join(f"{'<stdin>' if file == '-' else file}:1" for file in slices)
        raise InvalidInput(f"{names}: no ResourceSlice in the files; write them with dranet record")
    return found


def hardware(manifests: Manifests, shapes: tuple[str, ...]) -> Hardware | None:
    """Machines from ``--shape`` and from all slices."""
    found = manifests.checked_slices()
    if not shapes:
        return hardware_of_slices(found) if found else None
    made = hardware_of_shapes(expand_shape_specs(list(shapes)))
    if not found:
        return made
    both = hardware_of_slices(found)
    return Hardware((*both.slices, *made.slices), {**both.machines, **made.machines}, shaped=True)


def release(text: str, gates: str = "") -> tuple[int, int]:
    """``1.36`` or ``v1.36.4`` with feature gates; only numbers for a version that is not modelled."""
    major, _, minor = text.lstrip("v").partition(".")
    minor = minor.partition(".")[0]
    if not (major.isdecimal() and minor.isdecimal()):
        raise click.UsageError(f"--kubernetes {text}: write a version such as 1.36")
    found = int(major), int(minor)
    return read_release(text, gates) if gates or OLDEST <= found <= PLANNED else found


_COLOURS = {
    "SYS": "red",
    "UNSCHEDULABLE": "red",
    "REFUSED": "red",
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
    """Print text with coloured keywords; click removes colours without a terminal."""
    click.echo(_WORD.sub(lambda match: click.style(match[0], fg=_COLOURS[match[0]]), text))


def schema(command: str) -> dict[str, str]:
    """The field that names the form of an output: a file in docs/reference/schemas."""
    return {"schema": f"dranet.{command}/v1"}


def print_json(value: Any) -> None:
    """Print JSON with an indent of two spaces."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def print_yaml(value: Any) -> None:
    """Print YAML, keys in the order of the JSON output."""
    import yaml

    click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120), nl=False)


def some(names: Sequence[str], shown: int = 5) -> str:
    """The first names, and the number of others."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
