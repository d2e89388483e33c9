"""What the API server, the kubelet and the runtime have in their hands during a sequence, and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dranet.model.names import ClaimRef
from dranet.nri import messages
from tests.adversary.attacker import Pod
from tests.adversary.driver import NODE

SHARE = {"dra.net/bandwidth": "1G"}
CHILD = "share0"
"""The name of an interface that a pod has as its share of a card."""


@dataclass
class Report:
    """What was tried and what came of it."""

    seed: int
    acts: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    destroyed: int = 0
    """Virtual cards that the pod itself destroyed."""
    deaths: int = 0
    shared: str = ""
    """The kind of interface that pods had as shares of one card, where they had any."""
    forgotten: bool = False
    """The store was lost while cards were out: what was published is all that is known of them."""
    wrong: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    def fault(self, name: str) -> None:
        """Something of the node goes wrong now."""
        self.faults[name] += 1
        self.story.append(f"[{name}]")


@dataclass
class Claim:
    """A claim as the API server has it, and the kubelet's memory of it."""

    ref: ClaimRef
    cards: tuple[str, ...]
    config: Mapping[str, Any] | None
    pod: str
    share_of: str = ""
    """The card that stays on the node; then `cards` is empty, for none is moved."""
    bandwidth_is_kept: bool = True
    """Not every kernel can; then a share is an interface and no more."""
    cdi: list[str] = field(default_factory=list)
    prepared: bool = False
    user: str = ""
    """The pod's name in the API server: a successor has another one, and another UID."""

    def object(self) -> dict[str, Any]:
        user = self.user or self.pod
        results = [_result(card) for card in self.cards]
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


def _result(card: str) -> dict[str, Any]:
    return {"driver": "dra.net", "pool": NODE, "device": card, "request": card}


@dataclass
class Sandbox:
    """A sandbox as the runtime has it."""

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
