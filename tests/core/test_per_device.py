"""Parameters by device: which entries apply, how words are replaced, what is refused and with which path."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.cel.device_match import device_matches
from dranet.core.errors import InvalidInput
from dranet.core.netconfig import NetworkConfig
from dranet.core.netconfig_parse import parse
from dranet.core.per_device import resolve
from dranet.core.rail_routing import rail_routes, rail_table

NIC = {"dra.net/ifName": "eth3", "dra.net/rail": 3, "dra.net/rdma": True, "dra.net/numaNode": 1, "example.com/plane": 7}


def resolved(raw: dict[str, Any], attributes: dict[str, Any] | None = None, ordinal: int = 0) -> NetworkConfig:
    return resolve(parse(raw), NIC if attributes is None else attributes, ordinal, device_matches)


def test_words_are_replaced_by_the_attributes_of_the_device() -> None:
    entry = {
        "interface": {"name": "net{rail}", "mtu": "900{numaNode}"},
        "routes": [
            {"destination": "10.{rail}.0.0/16", "gateway": "10.{rail}.{example.com/plane}.1", "table": "10{rail}"}
        ],
    }
    expected = {
        "interface": {"name": "net3", "mtu": 9001},
        "routes": [{"destination": "10.3.0.0/16", "gateway": "10.3.7.1", "table": 103}],
    }
    assert resolved({"perDevice": [entry]}) == parse(expected)


def test_a_word_alone_stays_text_where_text_is_expected() -> None:
    assert resolved({"perDevice": [{"interface": {"name": "{rail}"}}]}) == parse({"interface": {"name": "3"}})


def test_ordinal_is_the_place_in_the_claim() -> None:
    raw = {"perDevice": [{"interface": {"name": "net{ordinal}"}}]}
    assert resolved(raw, ordinal=5) == parse({"interface": {"name": "net5"}})


def test_later_entries_override_earlier_ones_and_all_override_the_rest() -> None:
    raw = {
        "interface": {"mtu": 1500, "arpIgnore": 1},
        "perDevice": [
            {"interface": {"mtu": 4000, "name": "a"}},
            {"match": 'device.attributes["dra.net"].rdma', "interface": {"mtu": 9000}},
            {"match": '!device.attributes["dra.net"].rdma', "interface": {"name": "b"}},
        ],
    }
    assert resolved(raw) == parse({"interface": {"mtu": 9000, "arpIgnore": 1, "name": "a"}})


def test_a_missing_attribute_in_match_is_refused_and_can_be_asked_for() -> None:
    raw = {"perDevice": [{"match": 'device.attributes["dra.net"].speed > 5', "interface": {"mtu": 9000}}]}
    with pytest.raises(InvalidInput, match=r"perDevice\[0\]\.match: .*no such key: speed"):
        resolved(raw)
    raw["perDevice"][0]["match"] = '"speed" in device.attributes["dra.net"]'
    assert resolved(raw) == NetworkConfig()


def test_a_word_without_a_value_is_refused_with_the_attribute() -> None:
    with pytest.raises(InvalidInput, match=r"perDevice\[0\].*\{rail\} has no value: .* dra\.net/rail"):
        resolved({"perDevice": [{"interface": {"name": "net{rail}"}}]}, attributes={})


def test_a_value_that_is_wrong_for_this_device_is_refused_with_its_path() -> None:
    with pytest.raises(InvalidInput, match=r"perDevice\[0\]\.interface\.name: .*15"):
        resolved({"perDevice": [{"interface": {"name": "a-long-prefix-{ifName}"}}]})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"interface": {"name": "n{rial}"}}, r"\[0\]\.interface\.name: unknown word \{rial\}; did you mean \{rail\}"),
        ({"interface": {"nam": "x"}}, r"perDevice\[0\]\.interface\.nam: unknown field; did you mean 'name'"),
        ({"interface": {"mtu": 9}}, r"perDevice\[0\]\.interface\.mtu: 9 is out of range"),
        ({"routes": [{"destination": "10.0.0.0/8"}]}, r"perDevice\[0\]\.routes\[0\]\.gateway: is required"),
        ({"profile": "x"}, r"perDevice\[0\]\.profile: cannot be set in perDevice"),
        ({"perDevice": []}, r"perDevice\[0\]\.perDevice: cannot be set in perDevice"),
        ({"match": 5}, r"perDevice\[0\]\.match: must be a CEL expression"),
        ("x", r"perDevice\[0\]: must be an object"),
    ],
)  # fmt: skip
def test_mistakes_are_found_without_a_device(entry: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse({"perDevice": [entry]})


RAILS = {"0": ["10.0.0.0/16"], "1": ["10.1.0.0/16", "fd00:1::/48"], "2": ["10.2.0.0/16"]}


def routes_of(address: str, rail: object = 1, gateways: dict[int, str] | None = None, **routing: Any) -> list[str]:
    config = parse({"rails": RAILS, "railRouting": routing})
    made = rail_routes(config, rail, [address], gateways or {})
    assert made is not None and {route.table for route in made.routes} == {made.table}
    return [f"{route.destination} {route.gateway or 'link'}" for route in made.routes]


def test_a_nic_reaches_its_own_rail_directly_and_the_others_by_its_gateway() -> None:
    assert routes_of("10.1.5.9/24") == [
        "10.1.5.0/24 link",
        "10.1.0.0/16 link",
        "10.0.0.0/16 10.1.5.1",
        "10.2.0.0/16 10.1.5.1",
        "0.0.0.0/0 10.1.5.1",
    ]


def test_a_gateway_outside_the_own_network_gets_a_route_on_the_link_first() -> None:
    assert routes_of("10.1.5.9/32", gateway="10.9.9.9")[:2] == ["10.9.9.9/32 link", "10.1.0.0/16 link"]
    assert routes_of("10.1.5.9/24", sameRail="gateway")[:2] == ["10.1.5.1/32 link", "10.1.5.0/24 10.1.5.1"]


def test_ipv6_has_routes_of_its_own_family() -> None:
    assert routes_of("fd00:1::5/64", gateway="fe80::1") == [
        "fe80::1/128 link", "fd00:1::/64 link", "fd00:1::/48 link", "::/0 fe80::1",
    ]  # fmt: skip


def test_gateway_of_the_host_and_none() -> None:
    assert routes_of("10.1.5.9/24", gateway="host", gateways={4: "10.1.5.77"})[-1] == "0.0.0.0/0 10.1.5.77"
    assert routes_of("10.1.5.9/24", gateway="none") == ["10.1.5.0/24 link", "10.1.0.0/16 link"]
    with pytest.raises(InvalidInput, match=r"railRouting\.gateway: host: the node has no IPv4 route"):
        routes_of("10.1.5.9/24", gateway="host")
    with pytest.raises(InvalidInput, match=r"railRouting\.gateway: first: 10\.1\.5\.9/32 has no network"):
        routes_of("10.1.5.9/32")


def test_rules_are_by_address() -> None:
    made = rail_routes(parse({"railRouting": {"tables": 200, "priority": 30000}}), 1, ["10.1.5.9/24"], {})
    assert made is not None
    assert [(rule.source, rule.table, rule.priority) for rule in made.rules] == [("10.1.5.9/32", 201, 30000)]


def test_in_a_vrf_there_are_no_rules_and_no_table() -> None:
    raw = {"railRouting": {}, "interface": {"vrf": {"name": "blue"}}}
    made = rail_routes(parse(raw), 1, ["10.1.5.9/24"], {})
    assert made is not None and made.rules == [] and not any(route.table for route in made.routes)


@pytest.mark.parametrize(
    ("rail", "raw", "message"),
    [
        (None, {}, "does not publish dra.net/rail"),
        ("blue", {}, "rail 'blue' is not a number and is not listed"),
        (153, {}, r"railRouting\.tables: table 253 of rail 153 is reserved"),
    ],
)
def test_a_rail_without_a_table_is_refused(rail: object, raw: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        rail_table(parse({"railRouting": raw}), rail)


def test_a_named_rail_has_the_table_of_its_place() -> None:
    config = parse({"rails": {"red": [], "blue": []}, "railRouting": {}})
    assert (rail_table(config, "blue"), rail_table(config, "red"), rail_table(config, 7)) == (100, 101, 107)
