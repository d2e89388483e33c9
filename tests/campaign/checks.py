"""What must hold after a sequence, whatever happened in it.

- Every NIC is on the host and as before, in every attribute. A virtual NIC that the pod destroyed (deleted, or moved
  into a namespace that was removed with the pod) cannot return; then the driver has logged it.
- The host has nothing that it did not have before: no link, no rule, no readiness gate.
- The other pod is unchanged.
- The next pod gets the same NICs and they work.
"""

from __future__ import annotations

from collections.abc import Iterable

from dranet.linux import links
from dranet.linux.netlink import NetlinkSocket
from tests import accepted, pictures
from tests.campaign.cluster_objects import CHILD, Sandbox
from tests.campaign.fake_cluster import FakeCluster
from tests.campaign.node import comes_true, same


class Checks:
    """Compares with the state before the first pod."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster, self._node, self._report = cluster, cluster.node, cluster.report
        self._before = {nic: self._node.known_picture(nic) for nic in self._node.nics}
        self._tables = self._node.tables()
        self.indistinguishable: set[str] = set()
        """NICs that cannot be distinguished: the store with their identity is lost, and the pod changed the rest."""
        self.lost_with_store: set[str] = set()
        """NICs that the pod had hidden when the store was lost: hardware returns as the kernel leaves it."""

    def nics(self, nics: Iterable[str]) -> None:
        for nic in nics:
            comes_true(lambda nic=nic: self._node.where(nic, None) in ("host", "gone"))  # type: ignore[misc]
            if self._node.where(nic, None) == "gone" and nic in self._cluster.excused and not self._node.hardware:
                self._report.destroyed += 1
                if not self._cluster.driver.deaths and not any(nic in words for words in self._cluster.driver.messages):
                    self._wrong(f"{nic} was destroyed and the driver did not log it")
                continue
            if self._node.where(nic, None) != "host":
                self._wrong(f"{nic} is {self._node.where(nic, None)}, not on the host")
                continue
            if nic in self.lost_with_store and self._node.hardware:
                continue
            before = self._comparable(self._before[nic])
            found = same(before, lambda nic=nic: self._comparable(self._node.picture(nic)))  # type: ignore[misc]
            if found:
                self._wrong(f"{nic} changed: {'; '.join(found)}; last log lines: {self._cluster.driver.messages[-3:]}")
            if self._may_be_allmulti():
                self._node.known.pop(nic, None)  # the next sequence compares with the state after this one
        for nic in [] if self.indistinguishable else self._node.recreate_missing():
            self._before[nic] = self._node.known_picture(nic)
            self._cluster.excused.discard(nic)

    def node(self) -> None:
        if self._node.names() != set(self._node.nics):
            self._wrong(f"the node has {sorted(self._node.names())}")
        if self._node.tables() != self._tables:
            self._wrong("the node's rules have changed")
        if left := list((self._cluster.folder / "cdi").iterdir()):
            self._wrong(f"left in the CDI folder: {[path.name for path in left]}")

    def other_pod(self, seen: list[pictures.Picture], now: list[pictures.Picture]) -> None:
        """A pod that had nothing to do with the attacks."""
        seen, now = self._but_modes(seen), self._but_modes(now)
        if now != seen:
            changed = [one for then, new in zip(seen, now, strict=False) for one in pictures.differences(then, new)]
            self._wrong(f"the other pod was touched: {len(seen)} links then, {len(now)} now; " + "; ".join(changed))

    def watched(self, pod: str, events: list[str]) -> None:
        """No link left a pod, or went down in it, while it ran."""
        if events:
            self._wrong(f"the pod {pod} lost links while it ran: {events}")

    def successor(self, new: Sandbox) -> None:
        """It has every NIC that its predecessor has not destroyed, or none; and no container starts without its NICs.

        A NIC that was hidden when the store was lost is unknown: docs/evidence/malicious-pods.md."""
        places = {nic: self._node.where(nic, new.inside.netns) for nic in self._cluster.nics_of(new.pod)}
        for claim in self._cluster.claims_of(new.pod):
            if self._cluster.has_gate(claim) and any(places[nic] != "pod" for nic in claim.nics):
                self._wrong(f"a container of the successor could start without its NICs: {places}")
        if {"gone", "elsewhere"} & set(places.values()) or self.lost_with_store & set(places):
            return
        if any(place != "pod" for place in places.values()):
            self._wrong(f"the successor did not get its NICs: {places}, {self._cluster.driver.messages[-3:]}")
        shared = self._cluster.shared
        if shared and CHILD not in self._cluster.links_in(new):
            self._wrong(f"the successor did not get its share of {shared}: {self._cluster.driver.messages[-3:]}")

    def next_pod(self, nics: list[str]) -> None:
        """The next pod gets the same NICs, up and usable."""
        if self._report.wrong:
            return
        self._cluster.restart_driver()  # without a fault point
        sandbox = self._cluster.start_pod("next", {"c-next": tuple(nics)})
        for nic in nics:
            if not comes_true(lambda nic=nic: self._node.where(nic, sandbox.inside.netns) == "pod"):  # type: ignore[misc]
                self._wrong(f"the next pod did not get {nic}")
        with NetlinkSocket(namespace_fd=sandbox.inside.netns.fd) as route:
            found = [link for link in links.list_links(route) if not link.is_loopback]
            if not all(link.is_up for link in found):
                self._wrong("a NIC of the next pod is not up")
        self._cluster.end_pod("next")
        self._cluster.unprepare_all("next")  # its NICs are checked with all others

    def _wrong(self, what: str) -> None:
        self._report.wrong.append(what)

    def _but_modes(self, inside: list[pictures.Picture]) -> list[pictures.Picture]:
        if "ipvlan" not in self._report.steps:
            return inside
        is_child = [b"ipvlan" in picture.get("kind", b"") for picture in inside]
        return [
            {key: value for key, value in picture.items() if not child or key not in accepted.IPVLAN_MODE}
            for picture, child in zip(inside, is_child, strict=True)
        ]

    def _comparable(self, picture: pictures.Picture) -> pictures.Picture:
        counted = accepted.IPVLAN_ALLMULTI if self._may_be_allmulti() else frozenset()
        return {key: value for key, value in self._known(picture).items() if key not in counted}

    def _may_be_allmulti(self) -> bool:
        ipvlan = "ipvlan" in self._report.steps or self._report.shared == "IPVLAN"
        return ipvlan and "flags" in self._report.steps

    def _known(self, picture: pictures.Picture) -> pictures.Picture:
        if not self._report.store_lost or not picture:
            return picture
        return {key: picture[key] for key in accepted.KNOWN_AFTER_LOST_STORE}


def inside(sandbox: Sandbox) -> list[pictures.Picture]:
    """The state of all links in a pod."""
    namespace = sandbox.inside.netns
    with NetlinkSocket(namespace_fd=namespace.fd) as route:
        names = sorted(link.name for link in links.list_links(route))
        comes_true(lambda: all(_is_settled(route, name) for name in names))
    found = pictures.take_all(namespace.fd, names)
    return [found[name] for name in names]


def _is_settled(route: NetlinkSocket, name: str) -> bool:
    """One by one: then the kernel reads the carrier now; in a dump it may be up to a second old."""
    link = links.get_link(route, name)
    return link is None or not link.is_up or link.operstate != "down"
