"""``python -m bench.fleet N``: what N nodes cost an API server, phase by phase, as JSON.

Needs root and the parts of the cluster tier. The control plane is real and on this machine, so times include its share
of the same cores; counts and bytes do not depend on the machine. Exits with 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import asyncio.sslproto
import gc
import json
import logging
import os
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from bench.fleet.etcd import Etcd
from bench.fleet.nodes import Fleet, Publisher, Server
from bench.fleet.phases import LONG, SHORT, Phase, Run
from bench.fleet.reference import ReferencePublisher
from dranet.kubernetes.api import publisher
from dranet.kubernetes.api.client import KubeClient
from tests.cluster.kubebed import Cluster, Options
from tests.cluster.kubebed.layout import Layout

ROOT = Path(__file__).resolve().parents[2]
BED = 7
SPARE_FILES = 1000
"""In addition to one connection a node: those that still wait for the next request, and this process's own."""
COMPARED = 1000
"""The stand-in has as many nodes at most: its figures are a node's, and grow with nothing else."""
SMALL = 1000
QUOTA = 64_000_000, 40_000
"""Of etcd: for the cluster itself, and for a node."""


def main() -> int:
    options = _arguments()
    logging.getLogger("dranet").setLevel(logging.ERROR)  # thousands of nodes say that the server is gone
    # asyncio gives each TLS connection a buffer of 256 kB; a node has one or two of them, this process thousands.
    asyncio.sslproto.SSLProtocol.max_size = 16 * 1024
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most < options.nodes + SPARE_FILES:
        print(f"{options.nodes} nodes need {options.nodes + SPARE_FILES} open files: ulimit -Hn is {most}")
        return 2
    if options.nodes <= SMALL:
        publisher.RECONNECT_SECONDS = 10.0  # the shape is the same, and a run should not wait minutes for it
    bed = Cluster(Layout(BED), Options(nodes=0, nics=0, etcd_quota=QUOTA[0] + QUOTA[1] * options.nodes))
    bed.up()
    try:
        figures = asyncio.run(_measure(bed, options))
    finally:
        bed.down()
    print(json.dumps(figures, indent=2))
    broken: list[str] = figures["broken_promises"]
    for problem in broken:
        print(f"broken promise: {problem}", file=sys.stderr)
    return 1 if broken else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.fleet", description="What a fleet costs an API server, as JSON.")
    parser.add_argument("nodes", type=int, nargs="?", default=500, help="how many (500)")
    parser.add_argument("--short", action="store_true", help="only what every change must pass, without the stand-in")
    parser.add_argument("--alone", action="store_true", help="without the stand-in for the reference")
    names = [phase.__name__ for phase in LONG[1:]]
    parser.add_argument("--only", choices=names, help="this phase alone, after the start storm, without the stand-in")
    parser.add_argument("--quiet-seconds", type=float, default=30.0, help="how long nothing happens (30)")
    return parser.parse_args()


async def _measure(bed: Cluster, options: argparse.Namespace) -> dict[str, Any]:
    await asyncio.to_thread(_grant, bed)
    ours: Callable[[KubeClient, str], Publisher] = publisher.ResourceSlicePublisher
    phases = _phases(options)
    found = await _fleet(bed, options.nodes, ours, "ours", phases, options.quiet_seconds)
    figures = {
        "nodes": options.nodes,
        "reconnect_seconds": publisher.RECONNECT_SECONDS,
        "load_average_at_the_end": os.getloadavg()[1],
        **found,
    }
    if not (options.short or options.alone or options.only):
        size = min(options.nodes, COMPARED)
        standin = await _fleet(bed, size, ReferencePublisher, "reference", SHORT, options.quiet_seconds)
        # Its nodes take the memory that ours gave back, so nothing can be said of it.
        del standin["memory_per_publisher_kb"]
        figures["stand_in_for_the_reference"] = {"nodes": size, **standin}
    return figures


def _phases(options: argparse.Namespace) -> Sequence[Phase]:
    if options.only:
        return [phase for phase in LONG if phase is LONG[0] or phase.__name__ == options.only]
    return SHORT if options.short else LONG


async def _fleet(
    bed: Cluster,
    size: int,
    make: Callable[[KubeClient, str], Publisher],
    prefix: str,
    phases: Sequence[Phase],
    quiet_seconds: float,
) -> dict[str, object]:
    admin, driver = _server(bed, "admin"), _server(bed, "driver")
    gc.collect()
    before, etcd = _own_memory(), Etcd(bed.layout.etcd_url)
    fleet = Fleet(driver, admin, size, make, prefix)
    run = Run(bed, fleet, quiet_seconds)
    await fleet.register()
    stored = etcd.bytes_in_use()
    await phases[0](run)
    figures = {
        "slices_per_node": await fleet.slices() / size,
        "memory_per_publisher_kb": (_own_memory() - before) // size,
        "etcd_bytes_per_node": (etcd.bytes_in_use() - stored) // size,
        "etcd_bytes_on_disk": etcd.bytes_on_disk(),
        "api_server_memory_mb": _memory_of(bed, "kube-apiserver") // 1024,
        "etcd_memory_mb": _memory_of(bed, "etcd") // 1024,
    }
    for phase in phases[1:]:
        await phase(run)
    figures["api_server_memory_mb_at_the_end"] = _memory_of(bed, "kube-apiserver") // 1024
    await fleet.remove()
    return {**figures, **run.figures, "broken_promises": run.broken}


def _server(bed: Cluster, user: str) -> Server:
    saved = json.loads((bed.layout.pki / f"{user}.conf").read_text())
    return Server(bed.layout.api_url, bed.layout.pki / "ca.crt", saved["users"][0]["user"]["token"])


def _grant(bed: Cluster) -> None:
    """The chart's role for the chart's account. An administrator would pass every queue of the server unseen."""
    wanted = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    documents = yaml.safe_load_all((ROOT / "deploy/install.yaml").read_text())
    kubectl = bed.kubectl.in_namespace("kube-system")
    kubectl.apply(*(document for document in documents if document and document["kind"] in wanted))


def _own_memory() -> int:
    return _resident(Path("/proc/self/status"))


def _memory_of(bed: Cluster, name: str) -> int:
    return _resident(Path(f"/proc/{bed.processes.find(name).pid}/status"))


def _resident(status: Path) -> int:
    """In kB."""
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


if __name__ == "__main__":
    sys.exit(main())
