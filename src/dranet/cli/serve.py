"""``dranet serve``: serve the web page, or write it to a file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import click

from dranet.cli.inputs import Cluster, cluster_options, hardware_options
from dranet.core.errors import InvalidInput
from dranet.web.http import Handler
from dranet.web.sources import LiveSource, RecordedSource, Source

_HELP = "Serve a web page with machines, pods and alignment of a cluster, of recorded slices or of machine shapes."


@click.command(help=_HELP)
@hardware_options
@cluster_options
@click.option(
    "--listen",
    default="127.0.0.1:9178",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen on; must be a loopback address.",
)
@click.option(
    "--require-token", is_flag=True, help="Require a bearer token of the cluster; for a page that runs in the cluster."
)
@click.option(
    "--token/--no-token",
    default=True,
    show_default=True,
    help="Of a cluster: require the token in the printed link, because every user of this machine reaches the port.",
)
@click.option(
    "--driver-namespace",
    default="kube-system",
    show_default=True,
    metavar="NAME",
    help="Namespace of the driver's pods, which are asked for traffic counters.",
)
@click.option("--export", "target", metavar="FILE.html", help="Write the page to a file and exit.")
def serve(
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    cluster: Cluster | None,
    listen: str,
    require_token: bool,
    token: bool,
    driver_namespace: str,
    target: str | None,
) -> None:
    host, port = _address(listen)
    if (shapes or slices) and cluster:
        raise click.UsageError("--kubeconfig and --context cannot be used with --shape or --slices")
    if require_token and (shapes or slices or target):
        raise click.UsageError("--require-token needs a cluster: it cannot be used with --shape, --slices or --export")
    with contextlib.suppress(KeyboardInterrupt):
        recorded = recorded_source(shapes, slices) if shapes or slices else None
        access = _Access(require_token, token)
        asyncio.run(_run(_source(recorded, cluster or Cluster(), driver_namespace), host, port, target, access))


class _Access(NamedTuple):
    """Who may see the page of a cluster."""

    cluster_token: bool
    link_token: bool


async def _run(
    found: contextlib.AbstractAsyncContextManager[Source], host: str, port: int, target: str | None, access: _Access
) -> None:
    async with found as source:
        if target is None:
            await _serve(source, host, port, access)
        else:
            await _export(source, target)


async def _serve(source: Source, host: str, port: int, access: _Access) -> None:
    from dranet.web import serve as serve_page
    from dranet.web.guard import Guard, TokenLink

    links: list[TokenLink] = []

    def guard(page: Handler) -> Handler:
        if not isinstance(source, LiveSource):
            return page
        if access.cluster_token:
            return Guard(source.client, page).handle
        if access.link_token:
            links.append(TokenLink(page))
            return links[0].handle
        return page

    await serve_page(source, host, port, ready=lambda url: _announce(links[0].link(url) if links else url), guard=guard)


async def _export(source: Source, target: str) -> None:
    from dranet.web import export

    html = await export(source)
    try:
        Path(target).write_text(html, "utf-8")
    except OSError as error:
        raise InvalidInput(f"--export {target}: {error.strerror}") from error
    click.echo(f"{target}: {len(html.encode()) / 1024:.0f} KiB")


@contextlib.asynccontextmanager
async def _source(recorded: RecordedSource | None, cluster: Cluster, driver_namespace: str) -> AsyncIterator[Source]:
    if recorded is not None:
        yield recorded
        return
    from dranet.kubernetes.api.client import KubeClient
    from dranet.kubernetes.api.config import load_config
    from dranet.kubernetes.api.interning import InterningDecoder

    config = load_config(cluster.kubeconfig, context=cluster.context)
    async with KubeClient.from_config(config, decoder=InterningDecoder()) as client:
        yield LiveSource(f"{config.host}:{config.port}", client, driver_namespace=driver_namespace)


def recorded_source(shapes: tuple[str, ...], slices: tuple[str, ...]) -> RecordedSource:
    """Machines of shapes, and all objects of the files."""
    from dranet.advise.manifests import Manifests, must_read, to_v1
    from dranet.machines.shape_devices import expand_shape_specs, shape_slices

    objects = must_read(slices)
    if slices and not Manifests(objects).checked_slices():
        command = "kubectl get resourceslices,resourceclaims,pods -A -o yaml"
        raise InvalidInput(f"{', '.join(slices)}: no ResourceSlice in the files; export them with {command}")
    found = [to_v1(obj.data) for obj in objects]
    for node, shape, index in expand_shape_specs(list(shapes)):
        found += [{**item, "kind": "ResourceSlice"} for item in shape_slices(shape, node, index)]
    return RecordedSource(", ".join([*slices, *shapes]), tuple(found))


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise click.UsageError(f"--listen {listen}: write HOST:PORT, such as 127.0.0.1:9178; port 0 is any free one")
    return host.strip("[]") or "127.0.0.1", int(port)


def _announce(url: str) -> None:
    click.echo(f"Serving the page at {url}  (press Ctrl-C to stop)")
