"""``dranet status``: what is published, in use and tainted in the cluster, and by whom."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click
import msgspec

from dranet.kube.client import KubeClient
from dranet.kube.config import load_config
from dranet.kube.overview import DeviceLine, Overview, PoolLine, Use, overview
from dranet.kube.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from dranet.model import attributes
from dranet.model.names import DRIVER_NAME

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

FEW_COLUMNS = ("node", "device", "interface", "state", "taints", "used by")


@click.command()
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Kubeconfig file; otherwise found as kubectl does.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--node", help="Only this node.")
@click.option("--driver", default=DRIVER_NAME, show_default=True, help="The DRA driver, such as gpu.nvidia.com.")
@click.option("--in-use", is_flag=True, help="Only devices that a claim holds.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(
    kubeconfig: str | None, context: str | None, node: str | None, driver: str, in_use: bool, output: str
) -> None:
    """What is published, in use and tainted in the cluster, and by whom."""
    found = asyncio.run(_fetch(kubeconfig, context, driver))
    found = _narrowed(found, node, in_use)
    if output == "json":
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    else:
        _print(found, driver, node)


async def _fetch(kubeconfig: str | None, context: str | None, driver: str) -> Overview:
    async with KubeClient.from_config(load_config(kubeconfig, context=context)) as client:
        slices, _ = await client.list(RESOURCE_SLICES, fields=f"spec.driver={driver}")
        claims, _ = await client.list(RESOURCE_CLAIMS)
    return overview(slices, claims, driver=driver)


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
    console.print(_pools(found.pools))
    console.print(_devices(found.devices))


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
        uses = "\n".join(_use(use) for use in line.used_by)
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
    return f"{use.claim}{pods}, {ready}"
