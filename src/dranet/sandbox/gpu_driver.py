"""A driver that stands in for a GPU vendor's on machines without GPUs: ``python -m dranet.sandbox.gpu_driver``.

It publishes the GPUs of a machine shape as the vendor's driver would and serves claims for them on a real kubelet, so
that claims for a GPU and a network card next to it can be scheduled, prepared and run anywhere. A container that names
the claim gets the UUIDs of its GPUs in NVIDIA_VISIBLE_DEVICES, through a CDI file; no device is behind them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dranet.kube.client import KubeClient
from dranet.kube.config import load_config
from dranet.kube.errors import KubeError
from dranet.kube.publisher import ResourceSlicePublisher
from dranet.kube.resources import RESOURCE_CLAIMS
from dranet.kubelet.handler import DeviceHealth, PreparedDevice, PrepareError
from dranet.kubelet.plugin import Plugin
from dranet.model.device import Device
from dranet.model.names import ClaimRef
from dranet.topology.shape import load_shape
from dranet.topology.shape_devices import gpu_devices

log = logging.getLogger(__name__)

DRIVER = "gpu.nvidia.com"
CDI_KIND = "sandbox.gpu/claim"
CDI_VERSION = "0.6.0"


class GpuClaims:
    """Answers the kubelet: which GPUs a claim was given, and a CDI file that says so inside the container."""

    def __init__(self, client: KubeClient, gpus: Sequence[Device], cdi: Path) -> None:
        self._client = client
        self._uuids = {str(gpu.name): str(gpu.attributes["uuid"]) for gpu in gpus}
        self._cdi = cdi

    async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
        """The claim's GPUs; the same answer however often the kubelet asks."""
        given = await self._given(claim)
        self._write(claim, [self._uuids[entry["device"]] for entry in given])
        name = f"{CDI_KIND}={claim.uid}"
        return [PreparedDevice((e["request"],), e["pool"], e["device"], (name,), e.get("shareID")) for e in given]

    async def prepared(self, claim: ClaimRef) -> None:
        """Nothing is left to be done."""

    async def unprepare(self, claim: ClaimRef) -> None:
        self._path(claim).unlink(missing_ok=True)

    async def health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """GPUs on paper never fail: one empty report, then silence."""
        yield ()
        await asyncio.Event().wait()

    async def _given(self, claim: ClaimRef) -> list[dict[str, Any]]:
        try:
            found = await self._client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        except KubeError as error:
            raise PrepareError(f"claim {claim} cannot be read: {error}") from error
        if found["metadata"]["uid"] != claim.uid:
            raise PrepareError(f"claim {claim} was deleted and created again; asked for UID {claim.uid}")
        allocation = (found.get("status") or {}).get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or []
        return [entry for entry in results if entry["driver"] == DRIVER]

    def _path(self, claim: ClaimRef) -> Path:
        return self._cdi / f"sandbox.gpu-{claim.uid}.json"

    def _write(self, claim: ClaimRef, uuids: Sequence[str]) -> None:
        edits = {"env": [f"NVIDIA_VISIBLE_DEVICES={','.join(uuids)}"]}
        device = {"name": claim.uid, "containerEdits": edits}
        self._cdi.mkdir(parents=True, exist_ok=True)
        target = self._path(claim)
        hidden = target.with_name(f".{target.name}.new")
        hidden.write_bytes(msgspec.json.encode({"cdiVersion": CDI_VERSION, "kind": CDI_KIND, "devices": [device]}))
        os.replace(hidden, target)


async def serve(settings: argparse.Namespace) -> None:
    """Publish and answer until told to stop."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    gpus = gpu_devices(load_shape(settings.shape), settings.index)
    client = KubeClient.from_config(load_config(settings.kubeconfig))
    publisher = ResourceSlicePublisher(client, settings.node, driver=DRIVER)
    publisher.publish(gpus)
    plugin = Plugin(DRIVER, GpuClaims(client, gpus, Path(settings.cdi_dir)), health=False)
    publishing = asyncio.create_task(publisher.run())
    try:
        await plugin.start()
        log.info("%d GPUs of %s on node %s", len(gpus), settings.shape, settings.node)
        await stopping.wait()
    finally:
        await plugin.stop()
        publishing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await publishing
        await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dranet.sandbox.gpu_driver", description="GPUs on paper, served.")
    parser.add_argument("--shape", required=True, help="machine shape whose GPUs are published")
    parser.add_argument("--index", type=int, default=0, help="which machine of that shape; UUIDs differ")
    parser.add_argument("--node", required=True, help="name of the node")
    parser.add_argument("--kubeconfig", help="default: the pod's service account")
    parser.add_argument("--cdi-dir", default="/var/run/cdi", help="the runtime's CDI folder")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
