"""The command line: build, up, down, status, run, clean."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from . import parts
from .cache import BedError, cache_root, say
from .cluster import Cluster, Options
from .guard import guard
from .layout import MOST_BEDS, Layout
from .processes import Record


def build(arguments: argparse.Namespace) -> int:
    names = arguments.add_on or []
    chosen = list(parts.ADD_ONS) if names == ["all"] else names
    known = parts.ADD_ONS | parts.ON_DEMAND
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise BedError(f"no add-on {', '.join(unknown)}; there are all, {', '.join(known)}")
    parts.build_all(Options.from_environment().version, tuple(known[name] for name in chosen))
    say(f"everything asked for is in {cache_root()}")
    return 0


def up(arguments: argparse.Namespace) -> int:
    cluster = Cluster(Layout.from_environment(), Options.from_environment())
    cluster.up(keep=True)
    print(cluster.layout.kubeconfig)
    say(f"use it: export KUBECONFIG={cluster.layout.kubeconfig} PATH={parts.kubectl().parent}:$PATH")
    return 0


def down(arguments: argparse.Namespace) -> int:
    layout = Layout.from_environment()
    Cluster(layout, Options.from_environment()).down()
    say(f"{layout.name} is down; logs stay in {layout.logs}")
    return 0


def status(arguments: argparse.Namespace) -> int:
    """0 if the bed is up and whole, 1 if not."""
    cluster = Cluster.running(Layout.from_environment())
    for record in cluster.processes.records():
        print(f"{record.name:32} {record.pid:8} {'running' if record.alive() else 'GONE'}")
    healthy = cluster.healthy()
    print(
        f"Kubernetes {cluster.options.version}, {'healthy' if healthy else 'NOT healthy'}, {cluster.layout.kubeconfig}"
    )
    return 0 if healthy else 1


def run(arguments: argparse.Namespace) -> int:
    """A command in a node, with this terminal."""
    node = Cluster.running(Layout.from_environment()).node(arguments.node)
    return subprocess.run([*node.entry(), *arguments.command]).returncode


def guard_bed(arguments: argparse.Namespace) -> int:
    """Not for people: started with every bed that belongs to a test run."""
    guard(Layout.from_environment(), Record("owner", arguments.pid, arguments.started))
    return 0


def clean(arguments: argparse.Namespace) -> int:
    """Take every bed down and forget everything fetched and built."""
    for layout in map(Layout, range(MOST_BEDS)):
        if layout.folder.exists():
            Cluster(layout, Options.from_environment()).down()
    shutil.rmtree(cache_root(), ignore_errors=True)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kubebed", description="A real Kubernetes of several nodes on one machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for function, text in (
        (up, "bring the bed up and leave it; prints its kubeconfig (K8S=1.34, BED=1, BED_NODES=3, BED_NICS=4)"),
        (down, "take it down, also after a crash"),
        (status, "what runs"),
        (clean, "take all beds down and empty the cache"),
    ):
        commands.add_parser(function.__name__, help=text).set_defaults(function=function)
    builder = commands.add_parser("build", help="fetch and build all parts now")
    builder.add_argument("add_on", nargs="*", help=f"also: all, {', '.join(parts.ADD_ONS | parts.ON_DEMAND)}")
    builder.set_defaults(function=build)
    runner = commands.add_parser("run", help="run a command in a node: run n1 ip addr")
    runner.add_argument("node")
    runner.add_argument("command", nargs=argparse.REMAINDER, default=[os.environ.get("SHELL", "/bin/sh")])
    runner.set_defaults(function=run)
    watcher = commands.add_parser("guard")
    watcher.add_argument("pid", type=int)
    watcher.add_argument("started", type=int)
    watcher.set_defaults(function=guard_bed)
    arguments = parser.parse_args(words)
    try:
        code: int = arguments.function(arguments)
    except BedError as problem:
        print(f"kubebed: {problem}", file=sys.stderr)
        return 2
    return code
