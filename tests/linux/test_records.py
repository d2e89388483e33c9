"""Kernel records can be stored as JSON and compared."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dranet.linux import addresses, links, neighbours, routes, rules
from dranet.linux.links import Link
from dranet.linux.netlink import NetlinkSocket


@pytest.fixture
def found(route: NetlinkSocket, veth: Link) -> list[Any]:
    settings = [
        addresses.add(addresses.from_cidr("10.0.0.1/24", veth.index)),
        routes.add(routes.to("10.9.0.0/16", index=veth.index, gateway="10.0.0.9", mtu=1300)),
        rules.add(rules.Rule(family=2, table=100, source="10.0.0.0/8")),
        neighbours.add(neighbours.permanent(veth.index, "10.0.0.7", "02:00:00:00:00:01")),
    ]
    assert not any(route.batch(settings))
    return [
        *links.list_links(route, counters=True),
        *addresses.list_addresses(route),
        *routes.list_routes(route),
        *rules.list_rules(route),
        *neighbours.list_neighbours(route),
    ]


def test_every_record_survives_json(found: list[Any]) -> None:
    assert len({type(record) for record in found}) == 5
    for record in found:
        assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


def test_records_cannot_be_changed_and_can_be_compared(found: list[Any]) -> None:
    for record in found:
        with pytest.raises(AttributeError):
            record.index = 99
        assert hash(record) == hash(msgspec.structs.replace(record))
