"""What a claim adds to the containers that name it, and the CDI spec that carries it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from dranet.node.records.plan import ClaimPlan

KIND = "dra.net/claim"
CDI_VERSION = "0.6.0"


class Mount(NamedTuple):
    """A file of the host and its path in containers."""

    host: str
    container: str

    def to_cdi(self) -> dict[str, Any]:
        return {"hostPath": self.host, "containerPath": self.container, "options": ["ro", "bind"]}


class ContainerEdits(NamedTuple):
    """Files and variables of one claim, the same for every container that names it."""

    mounts: tuple[Mount, ...] = ()
    variables: Mapping[str, str] = MappingProxyType({})


NO_EDITS = ContainerEdits()


def cdi_device_name(claim_uid: str) -> str:
    """The fully qualified CDI device name that prepare returns."""
    return f"{KIND}={claim_uid}"


def claim_variable(claim_name: str) -> str:
    """The environment variable that lists the claim's interfaces."""
    return "DRANET_CLAIM_" + re.sub(r"[^A-Za-z0-9]", "_", claim_name).upper()


def cdi_spec(plan: ClaimPlan, edits: ContainerEdits = NO_EDITS, name: str = "") -> dict[str, Any]:
    """The CDI spec of a claim; its device is named after the plan unless `name` is set."""
    # CDI rejects a device without edits, so every claim has at least the variable with its interface names.
    names = ",".join(device.pod_config.name for device in plan.devices if device.pod_config)
    variables = {claim_variable(plan.name): names, **edits.variables}
    added: dict[str, Any] = {"env": [f"{variable}={value}" for variable, value in variables.items()]}
    if plan.char_devices:
        added["deviceNodes"] = [
            {"path": node.path, "type": "c", "major": node.major, "minor": node.minor, "permissions": "rw"}
            for node in plan.char_devices
        ]
    if edits.mounts:
        added["mounts"] = [mount.to_cdi() for mount in edits.mounts]
    return {"cdiVersion": CDI_VERSION, "kind": KIND, "devices": [{"name": name or plan.uid, "containerEdits": added}]}


def write_file(path: Path, content: bytes) -> None:
    """Write a file that every user can read, atomically: a container may be mounting it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.new")
    hidden.write_bytes(content)
    hidden.chmod(0o644)
    hidden.replace(path)
