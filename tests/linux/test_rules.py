"""Rules: reading and writing agree with pyroute2 and `ip`, and any rule can be put back as it was found."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

import pytest

from dranet.linux import rules
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from dranet.linux.rules import Rule
from tests.linux.conftest import ask_pyroute2

V4, V6 = socket.AF_INET, socket.AF_INET6
WANTED = [
    Rule(family=V4, priority=0, table=100, source="10.0.0.0/8"),
    Rule(family=V4, priority=500, table=70000, source="10.20.30.0/24", destination="192.168.0.0/16"),
    Rule(family=V4, priority=501, table=100, incoming="eth7", outgoing="eth8", tos=0x10),
    Rule(family=V4, priority=502, table=100, mark=0x10, mark_mask=0xFF, protocol=4),
    Rule(family=V4, priority=503, table=254, suppress_prefix_length=0),
    Rule(family=V4, priority=504, table=100, source="10.9.0.0/16", flags=rules.FLAG_INVERT),
    Rule(family=V4, priority=505, table=0, action=rules.ACTION_PROHIBIT, source="10.10.0.0/16"),
    Rule(family=V6, priority=600, table=100, source="fd00::/16", destination="fd01::1/128"),
]


@pytest.fixture
def ruled(route: NetlinkSocket) -> NetlinkSocket:
    assert [error for error in route.batch([rules.add(rule) for rule in WANTED]) if error] == []
    return route


def added(route: NetlinkSocket) -> list[Rule]:
    return [rule for rule in rules.list_rules(route) if rule.protocol != 2]


@pytest.mark.parametrize("family", [V4, V6])
def test_reading_agrees_with_pyroute2(netns: Namespace, ruled: NetlinkSocket, family: int) -> None:
    ours = [rule for rule in rules.list_rules(ruled) if rule.family == family]
    theirs = ask_pyroute2(netns, lambda handle: handle.get_rules(family=family))
    assert len(ours) == len(theirs)
    for rule, found in zip(ours, theirs, strict=True):
        assert rule.priority == (found.get_attr("FRA_PRIORITY") or 0)
        assert rule.table == found.get_attr("FRA_TABLE")
        source = found.get_attr("FRA_SRC")
        assert rule.source == (f"{source}/{found['src_len']}" if source else None)
        assert (rule.action, rule.tos) == (found["action"], found["tos"])
        assert rule.mark == (found.get_attr("FRA_FWMARK") or 0)
        assert rule.incoming == (found.get_attr("FRA_IIFNAME") or "")


def test_every_field_is_read_back_as_it_was_written(ruled: NetlinkSocket) -> None:
    found = {rule.priority: rule for rule in added(ruled)}
    for wanted in WANTED:
        assert wanted.priority is not None
        read = found[wanted.priority]
        fields = [f for f in Rule.__struct_fields__ if f not in ("flags", "others", "tos")]
        assert {f: getattr(read, f) for f in fields} == {f: getattr(wanted, f) for f in fields}
        assert read.flags & rules.FLAG_INVERT == wanted.flags & rules.FLAG_INVERT


def test_all_rules_are_put_back_exactly_as_they_were_found(ruled: NetlinkSocket, ip: Callable[..., str]) -> None:
    ip("rule", "add", "priority", "700", "ipproto", "6", "dport", "1000-2000", "uidrange", "5-9", "table", "100")
    before = added(ruled)
    assert len(before) == len(WANTED) + 1
    assert not any(ruled.batch([rules.delete(rule) for rule in before]))
    assert added(ruled) == []
    assert not any(ruled.batch([rules.add(rule) for rule in before]))
    assert added(ruled) == before


def test_a_rule_without_priority_gets_one_from_the_kernel(route: NetlinkSocket) -> None:
    route.request(rules.add(Rule(family=V4, table=100, source="10.0.0.0/8")))
    (found,) = added(route)
    assert found.priority == 32765


def test_a_rule_of_priority_zero_comes_before_the_local_table(route: NetlinkSocket) -> None:
    route.request(rules.add(WANTED[0]))
    assert [rule.priority for rule in rules.list_rules(route) if rule.family == V4][:2] == [0, 0]


def test_a_rule_that_is_there_is_refused(ruled: NetlinkSocket) -> None:
    with pytest.raises(NetlinkError, match=r"500: from 10\.20\.30\.0/24 to 192\.168\.0\.0/16 lookup 70000") as caught:
        ruled.request(rules.add(WANTED[1]))
    assert caught.value.errno == errno.EEXIST


def test_ip_shows_what_we_wrote(ruled: NetlinkSocket, ip: Callable[..., str]) -> None:
    assert "500:\tfrom 10.20.30.0/24 to 192.168.0.0/16 lookup 70000" in ip("rule")
    assert "600:\tfrom fd00::/16 to fd01::1 lookup 100" in ip("-6", "rule")
