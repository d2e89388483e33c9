"""``dranet serve``: the page, on a port of this machine or in a file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import click

from dranet.cli.inputs import Cluster, cluster_options, hardware_options
from dranet.model.errors import DranetError, InvalidInput
from dranet.web.sources import LiveSource, RecordedSource, Source


@click.command(help="A page that shows machines, pods and alignment: of the cluster, of recorded slices, or of shapes.")
@hardware_options
@cluster_options
@click.option("--listen", default="127.0.0.1:9178", show_default=True, metavar="HOST:PORT", help="Loopback only.")
@click.option("--require-token", is_flag=True, help="Ask everybody for a token of the cluster: for a page inside it.")
@click.option("--export", "target", metavar="FILE.html", help="Write the page as one file and stop.")
def serve(
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    cluster: Cluster | None,
    listen: str,
    require_token: bool,
    target: str | None,
) -> None:
    """Serve until interrupted."""
    host, port = _address(listen)
    if (shapes or slices) and cluster:
        raise click.UsageError("either a cluster (--kubeconfig) or recorded machines (--shape, --slices), not both")
    if require_token and (shapes or slices or target):
        raise click.UsageError("--require-token asks a cluster's API server: not with --shape, --slices or --export")
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_run(shapes, slices, cluster, host, port, target, require_token))
    except DranetError as error:
        raise click.ClickException(str(error)) from error


async def _run(
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    cluster: Cluster | None,
    host: str,
    port: int,
    target: str | None,
    require_token: bool,
) -> None:
    from dranet.web import export
    from dranet.web import serve as serve_page

    recorded = recorded_source(shapes, slices) if shapes or slices else None
    async with _source(recorded, cluster or Cluster()) as source:
        if target is None and require_token and isinstance(source, LiveSource):
            from dranet.web.guard import Guard

            client = source.client
            await serve_page(source, host, port, ready=_announce, guard=lambda page: Guard(client, page).handle)
            return
        if target is None:
            await serve_page(source, host, port, ready=_announce)
            return
        html = await export(source)
        try:
            Path(target).write_text(html, "utf-8")
        except OSError as error:
            raise InvalidInput(f"--export {target}: {error.strerror}") from error
        click.echo(f"{target}: {len(html.encode()) / 1024:.0f} KiB")


@contextlib.asynccontextmanager
async def _source(recorded: RecordedSource | None, cluster: Cluster) -> AsyncIterator[Source]:
    if recorded is not None:
        yield recorded
        return
    from dranet.kube.client import KubeClient
    from dranet.kube.config import load_config
    from dranet.kube.thrift import Thrift

    config = load_config(cluster.kubeconfig, context=cluster.context)
    async with KubeClient.from_config(config, thrift=Thrift()) as client:
        yield LiveSource(f"{config.host}:{config.port}", client)


def recorded_source(shapes: tuple[str, ...], slices: tuple[str, ...]) -> RecordedSource:
    """Machines of shapes, and whatever the files hold: slices, but also claims and pods."""
    from dranet.manifests.claim_views import world_of
    from dranet.manifests.reading import must_read
    from dranet.manifests.versions import to_v1
    from dranet.topology.shape_devices import nodes_of, shape_slices

    objects = must_read(slices)
    if slices and not world_of(objects).checked_slices():
        wanted = "kubectl get resourceslices,resourceclaims,pods -A -o yaml"
        raise InvalidInput(f"{', '.join(slices)}: no ResourceSlice in there; record some with {wanted}")
    found = [to_v1(obj.data) for obj in objects]
    for node, shape, index in nodes_of(list(shapes)):
        found += [{**item, "kind": "ResourceSlice"} for item in shape_slices(shape, node, index)]
    return RecordedSource(", ".join([*slices, *shapes]), tuple(found))


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise click.UsageError(f"--listen {listen}: write HOST:PORT, as in 127.0.0.1:9178; port 0 takes any free one")
    return host.strip("[]") or "127.0.0.1", int(port)


def _announce(url: str) -> None:
    click.echo(f"The page is at {url}  (Ctrl-C ends it)")
