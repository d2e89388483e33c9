"""The reference driver's checkpoint: the devices of each pod and their configuration.

Its database has a bucket for each pod, and in it a JSON document for each device. Of the host state it records only the
interface name; the published device has MTU, MAC and addresses, and the configuration for the pod has a copy of the
host's routes. A newer schema version is read as far as its documents decode. The file is never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dranet.core.device import Device
from dranet.core.logs import get_logger
from dranet.core.netconfig import NetworkConfig
from dranet.core.netconfig_parse import parse_leniently
from dranet.node.records.reference import bolt
from dranet.node.records.reference.bolt import Bucket

log = get_logger(__name__)

KNOWN_VERSION = 1
_PODS, _DEVICES, _META, _VERSION = b"pod_configs", b"device_configs", b"meta", b"schemaVersion"


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    """A document of the reference; unknown fields are ignored."""


class ClaimName(msgspec.Struct, frozen=True, rename="pascal"):
    """The claim a device was prepared for. Its UID is not recorded."""

    namespace: str
    name: str


class RdmaDevice(_Document, frozen=True):
    """The RDMA device, by its link name; empty for a NIC without one."""

    link_dev: str = ""


class DeviceRecord(_Document, frozen=True):
    """One device in a pod, as the reference recorded it."""

    claim: ClaimName
    device_snapshot: Mapping[str, Any] = {}
    """The device as published at prepare."""
    network_interface_config_in_host: Mapping[str, Any] = {}
    network_interface_config_in_pod: Mapping[str, Any] = {}
    rdma_device: RdmaDevice = RdmaDevice()

    @property
    def is_published(self) -> bool:
        return "name" in self.device_snapshot

    @property
    def host_name(self) -> str:
        """The interface's name on the host; empty for a device without one."""
        return str((self.network_interface_config_in_host.get("interface") or {}).get("name") or "")


class Checkpoint(msgspec.Struct, frozen=True):
    """Devices by name, by pod UID."""

    pods: Mapping[str, Mapping[str, DeviceRecord]]
    version: int = KNOWN_VERSION

    @property
    def devices(self) -> dict[str, Device]:
        """The devices in pods as they were published, by name; the reference withdraws them while pods have them."""
        shown = ((name, record.device_snapshot) for name, record in self._records() if record.is_published)
        return {name: Device.from_api(snapshot) for name, snapshot in shown}

    @property
    def configs(self) -> dict[str, NetworkConfig]:
        """The configuration of each device in its pod, as far as it can be parsed."""
        return {name: parse_leniently(record.network_interface_config_in_pod)[0] for name, record in self._records()}

    def _records(self) -> Iterator[tuple[str, DeviceRecord]]:
        return (item for devices in self.pods.values() for item in devices.items())

    @property
    def claims(self) -> set[tuple[str, str]]:
        """Namespace and name of every claim the reference had prepared."""
        return {(record.claim.namespace, record.claim.name) for _, record in self._records()}


def read(path: str | Path) -> Checkpoint | None:
    """The checkpoint at this path; None where there is none. Raises BoltError for a file that cannot be read."""
    if not Path(path).is_file():
        return None
    root = bolt.read(path)
    version = _version(root)
    if version > KNOWN_VERSION:
        log.warning(
            "Reference driver's database has a newer schema; reading the known fields",
            path=path,
            version=version,
            known_version=KNOWN_VERSION,
        )
    pods = root.buckets.get(_PODS, Bucket({}, {})).buckets
    return Checkpoint({uid.decode(errors="replace"): dict(_devices(pod)) for uid, pod in pods.items()}, version)


def _version(root: Bucket) -> int:
    text = root.buckets.get(_META, Bucket({}, {})).values.get(_VERSION, b"1")
    return int(text) if text.isdigit() else KNOWN_VERSION


def _devices(pod: Bucket) -> Iterator[tuple[str, DeviceRecord]]:
    for name, raw in pod.buckets.get(_DEVICES, Bucket({}, {})).values.items():
        device = name.decode(errors="replace")
        try:
            yield device, msgspec.json.decode(raw, type=DeviceRecord)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.error("Cannot read the reference driver's record of a device", device=device, error=error)
