"""The claims and sandboxes of a sequence, and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dranet.core.names import ClaimRef
from dranet.kubernetes.nri import messages
from tests.campaign.attacker import Pod
from tests.campaign.driver import NODE

SHARE = {"dra.net/bandwidth": "1G"}
CHILD = "share0"
"""The name of the child link in the pod."""


@dataclass
class Report:
    """What was tried, and the results."""

    seed: int
    acts: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    destroyed: int = 0
    """Virtual NICs that the pod destroyed."""
    deaths: int = 0
    shared: str = ""
    """The kind of the child links of a shared NIC, or empty."""
    store_lost: bool = False
    """The store was lost while devices were attached: only what was published is known of them."""
    wrong: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def fault(self, name: str) -> None:
        """Record a fault of the node."""
        self.faults[name] += 1
        self.steps.append(f"[{name}]")


@dataclass
class Claim:
    """A claim of the API server, and what the kubelet knows of it."""

    ref: ClaimRef
    nics: tuple[str, ...]
    config: Mapping[str, Any] | None
    pod: str
    share_of: str = ""
    """The NIC that stays on the host; then `nics` is empty."""
    bandwidth_is_kept: bool = True
    """False on a kernel without HTB."""
    cdi: list[str] = field(default_factory=list)
    prepared: bool = False
    user: str = ""
    """The pod's name in the API server: a successor has another one, and another UID."""

    def object(self) -> dict[str, Any]:
        user = self.user or self.pod
        results = [_result(nic) for nic in self.nics]
        if self.share_of:
            kept = SHARE if self.bandwidth_is_kept else {}
            results = [{**_result(self.share_of), "shareID": f"{self.ref.uid}-share", "consumedCapacity": kept}]
        opaque = {"source": "FromClaim", "opaque": {"driver": "dra.net", "parameters": self.config}}
        return {
            "metadata": {"name": self.ref.name, "namespace": "default", "uid": self.ref.uid},
            "status": {
                "reservedFor": [{"resource": "pods", "name": user, "uid": f"{user}-uid"}],
                "allocation": {"devices": {"results": results, "config": [opaque] if self.config else []}},
            },
        }


def _result(nic: str) -> dict[str, Any]:
    return {"driver": "dra.net", "pool": NODE, "device": nic, "request": nic}


@dataclass
class Sandbox:
    """A sandbox of the runtime."""

    pod: str
    number: int
    path: Path
    inside: Pod
    runs: bool = True
    uid: str = ""

    def message(self) -> bytes:
        network = messages.LinuxNamespace(type="network", path=str(self.path))
        return messages.PodSandbox(
            id=f"{self.pod}-{self.number}",
            name=(self.uid or f"{self.pod}-uid").removesuffix("-uid"),
            uid=self.uid or f"{self.pod}-uid",
            namespace="default",
            pid=1 if self.runs else 0,
            linux=messages.LinuxPodSandbox(namespaces=[network]),
        ).SerializeToString()
