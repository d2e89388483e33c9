"""One sequence: a pod with cards, twenty-five hostile acts, and a node on which things go wrong in between.

Everything comes from the seed, so a seed plays alone what it played among thousands. The sequence plays the kubelet and
the runtime: both ask again what was not answered, and neither waits for a driver that is dead.

What must be so afterwards, whatever happened:

- every card is home and as it was, to the last attribute. A virtual card that the pod has destroyed (deleted, or taken
  into a namespace that died with the pod) cannot come home; then the driver has said so, and nothing else has happened;
- nothing is on the node that was not there before: no link, no rule, no receipt;
- the other pod has not noticed anything;
- the next pod gets the same cards and they work.

In some sequences both pods also have a share of one more card, which stays on the node: an interface made on top of it.
Afterwards none of those is left, and the card is as it was, too.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dranet.driver.faultpoints import POINTS
from dranet.kernel import links
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.model.names import ClaimRef
from tests import pictures
from tests.adversary.acts import ACTS, HIDING, RUINOUS
from tests.adversary.attacker import Pod
from tests.adversary.driver import Claims, Driver, Refusal, device
from tests.adversary.node import Node, same, until
from tests.adversary.objects import CHILD, Claim, Report, Sandbox
from tests.adversary.processes import Died

ACTS_A_SEQUENCE = 25
SHARED_CARDS = 0.35
"""How many sequences have a card that pods have shares of."""
UNPREPARES = 4
"""How often the kubelet asks before the sequence counts as lost; a real one never stops."""
OF_THE_MODE = frozenset({"kind", "flags", "neighbours"})
"""What of a child of IPVLAN its mode decides: L3 asks no neighbours."""
CONFIGS: tuple[Mapping[str, Any] | None, ...] = (
    None,
    {"interface": {"mtu": 1300, "hardwareAddr": "02:00:00:00:aa:01"}},
    {"interface": {"addresses": ["10.77.0.1/24"], "gsoMaxSize": 20000}, "ethtool": {"features": {"tso": False}}},
)


class Sequence:
    """Plays one seed on a node."""

    def __init__(self, seed: int, node: Node, folder: Path) -> None:
        self.report = Report(seed)
        self._random = random.Random(seed)
        self._node = node
        self._folder = folder
        self._driver = Driver(folder, node.namespace.fd)
        self._claims: dict[str, Claim] = {}
        self._sandboxes: list[Sandbox] = []
        self._ended: list[Sandbox] = []
        self._mistakable: set[str] = set()
        """Cards that nobody can tell apart any more: with the store is lost what does not change, and the rest did."""
        self._shared = ""
        """The card that pods have shares of, if there is one."""
        self._excused: set[str] = set()
        """Cards that the pod itself has destroyed, or that died with a namespace while no driver was there."""
        self._unheard_of: set[str] = set()
        """Cards that the pod had hidden when the store was lost: hardware comes home as the kernel leaves it."""

    # The play.

    def run(self) -> Report:
        try:
            self._play()
        except Exception as error:
            self._wrong(f"the play broke off: {type(error).__name__}: {error}")
        finally:
            self.report.deaths = self._driver.deaths
            self._driver.kill()
            for sandbox in [*self._sandboxes, *self._ended]:
                sandbox.inside.kill()
                if sandbox.inside.netns.fd >= 0:
                    sandbox.inside.netns.close()
        return self.report

    def _play(self) -> None:
        self._before = {card: self._node.known_picture(card) for card in self._node.cards}
        tables = self._node.tables()
        cards = list(self._node.cards)
        self._random.shuffle(cards)
        if self._random.random() < SHARED_CARDS:
            self._shared, self.report.shared = cards.pop(), self._random.choice(self._node.kinds_of_children)
        shared = (self._shared,) if self._shared else ()
        functions = self._node.addresses
        self._published = [
            device(self._node.route, card, shared, functions.get(card, "")).device for card in self._node.cards
        ]
        self._driver.start()
        self._tell("synchronize", [])
        other = self._start_pod("other", {"c-other": (cards.pop(),)})
        seen = self._inside(other)
        mine = cards[: self._random.randrange(1, len(cards) + 1)]
        cut = self._random.randrange(len(mine) + 1)
        parts = {"c-1": tuple(mine[:cut]), "c-2": tuple(mine[cut:])}
        self._start_pod("victim", {name: part for name, part in parts.items() if part})
        for step in self._steps():
            step()
        self._end_pod("victim")
        self._settle("victim")
        seen, now = self._but_modes(seen), self._but_modes(self._inside(other))
        if now != seen:
            changed = [words for then, new in zip(seen, now, strict=False) for words in pictures.differences(then, new)]
            self._wrong(f"the other pod was touched: {len(seen)} links then, {len(now)} now; " + "; ".join(changed))
        if not self._mistakable:
            self._check_cards(mine)
            self._check_next(mine)
        self._end_pod("other", quietly=True)
        self._settle("other")
        self._check_cards([card for card in self._node.cards if card not in self._mistakable])
        if not self._mistakable:
            self._check_node(tables)

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
        sandbox = self._sandbox("victim")
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

    def _fault(self, name: str) -> None:
        self.report.faults[name] += 1
        self.report.story.append(f"[{name}]")

    def _kill_driver(self) -> None:
        self._fault("driver killed")
        self._driver.kill()

    def _restart_driver(self) -> None:
        self._fault("driver restarted")
        self._restart()

    def _restart(self, point: str = "") -> None:
        self._driver.kill()
        self._driver.start(point)
        self._tell("synchronize", self._listed())

    def _die_at_a_point(self) -> None:
        """It dies at the next chance: when the pod gets a new sandbox, when it ends, or while it starts again."""
        point = f"{self._random.choice(POINTS)}:{self._random.randrange(1, 4)}"
        self._fault("driver dies at a point")
        self.report.story.append(point)
        self._restart(point)
        if self._random.random() < 0.5:
            self._new_sandbox()

    def _restart_runtime(self) -> None:
        self._fault("runtime restarted")
        self._tell("synchronize", self._listed())

    def _restart_kubelet(self) -> None:
        """It has forgotten what it had prepared, and asks again for every pod."""
        self._fault("kubelet restarted")
        for claim in self._claims.values():
            self._prepare(claim)

    def _new_sandbox(self) -> None:
        """The sandbox dies; the kubelet makes another for the same pod. The runtime says so, late, or never."""
        self._fault("sandbox died")
        old = self._sandbox("victim")
        if old is None:
            return
        self._kill_processes(old)
        told = self._random.choice(("before", "after", "never"))
        if told == "before":
            self._stop(old)
            self._end_namespace(old)
        self._run_sandbox("victim")
        if told == "after":
            self._stop(old)
        if told != "before":
            self._end_namespace(old)

    def _late_stop(self) -> None:
        self._fault("late stop")
        if self._ended:
            self._tell("stop", self._random.choice(self._ended).message())

    def _full_disk(self) -> None:
        self._fault("disk full")
        self._tell("limit", "disk", True)
        self._random.choice((self._restart_runtime, self._new_sandbox, self._restart_kubelet))()
        self._tell("limit", "disk", False)

    def _no_descriptors(self) -> None:
        self._fault("no descriptors left")
        self._tell("limit", "descriptors", True)
        self._random.choice((self._restart_runtime, self._new_sandbox, self._restart_kubelet))()
        self._tell("limit", "descriptors", False)

    def _lose_store(self) -> None:
        self._fault("store lost")
        if {"mac", "mac_of_sibling"} & set(self.report.story):  # a virtual card is known by its MAC alone now
            self._mistakable |= set(self._cards_of("victim"))
            self._fault("store lost, cards alike")
        inside = self._sandbox("victim")
        netns = inside.inside.netns if inside else None
        for card in self._cards_of("victim"):  # nobody knows any more that it ever was in that pod
            if self._node.where(card, netns) in ("elsewhere", "gone"):
                self._excused.add(card)
                self._unheard_of.add(card)
        self._driver.kill()
        self._driver.lose_store()
        self.report.forgotten = True
        self._restart()

    def _successor(self) -> None:
        """The pod is deleted by force and comes back with another UID; the kubelet does not prepare its claims anew."""
        self._fault("successor pod")
        old = self._sandbox("victim")
        if old is None or not self._driver.alive:
            return
        for claim in self._claims.values():
            claim.user = "victim-again" if claim.pod == "victim" else claim.user
        self._kill_processes(old)
        told = self._random.choice(("before", "after"))
        if told == "before":
            self._stop(old)
            self._end_namespace(old)
        self._run_sandbox("victim", uid="victim-again-uid")
        if told == "after":
            self._stop(old)
            self._end_namespace(old)
        if self._driver.alive:
            self._check_successor()

    def _check_successor(self) -> None:
        """It has every card that its predecessor has not destroyed; where one was, it may have none."""
        new = self._sandbox("victim")
        cards = self._cards_of("victim")
        if new is None or any(self._node.where(card, new.inside.netns) in ("gone", "elsewhere") for card in cards):
            return
        if any(self._node.where(card, new.inside.netns) != "pod" for card in cards):
            places = {card: self._node.where(card, new.inside.netns) for card in cards}
            self._wrong(f"the successor did not get its cards: {places}, {self._driver.said[-3:]}")
        if self._shared and CHILD not in self._links_in(new):
            self._wrong(f"the successor did not get its share of {self._shared}: {self._driver.said[-3:]}")

    # The kubelet and the runtime.

    def _tell(self, verb: str, *words: Any) -> Any:
        """What the driver answers; None from a dead one."""
        if not self._driver.alive:
            return None
        pods = {pod: self._pod_object(pod) for pod in {claim.user or claim.pod for claim in self._claims.values()}}
        objects = {name: claim.object() for name, claim in self._claims.items()}
        shared = (self._shared,) if self._shared else ()
        claims = Claims(objects, pods, self._published, shared, dict(self._node.addresses))
        try:
            return self._driver.ask(verb, claims, *words)
        except Died:
            return None

    def _pod_object(self, pod: str) -> dict[str, Any]:
        own = [name for name, claim in self._claims.items() if pod == (claim.user or claim.pod)]
        named = [{"name": name, "resourceClaimName": name} for name in own]
        return {"metadata": {"name": pod, "uid": f"{pod}-uid"}, "spec": {"resourceClaims": named}}

    def _listed(self) -> list[bytes]:
        """Every sandbox there is or was, in any order, some of them twice."""
        found = [sandbox.message() for sandbox in [*self._sandboxes, *self._ended]]
        found += [one for one in found if self._random.random() < 0.3]
        self._random.shuffle(found)
        return found

    def _start_pod(self, pod: str, claims: Mapping[str, tuple[str, ...]]) -> Sandbox:
        for name, cards in claims.items():
            config = self._random.choice(CONFIGS if len(cards) == 1 else CONFIGS[::2])  # one MAC for one card
            config = _with_own_mac(config, len(self._claims))
            self._claims[name] = Claim(ClaimRef("default", name, f"{name}-{pod}"), cards, config, pod)
        if self._shared:
            name, address = f"s-{pod}", f"10.66.0.{1 + len(self._claims)}/24"
            child = {"interface": {"type": self.report.shared, "addresses": [address], "name": CHILD}}
            ref, kept = ClaimRef("default", name, f"{name}-{pod}"), self._node.keeps_bandwidth
            self._claims[name] = Claim(ref, (), child, pod, self._shared, kept)
        for claim in [claim for claim in self._claims.values() if claim.pod == pod]:
            answer = self._prepare(claim)
            if isinstance(answer, Refusal):
                self._wrong(f"claim {claim.ref.name} of {pod} was refused: {answer}")
        sandbox = self._run_sandbox(pod)
        if self._random.random() < 0.2:  # or only now
            for claim in [claim for claim in self._claims.values() if claim.pod == pod]:
                self._tell("follow_up", claim.ref)
        missing = [claim.ref.name for claim in self._claims.values() if claim.pod == pod and not self._receipt(claim)]
        if missing and self._driver.alive:
            self._wrong(f"{pod} started without {missing}: {self._driver.said[-3:]}")
        if self._shared and self._driver.alive and CHILD not in self._links_in(sandbox):
            self._wrong(f"{pod} started without its share of {self._shared}: {self._driver.said[-3:]}")
        return sandbox

    def _links_in(self, sandbox: Sandbox) -> set[str]:
        with NetlinkSocket(namespace_fd=sandbox.inside.netns.fd) as route:
            return {link.name for link in links.list_links(route)}

    def _prepare(self, claim: Claim) -> Any:
        answer = self._tell("prepare", claim.ref)
        if isinstance(answer, list):
            claim.cdi, claim.prepared = answer, True
            if self._random.random() < 0.8:  # else the driver does not come to it before the pod starts
                self._tell("follow_up", claim.ref)
        return answer

    def _run_sandbox(self, pod: str, again: int = 2, uid: str = "") -> Sandbox:
        """A sandbox that is refused is made anew, as the kubelet does; the last one stays without its cards."""
        number = len(self._sandboxes) + len(self._ended)
        own_root = self._random.random() < 0.7
        inside = Pod(own_root, (*self._node.cards, "eth0"), self._folder / "mounts")
        path = self._folder / "netns" / f"{pod}-{number}"
        path.symlink_to(f"/proc/{os.getpid()}/fd/{inside.netns.fd}")
        uid = uid or next((f"{c.user}-uid" for c in self._claims.values() if c.pod == pod and c.user), "")
        sandbox = Sandbox(pod, number, path, inside, uid=uid)
        self._sandboxes.append(sandbox)
        answer = self._tell("run", sandbox.message())
        if not isinstance(answer, Refusal):
            return sandbox
        self.report.story.append(f"(sandbox refused: {answer})")
        if again == 0:
            return sandbox
        self._kill_processes(sandbox)
        self._stop(sandbox)  # a runtime tidies up what was refused
        self._end_namespace(sandbox)
        return self._run_sandbox(pod, again - 1, uid)

    def _sandbox(self, pod: str) -> Sandbox | None:
        return next((sandbox for sandbox in self._sandboxes if sandbox.pod == pod), None)

    def _receipt(self, claim: Claim) -> bool:
        return (self._folder / "cdi" / f"dra.net-claim-{claim.ref.uid}.json").exists()

    def _kill_processes(self, sandbox: Sandbox) -> None:
        """The containers end. What they had taken out of the sandbox's own namespace goes down with them."""
        for card in self._cards_of(sandbox.pod):
            if self._node.where(card, sandbox.inside.netns) in ("elsewhere", "gone"):
                self._excused.add(card)
        sandbox.inside.kill()
        sandbox.runs = False

    def _cards_of(self, pod: str) -> list[str]:
        return [card for claim in self._claims.values() if claim.pod == pod for card in claim.cards]

    def _stop(self, sandbox: Sandbox) -> None:
        self._tell("stop", sandbox.message())

    def _end_namespace(self, sandbox: Sandbox) -> None:
        """The runtime lets go of the namespace, whether the driver has taken its cards out or not."""
        if not self._driver.alive:
            for card in self._cards_of(sandbox.pod):
                if self._node.where(card, sandbox.inside.netns) == "pod":
                    self._excused.add(card)  # nobody was there to fetch it
        sandbox.path.unlink()
        sandbox.inside.netns.close()
        self._sandboxes.remove(sandbox)
        self._ended.append(sandbox)

    def _end_pod(self, pod: str, *, quietly: bool = False) -> None:
        """One of the ways in which pods end."""
        way = "stopped" if quietly else self._random.choice(("stopped", "stopped", "forced", "unsaid"))
        sandbox = self._sandbox(pod)
        if sandbox is None:
            return
        self._fault(f"pod {way}")
        self._kill_processes(sandbox)
        if way == "forced":
            for claim in [claim for claim in self._claims.values() if claim.pod == pod]:
                self._unprepare(claim)
        if way != "unsaid":
            self._stop(sandbox)
        self._end_namespace(sandbox)

    def _unprepare(self, claim: Claim) -> bool:
        if not self._driver.alive:
            return False
        answer = self._tell("unprepare", claim.ref)
        if self._driver.alive and not isinstance(answer, Refusal):
            claim.prepared = False
            return True
        self.report.story.append(f"(unprepare: {answer})")
        return False

    def _settle(self, pod: str) -> None:
        """The kubelet asks until every claim of the pod is unprepared; somebody starts the driver if it is dead."""
        for claim in [claim for claim in self._claims.values() if claim.pod == pod]:
            for _ in range(UNPREPARES):
                if not self._driver.alive:
                    self._restart()
                if self._unprepare(claim):
                    break
                if not self._driver.alive:  # the runtime had let go of the namespace; now nobody holds it
                    self._excused |= set(self._cards_of(pod))
            else:
                self._wrong(f"claim {claim.ref.name} is never unprepared: {self._driver.said[-3:]}")
            if self._receipt(claim):
                self._wrong(f"the receipt of {claim.ref.name} is left")
            del self._claims[claim.ref.name]

    # What must be so.

    def _wrong(self, what: str) -> None:
        self.report.wrong.append(what)

    def _check_cards(self, cards: Iterable[str]) -> None:
        for card in cards:
            until(lambda card=card: self._node.where(card, None) in ("home", "gone"))  # type: ignore[misc]
            if self._node.where(card, None) == "gone" and card in self._excused and not self._node.hardware:
                self.report.destroyed += 1
                if not self._driver.deaths and not any(card in words for words in self._driver.said):
                    self._wrong(f"{card} was destroyed and nobody said so")
                continue
            if self._node.where(card, None) != "home":
                self._wrong(f"{card} is {self._node.where(card, None)}, not home")
                continue
            if card in self._unheard_of and self._node.hardware:
                continue
            before = self._tellable(self._before[card])
            found = same(before, lambda card=card: self._tellable(self._node.picture(card)))  # type: ignore[misc]
            if found:
                self._wrong(f"{card} is not as it was: " + "; ".join(found) + f"; last words: {self._driver.said[-3:]}")
        for card in [] if self._mistakable else self._node.mend():
            self._before[card] = self._node.known_picture(card)
            self._excused.discard(card)

    def _but_modes(self, inside: list[pictures.Picture]) -> list[pictures.Picture]:
        """All children of IPVLAN on a card have one mode, and who makes one more sets it: docs/hostile-pods.md."""
        if "ipvlan" not in self.report.story:
            return inside
        is_child = [b"ipvlan" in picture.get("kind", b"") for picture in inside]
        return [
            {key: value for key, value in picture.items() if not child or key not in OF_THE_MODE}
            for picture, child in zip(inside, is_child, strict=True)
        ]

    def _tellable(self, picture: pictures.Picture) -> pictures.Picture:
        """A card of which a pod had a child of IPVLAN that hears every multicast goes on hearing it: the kernel counts
        them and forgets to count back. docs/hostile-pods.md"""
        ipvlan = "ipvlan" in self.report.story or self.report.shared == "IPVLAN"
        counted = {"allmulti"} if ipvlan and "flags" in self.report.story else set()
        return {key: value for key, value in self._known(picture).items() if key not in counted}

    def _known(self, picture: pictures.Picture) -> pictures.Picture:
        """After a lost store only what was published can be given back: name, MTU, MAC, alias, addresses."""
        if not self.report.forgotten or not picture:
            return picture
        return {key: picture[key] for key in ("name", "mtu", "address", "addresses")}

    def _check_node(self, tables: list[Any]) -> None:
        if self._node.names() != set(self._node.cards):
            self._wrong(f"the node has {sorted(self._node.names())}")
        if self._node.tables() != tables:
            self._wrong("the node's rules have changed")
        if left := list((self._folder / "cdi").iterdir()):
            self._wrong(f"left in the CDI folder: {[path.name for path in left]}")

    def _check_next(self, cards: list[str]) -> None:
        """The next tenant gets the same cards, up and usable, with nothing of its predecessor's."""
        if self.report.wrong:
            return
        self._restart()  # one that does not wait to die
        sandbox = self._start_pod("next", {"c-next": tuple(cards)})
        for card in cards:
            if not until(lambda card=card: self._node.where(card, sandbox.inside.netns) == "pod"):  # type: ignore[misc]
                self._wrong(f"the next pod did not get {card}")
        with NetlinkSocket(namespace_fd=sandbox.inside.netns.fd) as route:
            found = [link for link in links.list_links(route) if not link.is_loopback]
            if not all(link.is_up for link in found):
                self._wrong("a card of the next pod is not up")
        self._end_pod("next", quietly=True)
        self._settle("next")  # how the cards come home from it is looked at with all others

    def _inside(self, sandbox: Sandbox) -> list[pictures.Picture]:
        """Everything in a pod."""
        namespace: Namespace = sandbox.inside.netns
        with NetlinkSocket(namespace_fd=namespace.fd) as route:
            names = sorted(link.name for link in links.list_links(route))
            until(lambda: all(_is_settled(route, name) for name in names))
        return [pictures.take(namespace.fd, name) for name in names]


def _with_own_mac(config: Mapping[str, Any] | None, number: int) -> Mapping[str, Any] | None:
    """Claims that gave their cards one MAC would make them alike, by no fault of the pod's."""
    interface = (config or {}).get("interface", {})
    if "hardwareAddr" not in interface:
        return config
    return {**(config or {}), "interface": {**interface, "hardwareAddr": f"02:00:00:00:aa:{number:02x}"}}


def _is_settled(route: NetlinkSocket, name: str) -> bool:
    """Asked one by one: then the kernel looks at the carrier now; in a list it is up to a second behind."""
    link = links.get_link(route, name)
    return link is None or not link.is_up or link.operstate != "down"
