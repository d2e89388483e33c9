"""Queueing disciplines: read as they are, removed, and put back as they were."""

from __future__ import annotations

from dranet.kernel import codec
from dranet.kernel.links import Link
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.traffic import tc
from dranet.kernel.traffic.tc import Discipline

LIMIT = codec.attribute(0, (33).to_bytes(4, "little"))[4:8]


def put_two(route: NetlinkSocket, link: Link) -> list[Discipline]:
    fifo = Discipline(index=link.index, parent=tc.ROOT, handle=0, kind="pfifo", options=LIMIT)
    gate = Discipline(index=link.index, parent=tc.CLSACT, handle=0xFFFF0000, kind="clsact")
    for one in (fifo, gate):
        route.request(tc.put(one))
    return of(route, link)


def of(route: NetlinkSocket, link: Link) -> list[Discipline]:
    return [one for one in tc.list_disciplines(route) if one.index == link.index and one.is_made]


def test_a_link_has_only_what_somebody_put_there(route: NetlinkSocket, veth: Link) -> None:
    assert of(route, veth) == []
    assert [(one.kind, one.options) for one in put_two(route, veth)] == [("pfifo", LIMIT), ("clsact", b"")]


def test_disciplines_are_removed_and_put_back_as_they_were(route: NetlinkSocket, veth: Link) -> None:
    made = put_two(route, veth)
    for one in made:
        route.request(tc.remove(one))
    assert of(route, veth) == []
    for one in made:
        route.request(tc.put(one))
    assert of(route, veth) == made
