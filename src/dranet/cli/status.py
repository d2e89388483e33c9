"""``dranet status``: what is published, in use and tainted in the cluster, and by whom."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click
import msgspec

from dranet.kube.client import KubeClient
from dranet.kube.config import load_config
from dranet.kube.overview import DeviceLine, Gathering, Overview, PoolLine, Use
from dranet.kube.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from dranet.model import attributes
from dranet.model.names import DRIVER_NAME

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

FEW_COLUMNS = ("node", "device", "interface", "state", "taints", "used by")
LISTED = 500
"""Nodes, and devices, of a table at most: those in use or tainted first. What is left out is said below it."""
PAGE = 100
"""Slices asked for at once: 500 of them with sixteen devices each would be larger than all the rest of this command."""


@click.command()
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Kubeconfig file; otherwise found as kubectl does.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--node", help="Only this node.")
@click.option("--driver", default=DRIVER_NAME, show_default=True, help="The DRA driver, such as gpu.nvidia.com.")
@click.option("--in-use", is_flag=True, help="Only devices that a claim holds.")
@click.option(
    "--fail-if-incomplete", is_flag=True, help="End with 1 where nothing is published or a pool is incomplete."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(
    kubeconfig: str | None,
    context: str | None,
    node: str | None,
    driver: str,
    in_use: bool,
    fail_if_incomplete: bool,
    output: str,
) -> None:
    """What is published, in use and tainted in the cluster, and by whom.

    The table lists up to 500 nodes and 500 devices, those in use, tainted or incomplete first, and says how many there
    are beside them; JSON has all.
    """
    gathering = Gathering(driver, in_use=in_use, room=None if output == "json" else LISTED)
    asyncio.run(_fetch(gathering, kubeconfig, context, driver, node))
    found = _narrowed(gathering.overview(), node, in_use)
    if output == "json":
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    else:
        _print(found, driver, node)
    if fail_if_incomplete and not (found.pools and all(pool.complete for pool in found.pools)):
        sys.exit(1)


async def _fetch(
    gathering: Gathering, kubeconfig: str | None, context: str | None, driver: str, node: str | None
) -> None:
    fields = f"spec.driver={driver}" + (f",spec.nodeName={node}" if node else "")
    async with KubeClient.from_config(load_config(kubeconfig, context=context)) as client:
        async for claims, _ in client.pages(RESOURCE_CLAIMS):
            gathering.add_claims(claims)
        async for slices, _ in client.pages(RESOURCE_SLICES, fields=fields, limit=PAGE):
            gathering.add_slices(slices)


def _narrowed(found: Overview, node: str | None, in_use: bool) -> Overview:
    return Overview(
        pools=tuple(pool for pool in found.pools if node in {None, pool.node}),
        devices=tuple(line for line in found.devices if node in {None, line.node} and (line.used_by or not in_use)),
    )


def _print(found: Overview, driver: str, node: str | None) -> None:
    from rich.console import Console

    # Messages come from the cluster and may hold brackets, which must not be taken for markup.
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False, highlight=False)
    if not found.pools and not found.devices:
        where = f"of node {node}" if node else "here"
        hint = "Is the driver running? kubectl -n kube-system get pods -l app=dranet -o wide"
        console.print(f"No ResourceSlice of {driver} {where}. {hint}")
        return
    shown = sorted(found.pools, key=_remarkable_first)[:LISTED]
    console.print(_pools(tuple(sorted(shown, key=lambda pool: pool.node))))
    console.print(_devices(found.devices[:LISTED]))
    console.print(_total(found.pools))
    if len(found.pools) > LISTED:
        rest = f"{len(found.pools) - LISTED:,} more nodes, and of the devices those that are not in use and not tainted"
        console.print(f"Not listed: {rest}. --node NAME shows one, -o json all.")


def _remarkable_first(pool: PoolLine) -> tuple[bool, bool, bool, str]:
    return pool.complete, not pool.tainted, not pool.used, pool.node


def _total(pools: tuple[PoolLine, ...]) -> str:
    devices, used, tainted = (sum(getattr(p, of) for p in pools) for of in ("devices", "used", "tainted"))
    incomplete = sum(not pool.complete for pool in pools)
    counts = f"{len(pools):,} nodes, {devices:,} devices: {used:,} in use, {tainted:,} tainted"
    return f"{counts}; {incomplete:,} pools incomplete" if incomplete else counts


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _pools(pools: tuple[PoolLine, ...]) -> RenderableType:
    table = _table("node", "devices", "in use", "tainted", "generation", "pool")
    for pool in pools:
        state = "complete" if pool.complete else f"incomplete: {pool.slices} of {pool.expected_slices} slices"
        counts = (pool.devices, pool.used, pool.tainted, pool.generation)
        table.add_row(pool.node, *map(str, counts), state)
    return table


def _devices(lines: tuple[DeviceLine, ...]) -> RenderableType:
    table = _table(*FEW_COLUMNS)
    for line in lines:
        taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in line.taints)
        uses = "\n".join(text for text in (_taken(line), *map(_use, line.used_by)) if text)
        table.add_row(line.node, line.device, _interface(line), _state(line), taints or "-", uses or "-")
    return table


def _interface(line: DeviceLine) -> str:
    names = (line.attributes.get(attributes.IF_NAME), line.attributes.get(attributes.RDMA_DEVICE))
    return " ".join(str(name) for name in names if name) or "-"


def _state(line: DeviceLine) -> str:
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
    from dranet.allocation.shares import shortest  # with the whole allocator, for which nobody else here waits

    return f" ({shortest(use.share[attributes.BANDWIDTH])})"


def _taken(line: DeviceLine) -> str:
    """How much of a card that can be shared is taken."""
    total = line.capacity.get(attributes.BANDWIDTH)
    if not total:
        return ""
    from dranet.allocation.shares import taken_text  # as above

    amounts = [use.share.get(attributes.BANDWIDTH, total) for use in line.used_by]
    return taken_text(attributes.BANDWIDTH, amounts, total) + " taken"
