"""One sequence: a pod with devices, twenty-five attacks, and faults of the node in between.

Everything depends on the seed, so a seed does alone what it did among thousands. `checks` has what must hold
afterwards, `fake_cluster` calls the driver in between. In some sequences both pods also have a child link of one more
NIC, which stays on the host.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from dranet.node.claim_states import crash_points
from tests.campaign.attacks import ACTS, HIDING, RUINOUS
from tests.campaign.checks import Checks, inside
from tests.campaign.cluster_objects import Report
from tests.campaign.fake_cluster import FakeCluster
from tests.campaign.node import NOT_SHARED, Node
from tests.campaign.watcher import Watcher

ACTS_A_SEQUENCE = 25
SHARED_CARDS = 0.35
"""The part of the sequences with a NIC that pods share."""


class Sequence:
    """Runs one seed on a node."""

    def __init__(self, seed: int, node: Node, folder: Path) -> None:
        self.report = Report(seed)
        self._random = random.Random(seed)
        self._node = node
        self._cluster = FakeCluster(self.report, self._random, node, folder)
        self._driver = self._cluster.driver

    def run(self) -> Report:
        try:
            self._run_steps()
        except Exception as error:
            self.report.wrong.append(f"the sequence raised {type(error).__name__}: {error}")
        finally:
            self.report.deaths = self._driver.deaths
            self._cluster.close()
        return self.report

    def _run_steps(self) -> None:
        self._checks = Checks(self._cluster)
        nics = list(self._node.nics)
        self._random.shuffle(nics)
        if self._random.random() < SHARED_CARDS:
            self._cluster.shared = next(nic for nic in nics if nic not in NOT_SHARED)
            nics.remove(self._cluster.shared)
            self.report.shared = self._random.choice(self._node.kinds_of_children)
        self._cluster.publish()
        self._driver.start()
        self._cluster.call("synchronize", [])
        other = self._cluster.start_pod("other", {"c-other": (nics.pop(),)})
        seen, watcher = inside(other), Watcher(other.inside.netns)
        mine = nics[: self._random.randrange(1, len(nics) + 1)]
        cut = self._random.randrange(len(mine) + 1)
        parts = {"c-1": tuple(mine[:cut]), "c-2": tuple(mine[cut:])}
        self._cluster.start_pod("victim", {name: part for name, part in parts.items() if part})
        try:
            for step in self._steps():
                step()
        finally:
            self._checks.watched("other", watcher.stop())
        self._cluster.end_pod("victim", self._random.choice(("stopped", "stopped", "forced", "removed without a hook")))
        self._cluster.unprepare_all("victim")
        self._checks.other_pod(seen, inside(other))
        if not self._checks.indistinguishable:
            self._checks.nics(mine)
            self._checks.next_pod(mine)
        self._cluster.end_pod("other")
        self._cluster.unprepare_all("other")
        self._checks.nics([nic for nic in self._node.nics if nic not in self._checks.indistinguishable])
        if not self._checks.indistinguishable:
            self._checks.node()

    def _steps(self) -> list[Callable[[], None]]:
        names = [self._choice() for _ in range(ACTS_A_SEQUENCE)]
        steps: list[Callable[[], None]] = [lambda name=name: self._act(name) for name in names]  # type: ignore[misc]
        faults = [
            self._kill_driver,
            self._restart_driver,
            self._restart_driver,
            self._kill_at_fault_point,
            self._kill_at_fault_point,
            self._restart_runtime,
            self._restart_kubelet,
            self._new_sandbox,
            self._late_stop,
            self._full_disk,
            self._no_descriptors,
            self._lose_store,
            self._successor,
            self._unplug,
            self._damage_store,
        ]
        for fault in self._random.sample(faults, self._random.randrange(5)):
            steps.insert(self._random.randrange(len(steps) + 1), fault)
        return steps

    def _choice(self) -> str:
        dice = self._random.random()
        if dice < 0.015:
            return self._random.choice(sorted(RUINOUS))
        if dice < 0.04:
            return self._random.choice(sorted(HIDING))
        return self._random.choice([name for name in ACTS if name not in RUINOUS | HIDING])

    def _act(self, name: str) -> None:
        sandbox = self._cluster.sandbox("victim")
        seed = self._random.randrange(1 << 32)
        if sandbox is None or not sandbox.inside.alive:
            return
        outcome = sandbox.inside.act(name, seed)
        if name == "die" or outcome == "died":
            sandbox.runs = False
        if outcome != "nothing":
            self.report.acts[name, "done" if outcome == "died" else outcome] += 1
        if outcome == "done":
            self.report.steps.append(name)

    # Faults of the node.

    def _kill_driver(self) -> None:
        self.report.fault("driver killed")
        self._driver.kill()

    def _restart_driver(self) -> None:
        self.report.fault("driver restarted")
        self._cluster.restart_driver()

    def _kill_at_fault_point(self) -> None:
        """It is killed at the next chance: with a new sandbox of the pod, when the pod ends, or while it starts."""
        point = f"{self._random.choice(list(crash_points()))}:{self._random.randrange(1, 4)}"
        self.report.fault("driver killed at a fault point")
        self.report.steps.append(point)
        self._cluster.restart_driver(point)
        if self._random.random() < 0.5:
            self._new_sandbox()

    def _restart_runtime(self) -> None:
        self.report.fault("runtime restarted")
        self._cluster.synchronize()

    def _restart_kubelet(self) -> None:
        """It prepares the claims of every pod again."""
        self.report.fault("kubelet restarted")
        for claim in self._cluster.claims.values():
            self._cluster.prepare(claim)

    def _new_sandbox(self) -> None:
        """The sandbox dies and the kubelet creates another one. The stop hook comes in time, late, or never."""
        self.report.fault("sandbox died")
        old = self._cluster.sandbox("victim")
        if old is None:
            return
        self._cluster.kill_processes(old)
        hook = self._random.choice(("before", "after", "never"))
        if hook == "before":
            self._cluster.stop(old)
            self._cluster.end_namespace(old)
        self._cluster.run_sandbox("victim")
        if hook == "after":
            self._cluster.stop(old)
        if hook != "before":
            self._cluster.end_namespace(old)

    def _late_stop(self) -> None:
        self.report.fault("late stop")
        if self._cluster.ended:
            self._cluster.call("stop", self._random.choice(self._cluster.ended).message())

    def _full_disk(self) -> None:
        self.report.fault("disk full")
        self._run_short_of("disk")

    def _no_descriptors(self) -> None:
        self.report.fault("no descriptors left")
        self._run_short_of("descriptors")

    def _run_short_of(self, what: str) -> None:
        self._cluster.call("limit", what, True)
        self._random.choice((self._restart_runtime, self._new_sandbox, self._restart_kubelet))()
        self._cluster.call("limit", what, False)

    def _lose_store(self) -> None:
        self.report.fault("store lost")
        if {"mac", "mac_of_sibling"} & set(self.report.steps):  # now only the MAC identifies a virtual NIC
            self._checks.indistinguishable |= set(self._cluster.nics_of("victim"))
            self.report.fault("store lost, NICs indistinguishable")
        sandbox = self._cluster.sandbox("victim")
        netns = sandbox.inside.netns if sandbox else None
        for nic in self._cluster.nics_of("victim"):  # no record says that it was in that pod
            if self._node.where(nic, netns) in ("elsewhere", "gone"):
                self._cluster.excused.add(nic)
                self._checks.lost_with_store.add(nic)
        self._driver.kill()
        self._driver.lose_store()
        self.report.store_lost = True
        self._cluster.restart_driver()

    def _unplug(self) -> None:
        """A NIC dies under the running pod, and then the driver is updated."""
        sandbox = self._cluster.sandbox("victim")
        inside = sorted(self._cluster.nics_inside(sandbox)) if sandbox else []
        if sandbox is None or not sandbox.runs or not inside or not self._node.unplug(inside[0]):
            return
        self.report.fault("NIC died under a running pod")
        self._cluster.excused.add(inside[0])
        reported = len(self._driver.reports)
        self._cluster.restart_driver()
        if self._driver.alive and not any(inside[0] in one for one in self._driver.reports[reported:]):
            self.report.wrong.append(f"{inside[0]} died under its pod, and no event and no status says so")

    def _damage_store(self) -> None:
        """The file of a running driver is overwritten; the driver knows everything that was in it."""
        if self._driver.alive:
            self.report.fault("store damaged")
            self._driver.damage_store()
            self._random.choice((self._restart_runtime, self._new_sandbox, self._restart_kubelet))()

    def _successor(self) -> None:
        """The pod is force-deleted and recreated with another UID; the kubelet does not prepare its claims again.

        It may have begun to unprepare them for the first pod. If that succeeded, it would forget them for both.
        """
        self.report.fault("successor pod")
        old = self._cluster.sandbox("victim")
        if old is None or not self._driver.alive:
            return
        for claim in self._cluster.claims_of("victim"):
            claim.user = "victim-again"
        self._cluster.kill_processes(old)
        hook = self._random.choice(("before", "after"))
        if hook == "before":
            self._cluster.stop(old)
            self._cluster.end_namespace(old)
        if self._random.random() < 0.5:
            self._unprepare_too_late()
        self._cluster.run_sandbox("victim", uid="victim-again-uid")
        if hook == "after":
            self._cluster.stop(old)
            self._cluster.end_namespace(old)
        new = self._cluster.sandbox("victim")
        if self._driver.alive and new is not None:
            self._checks.successor(new)

    def _unprepare_too_late(self) -> None:
        for claim in self._cluster.claims_of("victim"):
            if self._cluster.unprepare(claim) and not self.report.store_lost:
                self.report.wrong.append(f"{claim.ref.name} was unprepared while its next pod starts")
