"""One sequence: a pod with cards, twenty-five hostile acts, and a node on which things go wrong in between.

Everything comes from the seed, so a seed plays alone what it played among thousands. What must be so afterwards stands
in `checks`; who asks the driver in between, in `played`.

In some sequences both pods also have a share of one more card, which stays on the node: an interface made on top of it.
Afterwards none of those is left, and the card is as it was, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from dranet.driver.faultpoints import POINTS
from tests.adversary.acts import ACTS, HIDING, RUINOUS
from tests.adversary.checks import Checks, inside
from tests.adversary.node import Node
from tests.adversary.objects import Report
from tests.adversary.played import Played

ACTS_A_SEQUENCE = 25
SHARED_CARDS = 0.35
"""How many sequences have a card that pods have shares of."""


class Sequence:
    """Plays one seed on a node."""

    def __init__(self, seed: int, node: Node, folder: Path) -> None:
        self.report = Report(seed)
        self._random = random.Random(seed)
        self._node = node
        self._played = Played(self.report, self._random, node, folder)
        self._driver = self._played.driver

    def run(self) -> Report:
        try:
            self._play()
        except Exception as error:
            self.report.wrong.append(f"the play broke off: {type(error).__name__}: {error}")
        finally:
            self.report.deaths = self._driver.deaths
            self._played.close()
        return self.report

    def _play(self) -> None:
        self._checks = Checks(self._played)
        cards = list(self._node.cards)
        self._random.shuffle(cards)
        if self._random.random() < SHARED_CARDS:
            self._played.shared, self.report.shared = cards.pop(), self._random.choice(self._node.kinds_of_children)
        self._played.publish()
        self._driver.start()
        self._played.tell("synchronize", [])
        other = self._played.start_pod("other", {"c-other": (cards.pop(),)})
        seen = inside(other)
        mine = cards[: self._random.randrange(1, len(cards) + 1)]
        cut = self._random.randrange(len(mine) + 1)
        parts = {"c-1": tuple(mine[:cut]), "c-2": tuple(mine[cut:])}
        self._played.start_pod("victim", {name: part for name, part in parts.items() if part})
        for step in self._steps():
            step()
        self._played.end_pod("victim", self._random.choice(("stopped", "stopped", "forced", "unsaid")))
        self._played.settle("victim")
        self._checks.other_pod(seen, inside(other))
        if not self._checks.mistakable:
            self._checks.cards(mine)
            self._checks.next_pod(mine)
        self._played.end_pod("other")
        self._played.settle("other")
        self._checks.cards([card for card in self._node.cards if card not in self._checks.mistakable])
        if not self._checks.mistakable:
            self._checks.node()

    def _steps(self) -> list[Callable[[], None]]:
        names = [self._choice() for _ in range(ACTS_A_SEQUENCE)]
        steps: list[Callable[[], None]] = [lambda name=name: self._act(name) for name in names]  # type: ignore[misc]
        faults = [
            self._kill_driver,
            self._restart_driver,
            self._restart_driver,
            self._die_at_a_point,
            self._die_at_a_point,
            self._restart_runtime,
            self._restart_kubelet,
            self._new_sandbox,
            self._late_stop,
            self._full_disk,
            self._no_descriptors,
            self._lose_store,
            self._successor,
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
        sandbox = self._played.sandbox("victim")
        seed = self._random.randrange(1 << 32)
        if sandbox is None or not sandbox.inside.alive:
            return
        outcome = sandbox.inside.act(name, seed)
        if name == "die" or outcome == "died":
            sandbox.runs = False
        if outcome != "nothing":
            self.report.acts[name, "done" if outcome == "died" else outcome] += 1
        if outcome == "done":
            self.report.story.append(name)

    # Faults of the node.

    def _kill_driver(self) -> None:
        self.report.fault("driver killed")
        self._driver.kill()

    def _restart_driver(self) -> None:
        self.report.fault("driver restarted")
        self._played.restart_driver()

    def _die_at_a_point(self) -> None:
        """It dies at the next chance: when the pod gets a new sandbox, when it ends, or while it starts again."""
        point = f"{self._random.choice(POINTS)}:{self._random.randrange(1, 4)}"
        self.report.fault("driver dies at a point")
        self.report.story.append(point)
        self._played.restart_driver(point)
        if self._random.random() < 0.5:
            self._new_sandbox()

    def _restart_runtime(self) -> None:
        self.report.fault("runtime restarted")
        self._played.tell("synchronize", self._played.listed())

    def _restart_kubelet(self) -> None:
        """It has forgotten what it had prepared, and asks again for every pod."""
        self.report.fault("kubelet restarted")
        for claim in self._played.claims.values():
            self._played.prepare(claim)

    def _new_sandbox(self) -> None:
        """The sandbox dies; the kubelet makes another for the same pod. The runtime says so, late, or never."""
        self.report.fault("sandbox died")
        old = self._played.sandbox("victim")
        if old is None:
            return
        self._played.kill_processes(old)
        told = self._random.choice(("before", "after", "never"))
        if told == "before":
            self._played.stop(old)
            self._played.end_namespace(old)
        self._played.run_sandbox("victim")
        if told == "after":
            self._played.stop(old)
        if told != "before":
            self._played.end_namespace(old)

    def _late_stop(self) -> None:
        self.report.fault("late stop")
        if self._played.ended:
            self._played.tell("stop", self._random.choice(self._played.ended).message())

    def _full_disk(self) -> None:
        self.report.fault("disk full")
        self._short_of("disk")

    def _no_descriptors(self) -> None:
        self.report.fault("no descriptors left")
        self._short_of("descriptors")

    def _short_of(self, what: str) -> None:
        self._played.tell("limit", what, True)
        self._random.choice((self._restart_runtime, self._new_sandbox, self._restart_kubelet))()
        self._played.tell("limit", what, False)

    def _lose_store(self) -> None:
        self.report.fault("store lost")
        if {"mac", "mac_of_sibling"} & set(self.report.story):  # a virtual card is known by its MAC alone now
            self._checks.mistakable |= set(self._played.cards_of("victim"))
            self.report.fault("store lost, cards alike")
        sandbox = self._played.sandbox("victim")
        netns = sandbox.inside.netns if sandbox else None
        for card in self._played.cards_of("victim"):  # nobody knows any more that it ever was in that pod
            if self._node.where(card, netns) in ("elsewhere", "gone"):
                self._played.excused.add(card)
                self._checks.unheard_of.add(card)
        self._driver.kill()
        self._driver.lose_store()
        self.report.forgotten = True
        self._played.restart_driver()

    def _successor(self) -> None:
        """The pod is deleted by force and comes back with another UID; the kubelet does not prepare its claims anew.

        It may have begun to unprepare them for the first pod. Were that done, it would forget them for both.
        """
        self.report.fault("successor pod")
        old = self._played.sandbox("victim")
        if old is None or not self._driver.alive:
            return
        for claim in self._played.claims_of("victim"):
            claim.user = "victim-again"
        self._played.kill_processes(old)
        told = self._random.choice(("before", "after"))
        if told == "before":
            self._played.stop(old)
            self._played.end_namespace(old)
        if self._random.random() < 0.5:
            self._unprepare_too_late()
        self._played.run_sandbox("victim", uid="victim-again-uid")
        if told == "after":
            self._played.stop(old)
            self._played.end_namespace(old)
        new = self._played.sandbox("victim")
        if self._driver.alive and new is not None:
            self._checks.successor(new)

    def _unprepare_too_late(self) -> None:
        for claim in self._played.claims_of("victim"):
            if self._played.unprepare(claim) and not self.report.forgotten:
                self.report.wrong.append(f"{claim.ref.name} was unprepared while its next pod starts")
