"""The kubelet, the runtime and the API server of a sequence, with what they have in their hands.

Both ask again what was not answered, and neither waits for a driver that is dead. The runtime lists sandboxes in any
order, dead ones too and some of them twice; it says late or never that one has ended.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dranet.kernel import links
from dranet.kernel.netlink import NetlinkSocket
from dranet.model.names import ClaimRef
from tests.adversary.attacker import Pod
from tests.adversary.driver import NODE, Claims, Driver, Refusal, device
from tests.adversary.node import Node
from tests.adversary.objects import CHILD, Claim, Report, Sandbox
from tests.adversary.processes import Died

UNPREPARES = 4
"""How often the kubelet asks before the sequence counts as lost; a real one never stops."""
CONFIGS: tuple[Mapping[str, Any] | None, ...] = (
    None,
    {"interface": {"mtu": 1300, "hardwareAddr": "02:00:00:00:aa:01"}},
    {"interface": {"addresses": ["10.77.0.1/24"], "gsoMaxSize": 20000}, "ethtool": {"features": {"tso": False}}},
)


class Played:
    """Everything on the node and beside it that asks the driver for something."""

    def __init__(self, report: Report, dice: random.Random, node: Node, folder: Path) -> None:
        self.report, self.node, self.folder = report, node, folder
        self.driver = Driver(folder, node.namespace.fd)
        self.claims: dict[str, Claim] = {}
        self.sandboxes: list[Sandbox] = []
        self.ended: list[Sandbox] = []
        self.shared = ""
        """The card that pods have shares of, if there is one."""
        self.excused: set[str] = set()
        """Cards that the pod itself has destroyed, or that died with a namespace while no driver was there."""
        self._dice = dice
        self._over: set[str] = set()
        """Pods that have ended; claims may still be reserved for them."""

    def publish(self) -> None:
        """As the driver would, of the cards as they are now."""
        functions = self.node.addresses
        found = [device(self.node.route, card, self._shared, functions.get(card, "")) for card in self.node.cards]
        self._published = [one.device for one in found]

    def close(self) -> None:
        self.driver.kill()
        for sandbox in [*self.sandboxes, *self.ended]:
            sandbox.inside.kill()
            if sandbox.inside.netns.fd >= 0:
                sandbox.inside.netns.close()

    # The driver.

    @property
    def _shared(self) -> tuple[str, ...]:
        return (self.shared,) if self.shared else ()

    def tell(self, verb: str, *words: Any) -> Any:
        """What the driver answers; None from a dead one."""
        if not self.driver.alive:
            return None
        pods = {pod: self._pod_object(pod) for pod in {claim.user or claim.pod for claim in self.claims.values()}}
        objects = {name: claim.object() for name, claim in self.claims.items()}
        claims = Claims(objects, pods, self._published, self._shared, dict(self.node.addresses))
        try:
            return self.driver.ask(verb, claims, *words)
        except Died:
            return None

    def restart_driver(self, point: str = "") -> None:
        self.driver.kill()
        self.driver.start(point)
        self.tell("synchronize", self.listed())

    def _pod_object(self, pod: str) -> dict[str, Any]:
        own = [name for name, claim in self.claims.items() if pod == (claim.user or claim.pod)]
        named = [{"name": name, "resourceClaimName": name} for name in own]
        return {
            "metadata": {"name": pod, "uid": f"{pod}-uid"},
            "spec": {"nodeName": NODE, "resourceClaims": named},
            "status": {"phase": "Failed" if pod in self._over else "Running"},
        }

    # Pods and their sandboxes.

    def start_pod(self, pod: str, claims: Mapping[str, tuple[str, ...]]) -> Sandbox:
        for name, cards in claims.items():
            config = self._dice.choice(CONFIGS if len(cards) == 1 else CONFIGS[::2])  # one MAC for one card
            config = _with_own_mac(config, len(self.claims))
            self.claims[name] = Claim(ClaimRef("default", name, f"{name}-{pod}"), cards, config, pod)
        if self.shared:
            name, address = f"s-{pod}", f"10.66.0.{1 + len(self.claims)}/24"
            child = {"interface": {"type": self.report.shared, "addresses": [address], "name": CHILD}}
            ref, kept = ClaimRef("default", name, f"{name}-{pod}"), self.node.keeps_bandwidth
            self.claims[name] = Claim(ref, (), child, pod, self.shared, kept)
        for claim in self.claims_of(pod):
            answer = self.prepare(claim)
            if isinstance(answer, Refusal):
                self.report.wrong.append(f"claim {claim.ref.name} of {pod} was refused: {answer}")
        sandbox = self.run_sandbox(pod)
        if self._dice.random() < 0.2:  # or only now
            for claim in self.claims_of(pod):
                self.tell("follow_up", claim.ref)
        missing = [claim.ref.name for claim in self.claims_of(pod) if not self.has_receipt(claim)]
        if missing and self.driver.alive:
            self.report.wrong.append(f"{pod} started without {missing}: {self.driver.said[-3:]}")
        if self.shared and self.driver.alive and CHILD not in self.links_in(sandbox):
            self.report.wrong.append(f"{pod} started without its share of {self.shared}: {self.driver.said[-3:]}")
        return sandbox

    def run_sandbox(self, pod: str, again: int = 2, uid: str = "") -> Sandbox:
        """A sandbox that is refused is made anew, as the kubelet does; the last one stays without its cards."""
        number = len(self.sandboxes) + len(self.ended)
        own_root = self._dice.random() < 0.7
        inside = Pod(own_root, (*self.node.cards, "eth0"), self.folder / "mounts")
        path = self.folder / "netns" / f"{pod}-{number}"
        path.symlink_to(f"/proc/{os.getpid()}/fd/{inside.netns.fd}")
        uid = uid or next((f"{c.user}-uid" for c in self.claims.values() if c.pod == pod and c.user), "")
        sandbox = Sandbox(pod, number, path, inside, uid=uid)
        self.sandboxes.append(sandbox)
        answer = self.tell("run", sandbox.message())
        if not isinstance(answer, Refusal):
            return sandbox
        self.report.story.append(f"(sandbox refused: {answer})")
        if again == 0:
            return sandbox
        self.kill_processes(sandbox)
        self.stop(sandbox)  # a runtime tidies up what was refused
        self.end_namespace(sandbox)
        return self.run_sandbox(pod, again - 1, uid)

    def sandbox(self, pod: str) -> Sandbox | None:
        return next((sandbox for sandbox in self.sandboxes if sandbox.pod == pod), None)

    def listed(self) -> list[bytes]:
        """Every sandbox there is or was, in any order, some of them twice."""
        found = [sandbox.message() for sandbox in [*self.sandboxes, *self.ended]]
        found += [one for one in found if self._dice.random() < 0.3]
        self._dice.shuffle(found)
        return found

    def kill_processes(self, sandbox: Sandbox) -> None:
        """The containers end. What they had taken out of the sandbox's own namespace goes down with them."""
        for card in self.cards_of(sandbox.pod):
            if self.node.where(card, sandbox.inside.netns) in ("elsewhere", "gone"):
                self.excused.add(card)
        sandbox.inside.kill()
        sandbox.runs = False

    def stop(self, sandbox: Sandbox) -> None:
        self.tell("stop", sandbox.message())

    def end_namespace(self, sandbox: Sandbox) -> None:
        """The runtime lets go of the namespace, whether the driver has taken its cards out or not."""
        if not self.driver.alive:
            for card in self.cards_of(sandbox.pod):
                if self.node.where(card, sandbox.inside.netns) == "pod":
                    self.excused.add(card)  # nobody was there to fetch it
        sandbox.path.unlink()
        sandbox.inside.netns.close()
        self.sandboxes.remove(sandbox)
        self.ended.append(sandbox)

    def end_pod(self, pod: str, way: str = "stopped") -> None:
        """Stopped; deleted by force, so that its claims end first; or gone without a word of the runtime."""
        self._over |= {claim.user or claim.pod for claim in self.claims_of(pod)}
        sandbox = self.sandbox(pod)
        if sandbox is None:
            return
        self.report.fault(f"pod {way}")
        self.kill_processes(sandbox)
        if way == "forced":
            for claim in self.claims_of(pod):
                self.unprepare(claim)
        if way != "unsaid":
            self.stop(sandbox)
        self.end_namespace(sandbox)

    def cards_of(self, pod: str) -> list[str]:
        return [card for claim in self.claims_of(pod) for card in claim.cards]

    def claims_of(self, pod: str) -> list[Claim]:
        return [claim for claim in self.claims.values() if claim.pod == pod]

    def links_in(self, sandbox: Sandbox) -> set[str]:
        with NetlinkSocket(namespace_fd=sandbox.inside.netns.fd) as route:
            return {link.name for link in links.list_links(route)}

    # Claims.

    def prepare(self, claim: Claim) -> Any:
        answer = self.tell("prepare", claim.ref)
        if isinstance(answer, list):
            claim.cdi, claim.prepared = answer, True
            if self._dice.random() < 0.8:  # else the driver does not come to it before the pod starts
                self.tell("follow_up", claim.ref)
        return answer

    def unprepare(self, claim: Claim) -> bool:
        if not self.driver.alive:
            return False
        answer = self.tell("unprepare", claim.ref)
        if self.driver.alive and not isinstance(answer, Refusal):
            claim.prepared = False
            return True
        self.report.story.append(f"(unprepare: {answer})")
        return False

    def settle(self, pod: str) -> None:
        """The kubelet asks until every claim of the pod is unprepared; somebody starts the driver if it is dead."""
        for claim in self.claims_of(pod):
            for _ in range(UNPREPARES):
                if not self.driver.alive:
                    self.restart_driver()
                if self.unprepare(claim):
                    break
                if not self.driver.alive:  # the runtime had let go of the namespace; now nobody holds it
                    self.excused |= set(self.cards_of(pod))
            else:
                self.report.wrong.append(f"claim {claim.ref.name} is never unprepared: {self.driver.said[-3:]}")
            if self.has_receipt(claim):
                self.report.wrong.append(f"the receipt of {claim.ref.name} is left")
            del self.claims[claim.ref.name]

    def has_receipt(self, claim: Claim) -> bool:
        return (self.folder / "cdi" / f"dra.net-claim-{claim.ref.uid}.json").exists()


def _with_own_mac(config: Mapping[str, Any] | None, number: int) -> Mapping[str, Any] | None:
    """Claims that gave their cards one MAC would make them alike, by no fault of the pod's."""
    interface = (config or {}).get("interface", {})
    if "hardwareAddr" not in interface:
        return config
    return {**(config or {}), "interface": {**interface, "hardwareAddr": f"02:00:00:00:aa:{number:02x}"}}
