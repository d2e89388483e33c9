"""Qdiscs are read, deleted, and restored unchanged."""

from __future__ import annotations

from dranet.linux import codec
from dranet.linux.links import Link
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.traffic import tc
from dranet.linux.traffic.tc import Qdisc

LIMIT = codec.attribute(0, (33).to_bytes(4, "little"))[4:8]


def put_two(route: NetlinkSocket, link: Link) -> list[Qdisc]:
    fifo = Qdisc(index=link.index, parent=tc.ROOT, handle=0, kind="pfifo", options=LIMIT)
    gate = Qdisc(index=link.index, parent=tc.CLSACT, handle=0xFFFF0000, kind="clsact")
    for one in (fifo, gate):
        route.request(tc.replace_qdisc(one))
    return of(route, link)


def of(route: NetlinkSocket, link: Link) -> list[Qdisc]:
    return [one for one in tc.list_qdiscs(route) if one.index == link.index and one.is_configured]


def test_the_default_qdisc_is_not_listed_as_configured(route: NetlinkSocket, veth: Link) -> None:
    assert of(route, veth) == []
    assert [(one.kind, one.options) for one in put_two(route, veth)] == [("pfifo", LIMIT), ("clsact", b"")]


def test_disciplines_are_removed_and_put_back_as_they_were(route: NetlinkSocket, veth: Link) -> None:
    made = put_two(route, veth)
    for one in made:
        route.request(tc.delete_qdisc(one))
    assert of(route, veth) == []
    for one in made:
        route.request(tc.replace_qdisc(one))
    assert of(route, veth) == made
