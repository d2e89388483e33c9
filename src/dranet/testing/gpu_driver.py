"""A fake GPU driver for machines without GPUs: ``python -m dranet.testing.gpu_driver``.

It publishes the GPUs of a machine shape as the vendor's driver would and serves claims for them on a real kubelet, so
that claims for a GPU and a NIC next to it can be scheduled, prepared and run anywhere. A container with such a claim
gets the UUIDs of its GPUs in NVIDIA_VISIBLE_DEVICES through a CDI spec, but no device.
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

from dranet.core.device import Device
from dranet.core.logs import get_logger
from dranet.core.names import ClaimRef
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.config import load_config
from dranet.kubernetes.api.errors import KubeError
from dranet.kubernetes.api.publisher import ResourceSlicePublisher
from dranet.kubernetes.api.resources import RESOURCE_CLAIMS
from dranet.kubernetes.kubelet.handler import DeviceHealth, PreparedDevice, PrepareError
from dranet.kubernetes.kubelet.plugin import Plugin
from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import gpu_devices

log = get_logger(__name__)

DRIVER = "gpu.nvidia.com"
_CDI_KIND = "sandbox.gpu/claim"
_CDI_VERSION = "0.6.0"


class _GpuClaims:
    """Prepares claims: writes a CDI spec with the UUIDs of the allocated GPUs."""

    def __init__(self, client: KubeClient, gpus: Sequence[Device], cdi: Path) -> None:
        self._client = client
        self._uuids = {str(gpu.name): str(gpu.attributes["uuid"]) for gpu in gpus}
        self._cdi = cdi

    async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
        """The claim's GPUs. Idempotent, because the kubelet retries."""
        allocated = await self._allocated(claim)
        self._write(claim, [self._uuids[entry["device"]] for entry in allocated])
        name = f"{_CDI_KIND}={claim.uid}"
        return [PreparedDevice((e["request"],), e["pool"], e["device"], (name,), e.get("shareID")) for e in allocated]

    async def after_reply(self, claim: ClaimRef) -> None:
        """Nothing to do after the reply."""

    async def unprepare(self, claim: ClaimRef) -> None:
        self._path(claim).unlink(missing_ok=True)

    async def health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """One empty report: fake GPUs do not fail."""
        yield ()
        await asyncio.Event().wait()

    async def _allocated(self, claim: ClaimRef) -> list[dict[str, Any]]:
        try:
            found = await self._client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        except KubeError as error:
            raise PrepareError(f"cannot read claim {claim}: {error}") from error
        if found["metadata"]["uid"] != claim.uid:
            raise PrepareError(f"claim {claim} was deleted and recreated: UID {claim.uid} does not exist")
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
        hidden.write_bytes(msgspec.json.encode({"cdiVersion": _CDI_VERSION, "kind": _CDI_KIND, "devices": [device]}))
        os.replace(hidden, target)


async def serve(settings: argparse.Namespace) -> None:
    """Publish slices and serve claims until a signal arrives."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    gpus = gpu_devices(load_shape(settings.shape), settings.index)
    client = KubeClient.from_config(load_config(settings.kubeconfig))
    publisher = ResourceSlicePublisher(client, settings.node, driver=DRIVER)
    publisher.publish(gpus)
    plugin = Plugin(DRIVER, _GpuClaims(client, gpus, Path(settings.cdi_dir)), health=False)
    publishing = asyncio.create_task(publisher.run())
    try:
        await plugin.start()
        log.info("Published GPUs", gpus=len(gpus), shape=settings.shape, node=settings.node)
        await stopping.wait()
    finally:
        await plugin.stop()
        publishing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await publishing
        await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dranet.testing.gpu_driver", description="Publish and serve fake GPUs."
    )
    parser.add_argument("--shape", required=True, help="machine shape whose GPUs are published")
    parser.add_argument("--index", type=int, default=0, help="which machine of that shape; UUIDs differ")
    parser.add_argument("--node", required=True, help="name of the node")
    parser.add_argument("--kubeconfig", help="default: the pod's service account")
    parser.add_argument("--cdi-dir", default="/var/run/cdi", help="the runtime's CDI folder")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
