"""The kubelet, the runtime and the API server of a sequence.

The kubelet and the runtime retry, and neither waits for a dead driver. The runtime lists sandboxes in any order,
stopped ones too and some of them twice; its stop hook may come late or never.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dranet.core.names import ClaimRef
from dranet.linux import links
from dranet.linux.netlink import NetlinkSocket
from tests.campaign.attacker import Pod
from tests.campaign.cluster_objects import CHILD, Claim, Report, Sandbox
from tests.campaign.driver import NODE, Claims, Driver, Refusal, device
from tests.campaign.node import Node
from tests.campaign.processes import Died

UNPREPARES = 4
"""How often the kubelet retries before the sequence fails; a real one never stops."""
CONFIGS: tuple[Mapping[str, Any] | None, ...] = (
    None,
    {"interface": {"mtu": 1300, "hardwareAddr": "02:00:00:00:aa:01"}},
    {"interface": {"addresses": ["10.77.0.1/24"], "gsoMaxSize": 20000}, "ethtool": {"features": {"tso": False}}},
)


class FakeCluster:
    """Everything that calls the driver."""

    def __init__(self, report: Report, dice: random.Random, node: Node, folder: Path) -> None:
        self.report, self.node, self.folder = report, node, folder
        self.driver = Driver(folder, node.namespace.fd)
        self.claims: dict[str, Claim] = {}
        self.sandboxes: list[Sandbox] = []
        self.ended: list[Sandbox] = []
        self.shared = ""
        """The NIC that pods share, or empty."""
        self.excused: set[str] = set()
        """NICs that the pod destroyed, or that were removed with a namespace while no driver ran."""
        self._dice = dice
        self._completed: set[str] = set()
        """Completed pods; claims may still be reserved for them."""

    def publish(self) -> None:
        """Publish the NICs as they are now."""
        functions = self.node.addresses
        found = [device(self.node.route, nic, self._shared, functions.get(nic, "")) for nic in self.node.nics]
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

    def call(self, verb: str, *words: Any) -> Any:
        """The result of the driver; None from a dead one."""
        if not self.driver.alive:
            return None
        pods = {pod: self._pod_object(pod) for pod in {claim.user or claim.pod for claim in self.claims.values()}}
        objects = {name: claim.object() for name, claim in self.claims.items()}
        claims = Claims(objects, pods, self._published, self._shared, dict(self.node.addresses))
        try:
            return self.driver.call(verb, claims, *words)
        except Died:
            return None

    def restart_driver(self, point: str = "") -> None:
        self.driver.kill()
        self.driver.start(point)
        self.synchronize()

    def synchronize(self) -> None:
        """The runtime lists its sandboxes. No running pod may lose a device by that, whatever is repaired."""
        before = {sandbox.number: self.nics_inside(sandbox) for sandbox in self.sandboxes}
        self.call("synchronize", self.listed())
        for sandbox in self.sandboxes:
            lost = before[sandbox.number] - self.nics_inside(sandbox)
            if lost and sandbox.runs and self.driver.alive:
                self.report.wrong.append(f"a repair took {sorted(lost)} out of {sandbox.pod}, which runs")

    def nics_inside(self, sandbox: Sandbox) -> set[str]:
        """The NICs of a pod that are in it, by what the node's network shows."""
        return {nic for nic in self.nics_of(sandbox.pod) if self.node.where(nic, sandbox.inside.netns) == "pod"}

    def _pod_object(self, pod: str) -> dict[str, Any]:
        own = [name for name, claim in self.claims.items() if pod == (claim.user or claim.pod)]
        named = [{"name": name, "resourceClaimName": name} for name in own]
        return {
            "metadata": {"name": pod, "uid": f"{pod}-uid"},
            "spec": {"nodeName": NODE, "resourceClaims": named},
            "status": {"phase": "Failed" if pod in self._completed else "Running"},
        }

    # Pods and their sandboxes.

    def start_pod(self, pod: str, claims: Mapping[str, tuple[str, ...]]) -> Sandbox:
        for name, nics in claims.items():
            config = self._dice.choice(CONFIGS if len(nics) == 1 else CONFIGS[::2])  # one MAC for one NIC
            config = _with_own_mac(config, len(self.claims))
            self.claims[name] = Claim(ClaimRef("default", name, f"{name}-{pod}"), nics, config, pod)
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
        if self._dice.random() < 0.2:  # the work after the reply may come so late
            for claim in self.claims_of(pod):
                self.call("after_reply", claim.ref)
        missing = [claim.ref.name for claim in self.claims_of(pod) if not self.has_gate(claim)]
        if missing and self.driver.alive:
            self.report.wrong.append(f"{pod} started without {missing}: {self.driver.messages[-3:]}")
        if self.shared and self.driver.alive and CHILD not in self.links_in(sandbox):
            self.report.wrong.append(f"{pod} started without its share of {self.shared}: {self.driver.messages[-3:]}")
        return sandbox

    def run_sandbox(self, pod: str, again: int = 2, uid: str = "") -> Sandbox:
        """A refused sandbox is created again, as the kubelet does; the last one stays without its devices."""
        number = len(self.sandboxes) + len(self.ended)
        own_root = self._dice.random() < 0.7
        inside = Pod(own_root, (*self.node.nics, "eth0"), self.folder / "mounts")
        path = self.folder / "netns" / f"{pod}-{number}"
        path.symlink_to(f"/proc/{os.getpid()}/fd/{inside.netns.fd}")
        uid = uid or next((f"{c.user}-uid" for c in self.claims.values() if c.pod == pod and c.user), "")
        sandbox = Sandbox(pod, number, path, inside, uid=uid)
        self.sandboxes.append(sandbox)
        answer = self.call("run", sandbox.message())
        if not isinstance(answer, Refusal):
            return sandbox
        self.report.steps.append(f"(sandbox refused: {answer})")
        if again == 0:
            return sandbox
        self.kill_processes(sandbox)
        self.stop(sandbox)  # a runtime stops a refused sandbox
        self.end_namespace(sandbox)
        return self.run_sandbox(pod, again - 1, uid)

    def sandbox(self, pod: str) -> Sandbox | None:
        return next((sandbox for sandbox in self.sandboxes if sandbox.pod == pod), None)

    def listed(self) -> list[bytes]:
        """All sandboxes, stopped ones too, in any order and some of them twice."""
        found = [sandbox.message() for sandbox in [*self.sandboxes, *self.ended]]
        found += [one for one in found if self._dice.random() < 0.3]
        self._dice.shuffle(found)
        return found

    def kill_processes(self, sandbox: Sandbox) -> None:
        """Kill the containers. Links that they moved out of the sandbox's namespace are removed with them."""
        for nic in self.nics_of(sandbox.pod):
            if self.node.where(nic, sandbox.inside.netns) in ("elsewhere", "gone"):
                self.excused.add(nic)
        sandbox.inside.kill()
        sandbox.runs = False

    def stop(self, sandbox: Sandbox) -> None:
        self.call("stop", sandbox.message())

    def end_namespace(self, sandbox: Sandbox) -> None:
        """The runtime removes the namespace, whether the driver has detached its devices or not."""
        if not self.driver.alive:
            for nic in self.nics_of(sandbox.pod):
                if self.node.where(nic, sandbox.inside.netns) == "pod":
                    self.excused.add(nic)  # no driver could detach it
        sandbox.path.unlink()
        sandbox.inside.netns.close()
        self.sandboxes.remove(sandbox)
        self.ended.append(sandbox)

    def end_pod(self, pod: str, way: str = "stopped") -> None:
        """Stopped; force-deleted, so that its claims are unprepared first; or removed without a stop hook."""
        self._completed |= {claim.user or claim.pod for claim in self.claims_of(pod)}
        sandbox = self.sandbox(pod)
        if sandbox is None:
            return
        self.report.fault(f"pod {way}")
        self.kill_processes(sandbox)
        if way == "forced":
            for claim in self.claims_of(pod):
                self.unprepare(claim)
        if way != "removed without a hook":
            self.stop(sandbox)
        self.end_namespace(sandbox)

    def nics_of(self, pod: str) -> list[str]:
        return [nic for claim in self.claims_of(pod) for nic in claim.nics]

    def claims_of(self, pod: str) -> list[Claim]:
        return [claim for claim in self.claims.values() if claim.pod == pod]

    def links_in(self, sandbox: Sandbox) -> set[str]:
        with NetlinkSocket(namespace_fd=sandbox.inside.netns.fd) as route:
            return {link.name for link in links.list_links(route)}

    # Claims.

    def prepare(self, claim: Claim) -> Any:
        answer = self.call("prepare", claim.ref)
        if isinstance(answer, list):
            claim.cdi, claim.prepared = answer, True
            if self._dice.random() < 0.8:  # else the pod starts before the driver gets to it
                self.call("after_reply", claim.ref)
        return answer

    def unprepare(self, claim: Claim) -> bool:
        if not self.driver.alive:
            return False
        answer = self.call("unprepare", claim.ref)
        if self.driver.alive and not isinstance(answer, Refusal):
            claim.prepared = False
            return True
        self.report.steps.append(f"(unprepare: {answer})")
        return False

    def unprepare_all(self, pod: str) -> None:
        """Unprepare every claim of the pod, with retries; start the driver if it is dead."""
        for claim in self.claims_of(pod):
            for _ in range(UNPREPARES):
                if not self.driver.alive:
                    self.restart_driver()
                if self.unprepare(claim):
                    break
                if not self.driver.alive:  # the runtime has removed the namespace, and no driver holds it open
                    self.excused |= set(self.nics_of(pod))
            else:
                self.report.wrong.append(f"claim {claim.ref.name} is never unprepared: {self.driver.messages[-3:]}")
            if self.has_gate(claim):
                self.report.wrong.append(f"the readiness gate of {claim.ref.name} is left")
            del self.claims[claim.ref.name]

    def has_gate(self, claim: Claim) -> bool:
        return (self.folder / "cdi" / f"dra.net-claim-{claim.ref.uid}.json").exists()


def _with_own_mac(config: Mapping[str, Any] | None, number: int) -> Mapping[str, Any] | None:
    """A MAC for each claim: with the same MAC their NICs could not be distinguished."""
    interface = (config or {}).get("interface", {})
    if "hardwareAddr" not in interface:
        return config
    return {**(config or {}), "interface": {**interface, "hardwareAddr": f"02:00:00:00:aa:{number:02x}"}}
