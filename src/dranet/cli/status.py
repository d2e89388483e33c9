"""``dranet status``: published, used and tainted devices of the cluster."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from dranet.core import attributes
from dranet.core.names import DRIVER_NAME
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.config import load_config
from dranet.kubernetes.api.overview import DeviceOverview, Overview, OverviewBuilder, PoolOverview, Use
from dranet.kubernetes.api.resources import RESOURCE_CLAIMS, RESOURCE_SLICES

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_COLUMNS = ("node", "device", "interface", "state", "taints", "used by")
MAX_ROWS = 500
"""Largest number of nodes and of devices in a table; a line below reports the others."""
_POLL = 1.0
"""Seconds between two requests of --wait."""
_PAGE = 100
"""Slices a request: 500 slices of sixteen devices would need more memory than the rest of this command."""


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False), help="Kubeconfig file; by default found as kubectl does."
)
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--node", help="List only this node.")
@click.option("--driver", default=DRIVER_NAME, show_default=True, help="DRA driver, such as gpu.nvidia.com.")
@click.option("--in-use", is_flag=True, help="List only devices of claims.")
@click.option("--fail-if-incomplete", is_flag=True, help="Exit 1 if nothing is published or a pool is incomplete.")
@click.option(
    "--wait", type=click.FloatRange(0), metavar="SECONDS",
    help="Wait until devices are published and all pools are complete; exit 1 if that takes longer.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(
    kubeconfig: str | None,
    context: str | None,
    node: str | None,
    driver: str,
    in_use: bool,
    fail_if_incomplete: bool,
    wait: float | None,
    output: str,
) -> None:
    """List the published, used and tainted devices of the cluster, and the claims and pods that use them.

    The first line is the summary. The table shows up to 500 nodes and 500 devices: those that are in use, tainted or
    incomplete first. JSON has all.
    """
    deadline = time.monotonic() + (wait or 0)
    while True:
        gathering = OverviewBuilder(driver, in_use=in_use, limit=None if output == "json" else MAX_ROWS)
        asyncio.run(_fetch(gathering, kubeconfig, context, driver, node))
        found = _filter(gathering.overview(), node, in_use)
        if wait is None or _is_complete(found) or time.monotonic() >= deadline:
            break
        time.sleep(_POLL)
    if output == "json":
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    else:
        _print(found, driver, node)
    if (fail_if_incomplete or wait is not None) and not _is_complete(found):
        sys.exit(1)


def _is_complete(found: Overview) -> bool:
    """Whether something is published, and every pool has all its slices."""
    return bool(found.pools) and all(pool.complete for pool in found.pools)


async def _fetch(
    gathering: OverviewBuilder, kubeconfig: str | None, context: str | None, driver: str, node: str | None
) -> None:
    fields = f"spec.driver={driver}" + (f",spec.nodeName={node}" if node else "")
    async with KubeClient.from_config(load_config(kubeconfig, context=context)) as client:
        async for claims, _ in client.pages(RESOURCE_CLAIMS):
            gathering.add_claims(claims)
        async for slices, _ in client.pages(RESOURCE_SLICES, fields=fields, limit=_PAGE):
            gathering.add_slices(slices)


def _filter(found: Overview, node: str | None, in_use: bool) -> Overview:
    return Overview(
        pools=tuple(pool for pool in found.pools if node in {None, pool.node}),
        devices=tuple(line for line in found.devices if node in {None, line.node} and (line.used_by or not in_use)),
    )


def _print(found: Overview, driver: str, node: str | None) -> None:
    from rich.console import Console

    # Messages from the cluster may contain brackets, which rich would take for markup.
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False, highlight=False)
    if not found.pools and not found.devices:
        where = f"on node {node}" if node else "in the cluster"
        hint = "Check that it runs: kubectl -n kube-system get pods -l app=dranet -o wide"
        console.print(f"No ResourceSlice of driver {driver} {where}. {hint}")
        return
    console.print(_total(found.pools))
    shown = sorted(found.pools, key=_problems_first)[:MAX_ROWS]
    console.print(_pools(tuple(sorted(shown, key=lambda pool: pool.node))))
    console.print(_devices(found.devices[:MAX_ROWS]))
    if len(found.pools) > MAX_ROWS:
        rest = f"{len(found.pools) - MAX_ROWS:,} more nodes, and devices that are neither in use nor tainted"
        console.print(f"Not listed: {rest}. Use --node NAME for one node, -o json for all.")


def _problems_first(pool: PoolOverview) -> tuple[bool, bool, bool, str]:
    return pool.complete, not pool.tainted, not pool.used, pool.node


def _total(pools: tuple[PoolOverview, ...]) -> str:
    devices, used, tainted = (sum(getattr(p, of) for p in pools) for of in ("devices", "used", "tainted"))
    incomplete = sum(not pool.complete for pool in pools)
    nodes = f"{len(pools):,} node{'s' * (len(pools) != 1)}"
    counts = f"{nodes}, {devices:,} devices: {used:,} in use, {tainted:,} tainted"
    first = next((pool.node for pool in pools if not pool.complete), "")
    more = f" and {incomplete - 1:,} more" if incomplete > 1 else ""
    return f"{counts}; {incomplete:,} pools incomplete: {first}{more}" if incomplete else counts


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _pools(pools: tuple[PoolOverview, ...]) -> RenderableType:
    table = _table("node", "devices", "in use", "tainted", "generation", "pool")
    for pool in pools:
        state = "complete" if pool.complete else f"incomplete: {pool.slices} of {pool.expected_slices} slices"
        counts = (pool.devices, pool.used, pool.tainted, pool.generation)
        table.add_row(pool.node, *map(str, counts), state)
    return table


def _devices(lines: tuple[DeviceOverview, ...]) -> RenderableType:
    table = _table(*_COLUMNS)
    for line in lines:
        taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in line.taints)
        uses = "\n".join(text for text in (_taken(line), *map(_use, line.used_by)) if text)
        table.add_row(line.node, line.device, _interface(line), _state(line), taints or "-", uses or "-")
    return table


def _interface(line: DeviceOverview) -> str:
    names = (line.attributes.get(attributes.IF_NAME), line.attributes.get(attributes.RDMA_DEVICE))
    return " ".join(str(name) for name in names if name) or "-"


def _state(line: DeviceOverview) -> str:
    if not line.published:
        return "not published"
    return str(line.attributes.get(attributes.STATE, "-"))


def _use(use: Use) -> str:
    ready = {True: "ready", False: f"not ready ({use.message})", None: "no status yet"}[use.ready]
    pods = f" by {', '.join(use.pods)}" if use.pods else ", no pod"
    return f"{use.claim}{_share(use)}{pods}, {ready}"


def _share(use: Use) -> str:
    if attributes.BANDWIDTH not in use.share:
        return ""
    from dranet.scheduler.allocation.shares import (
        shortest,  # imported here, because it loads the whole allocator
    )

    return f" ({shortest(use.share[attributes.BANDWIDTH])})"


def _taken(line: DeviceOverview) -> str:
    """How much of a shared NIC is allocated."""
    total = line.capacity.get(attributes.BANDWIDTH)
    if not total:
        return ""
    from dranet.scheduler.allocation.shares import taken_text  # as above

    amounts = [use.share.get(attributes.BANDWIDTH, total) for use in line.used_by]
    return taken_text(attributes.BANDWIDTH, amounts, total) + " taken"
