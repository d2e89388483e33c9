"""The user's parameters: parsing, checking, merging."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dranet.core.errors import InvalidInput
from dranet.core.netconfig import Interface, NetworkConfig, Vrf, parse_hardware_address, vrf_table
from dranet.core.netconfig_merge import merge
from dranet.core.netconfig_parse import check_merged, parse, parse_leniently


def complaints(value: object) -> list[str]:
    raw = value if isinstance(value, str) else json.dumps(value)
    return [str(problem) for problem in parse_leniently(raw)[1]]


FULL: dict[str, Any] = {
    "profile": "p",
    "interface": {
        "type": "IPVLAN",
        "addressing": "Static",
        "ipvlan": {"mode": "L2", "flag": "Bridge"},
        "name": "eth99",
        "addresses": ["169.254.169.13/24", "fd00::1/64"],
        "mtu": 4321,
        "gsoMaxSize": 65536,
        "groMaxSize": 65536,
        "gsoIPv4MaxSize": 65536,
        "groIPv4MaxSize": 65536,
        "disableEbpfPrograms": True,
        "forwarding": True,
        "arpIgnore": 1,
        "arpAnnounce": 2,
        "acceptRA": 1,
    },
    "routes": [{"destination": "0.0.0.0/0", "gateway": "169.254.169.1", "source": "169.254.169.13", "table": 100}],
    "rules": [{"priority": 32000, "source": "192.168.100.0/24", "table": 100}],
    "neighbors": [{"destination": "192.168.1.1", "hardwareAddr": "00:11:22:33:44:55"}],
    "ethtool": {"features": {"tso": False}, "privateFlags": {"x": True}},
}


def test_every_field_of_the_reference_is_accepted_and_written_back_as_it_came() -> None:
    assert json.loads(msgspec.json.encode(parse(json.dumps(FULL)))) == FULL


@pytest.mark.parametrize("nothing", [None, "", b"", "{}", "null"])
def test_empty_input_is_an_empty_config(nothing: Any) -> None:
    if nothing == "null":
        assert complaints("null") == ["must be an object, not null"]
    else:
        assert parse(nothing) == NetworkConfig()


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"interface": {"mtu": 67}}, "interface.mtu: 67 is out of range: must be 68 to 2147483647"),
        ({"interface": {"mtu": True}}, "interface.mtu: must be a whole number, not true"),
        ({"interface": {"mtu": 1500.0}}, "interface.mtu: must be a whole number, not 1500.0"),
        ({"interface": {"addresses": ["10.0.0.1"]}}, "interface.addresses[0]: '10.0.0.1' has no prefix length"),
        ({"interface": {"addresses": "10.0.0.1/8"}}, "interface.addresses: must be a list"),
        ({"interface": {"dhcp": True, "addresses": ["10.0.0.1/8"]}}, "interface.dhcp: DHCP cannot be used together"),
        ({"interface": {"type": "ipvlan"}}, "interface.type: ipvlan is not one of Passthrough, IPVLAN, Macvlan"),
        ({"interface": {"addressing": "Auto"}}, "interface.addressing: Auto is not one of Static, DHCP, Unnumbered"),
        ({"interface": {"dhcp": True, "addressing": "Static"}}, "interface.dhcp: is the older form of addressing"),
        (
            {"interface": {"addressing": "DHCP", "addresses": ["10.0.0.1/8"]}},
            "interface.addressing: DHCP cannot be used together",
        ),
        ({"interface": {"addressing": "Unnumbered"}}, "interface.addressing: Unnumbered is only for children"),
        (
            {"interface": {"type": "IPVLAN", "addressing": "Unnumbered", "addresses": ["10.0.0.1/8"]}},
            "interface.addressing: Unnumbered cannot be used together",
        ),
        (
            {"interface": {"type": "IPVLAN", "hardwareAddr": "00:11:22:33:44:55"}},
            "interface.hardwareAddr: an IPVLAN child has its parent's address",
        ),
        ({"interface": {"type": "IPVLAN", "dhcp": True}}, "interface.dhcp: DHCP is not supported for IPVLAN"),
        (
            {"interface": {"type": "IPVLAN", "addressing": "DHCP"}},
            "interface.addressing: DHCP is not supported for IPVLAN",
        ),
        ({"interface": {"ipvlan": {}}}, "interface.ipvlan: requires type: IPVLAN, not Passthrough"),
        ({"interface": {"type": "IPVLAN", "macvlan": {}}}, "interface.macvlan: requires type: Macvlan, not IPVLAN"),
        ({"interface": {"type": "IPVLAN", "ipvlan": {"mode": "l2"}}}, "interface.ipvlan.mode: l2 is not one of L2, L3"),
        ({"interface": {"type": "IPVLAN", "ipvlan": {"flag": "x"}}}, "interface.ipvlan.flag: x is not one of Bridge"),
        ({"interface": {"acceptRA": 3}}, "interface.acceptRA: 3 is out of range: must be 0 to 2"),
        ({"interface": {"acceptRA": 0, "mtu": 1279}}, "interface.mtu: IPv6 needs an MTU of at least 1280"),
        ({"interface": {"addressing": "SLAAC", "mtu": 1000}}, "interface.mtu: IPv6 needs an MTU of at least 1280"),
        ({"interface": {"addressing": "SLAAC", "acceptRA": 0}}, "interface.acceptRA: 0 ignores router"),
        ({"interface": {"addressing": "SLAAC", "addresses": ["fd::1/64"]}}, "interface.addresses: has IPv6 addresses"),
        ({"interface": {"name": "../x"}}, "interface.name: '../x' contains '/'"),
        ({"interface": {"hardwareAddr": "0:1"}}, "interface.hardwareAddr: '0:1' is not a hardware address"),
        ({"interface": {"gsoMaxSize": 0}}, "interface.gsoMaxSize: 0 is out of range"),
        ({"interface": {"arpIgnore": 4}}, "interface.arpIgnore: 4 is not one of 0, 1, 2, 3, 8"),
        ({"interface": {"arpAnnounce": 3}}, "interface.arpAnnounce: 3 is out of range"),
        ({"interface": {"vrf": {}}}, "interface.vrf.name: is required"),
        ({"interface": {"vrf": {"name": "a/b"}}}, "interface.vrf.name: 'a/b' contains '/'"),
        (
            {"interface": {"vrf": {"name": "v", "table": 254}}},
            "interface.vrf.table: table 254 is reserved by the kernel",
        ),
        ({"interface": {"vrf": {"name": "v"}}, "rules": [{"table": 5}]}, "rules: cannot be used with interface.vrf"),
        ({"routes": [{"destination": "10.0.0.0/8"}]}, "routes[0].gateway: is required unless scope is 253"),
        ({"routes": [{"destination": "10.0.0.1", "scope": 253}]}, "routes[0].destination: '10.0.0.1' has no prefix"),
        (
            {"routes": [{"destination": "10.0.0.0/8", "gateway": "fd::1"}]},
            "routes[0].gateway: fd::1 is not of the same",
        ),
        ({"routes": [{"destination": "10.0.0.0/8", "scope": 1}]}, "routes[0].scope: 1 is not one of 0, 253"),
        ({"rules": [{"source": "10.0.0.0/8", "destination": "fd00::/8"}]}, "rules[0]: source and destination must be"),
        ({"rules": [{"priority": 32768}]}, "rules[0].priority: 32768 is out of range"),
        ({"neighbors": [{"ipAddress": "10.0.0.1"}]}, "neighbors[0].ipAddress: unknown field"),
        ({"ethtool": {"features": {"tso": 1}}}, "ethtool.features.tso: must be true or false, not 1"),
        ({"interfce": {}}, "interfce: unknown field; did you mean 'interface'?"),
        ({"interface": {"MTU": 1500}}, "interface.MTU: unknown field; did you mean 'mtu'?"),
        ('{"profile": "a", "profile": "b"}', "profile: is given twice"),
        ("[]", "must be an object, not a list"),
        ("{", "not valid JSON"),
    ],
)
def test_each_mistake_is_named_with_its_path(value: object, complaint: str) -> None:
    found = complaints(value)
    assert any(text.startswith(complaint) for text in found), found


@pytest.mark.parametrize(
    "empty",
    [
        {"profile": ""},
        {"interface": {"name": "", "hardwareAddr": "", "type": "", "addressing": ""}},
        {"routes": [{"destination": "10.0.0.0/8", "scope": 253, "gateway": "", "source": ""}]},
        {"rules": [{"source": "", "destination": ""}]},
    ],
)
def test_an_empty_string_is_an_absent_field_as_in_the_reference(empty: dict[str, Any]) -> None:
    assert complaints(empty) == []
    written = msgspec.to_builtins(parse(empty))
    assert '""' not in json.dumps(written)


def test_an_empty_destination_is_a_missing_one() -> None:
    assert complaints({"routes": [{"destination": "", "scope": 253}]}) == ["routes[0].destination: is required"]


def test_an_empty_string_where_a_number_belongs_is_still_wrong() -> None:
    assert complaints({"interface": {"mtu": ""}}) == ['interface.mtu: must be a whole number, not ""']


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse('{"interface": {"mtu": 1, "nam": "x"}, "routes": [{}]}')
    assert [p.path for p in caught.value.problems] == [
        "interface.mtu",
        "interface.nam",
        "routes[0].destination",
        "routes[0].gateway",
    ]


@pytest.mark.parametrize(
    ("text", "length"),
    [("00:11:22:33:44:55", 6), ("00-11-22-33-44-55-66-77", 8), ("0011.2233.4455", 6), (":".join(["ab"] * 20), 20)],
)
def test_hardware_addresses_of_all_three_forms_are_read(text: str, length: int) -> None:
    raw = parse_hardware_address(text)
    assert raw is not None and len(raw) == length


@pytest.mark.parametrize(("name", "table"), [("test-vrf", 1890), ("my-vrf", 1092), ("vrf0", 1343)])
def test_a_vrf_without_a_table_gets_the_references(name: str, table: int) -> None:
    assert vrf_table(Vrf(name=name)) == table


def test_the_nearer_config_wins_field_by_field() -> None:
    near, far = parse({"interface": {"name": "a", "mtu": 1500}}), parse({"interface": {"mtu": 9000, "arpIgnore": 1}})
    assert merge(near, far).link == Interface(name="a", mtu=1500, arp_ignore=1)


@pytest.mark.parametrize(
    ("near", "far", "merged"),
    [
        ({"type": "Passthrough"}, {"type": "IPVLAN", "ipvlan": {"mode": "L3"}}, {"type": "Passthrough"}),
        (
            {"type": "IPVLAN", "ipvlan": {"flag": "Private"}},
            {"type": "IPVLAN", "ipvlan": {"mode": "L3", "flag": "Bridge"}},
            {"type": "IPVLAN", "ipvlan": {"mode": "L3", "flag": "Private"}},
        ),
        (
            {"type": "Macvlan", "macvlan": {"mode": "VEPA"}},
            {"type": "IPVLAN", "ipvlan": {"mode": "L3"}},
            {"type": "Macvlan", "macvlan": {"mode": "VEPA"}},
        ),
        ({"vrf": {"name": "a"}}, {"vrf": {"name": "b", "table": 7}}, {"vrf": {"name": "a", "table": 7}}),
        ({"addresses": ["10.0.0.1/8"]}, {"addressing": "DHCP"}, {"addresses": ["10.0.0.1/8"]}),
        ({"addressing": "DHCP"}, {"addresses": ["10.0.0.1/8"]}, {"addressing": "DHCP"}),
        ({"addressing": "Static"}, {"dhcp": True}, {"addressing": "Static"}),
        ({"dhcp": True}, {"addressing": "SLAAC"}, {"dhcp": True}),
        ({"acceptRA": 0}, {"acceptRA": 2}, {"acceptRA": 0}),
    ],
)
def test_types_and_addressing_modes_merge_into_a_valid_config(near: Any, far: Any, merged: Any) -> None:
    result = merge(parse({"interface": near}), parse({"interface": far}))
    assert msgspec.to_builtins(result) == {"interface": merged}
    assert list(check_merged(result)) == []


def test_false_zero_and_empty_override() -> None:
    near = parse({"interface": {"forwarding": False, "arpIgnore": 0, "addresses": []}, "routes": []})
    far = parse(
        {
            "interface": {"forwarding": True, "arpIgnore": 2, "addresses": ["10.0.0.1/8"]},
            "routes": [{"destination": "10.0.0.0/8", "scope": 253}],
        }
    )
    assert merge(near, far) == near


def test_routes_join_by_destination_and_table_and_the_nearer_wins() -> None:
    near = parse({"routes": [{"destination": "10.0.0.0/8", "gateway": "1.1.1.1"}]})
    far = parse(
        {
            "routes": [
                {"destination": "10.0.0.0/8", "gateway": "2.2.2.2"},
                {"destination": "10.0.0.0/8", "gateway": "3.3.3.3", "table": 5},
            ]
        }
    )
    assert [(r.destination, r.gateway) for r in merge(near, far).routes or []] == [
        ("10.0.0.0/8", "1.1.1.1"),
        ("10.0.0.0/8", "3.3.3.3"),
    ]


def test_ethtool_names_join_and_off_overrides_on() -> None:
    near, far = (
        parse({"ethtool": {"features": {"tso": False}}}),
        parse({"ethtool": {"features": {"tso": True, "gro": True}}}),
    )
    assert merge(near, far).ethtool == parse({"ethtool": {"features": {"tso": False, "gro": True}}}).ethtool


def test_static_addresses_of_the_claim_override_dhcp_of_the_class_and_the_reverse() -> None:
    static, dhcp = parse({"interface": {"addresses": ["10.0.0.1/8"]}}), parse({"interface": {"dhcp": True}})
    assert merge(static, dhcp).link == Interface(addresses=["10.0.0.1/8"])
    assert merge(dhcp, static).link == Interface(dhcp=True)


def test_merging_changes_neither_side() -> None:
    near, far = parse(FULL), parse({"ethtool": {"features": {"gro": True}}})
    merge(near, far)
    assert near == parse(FULL)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["interface", "name", "routes", "vrf", "destination", "addresses", "ethtool", "features", "x"]
            ),
            children,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_any_json_is_parsed_without_an_exception(value: object) -> None:
    config, problems = parse_leniently(json.dumps(value))
    assert isinstance(config, NetworkConfig)
    assert all(problem.message for problem in problems)


@given(st.binary(max_size=40))
def test_any_bytes_are_parsed_without_an_exception(raw: bytes) -> None:
    parse_leniently(raw)


def test_problems_of_later_items_keep_their_place_when_earlier_ones_are_wrong_too() -> None:
    routes = [{"destination": "10.0.0.1"}, {"destination": "10.0.0.0/8", "gateway": "::1"}]
    rules = [{"source": "10.0.0.1"}, {"source": "10.0.0.0/8", "destination": "fd00::/8"}]
    _, problems = parse_leniently(json.dumps({"routes": routes, "rules": rules}))
    assert [problem.path for problem in problems] == [
        "routes[0].destination",
        "routes[0].gateway",
        "routes[1].gateway",
        "rules[0].source",
        "rules[1]",
    ]


def test_conflicts_are_reported_even_if_one_of_the_two_fields_is_invalid() -> None:
    interface = {"dhcp": True, "addresses": ["10.0.0.1"], "vrf": {"name": ""}}
    _, problems = parse_leniently(json.dumps({"interface": interface, "rules": [{"source": "10.0.0.1"}]}))
    assert {"interface.dhcp", "rules"} <= {problem.path for problem in problems}


@pytest.mark.parametrize("wrong", [{"scope": 5}, {"scope": "link"}, {"gateway": "somewhere"}])
def test_a_wrong_gateway_or_scope_is_one_problem(wrong: dict[str, object]) -> None:
    _, problems = parse_leniently(json.dumps({"routes": [{"destination": "10.0.0.0/8", **wrong}]}))
    assert len(problems) == 1
