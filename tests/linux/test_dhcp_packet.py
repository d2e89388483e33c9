"""DHCP messages: what we send, what servers send, and malformed packets."""

from __future__ import annotations

import struct
from socket import inet_aton

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dranet.linux.announce import checksum
from dranet.linux.dhcp import packet as dhcp_packet
from dranet.linux.dhcp.packet import ACK, DISCOVER, REQUEST, Answer

MAC = bytes.fromhex("020000000001")
GRANT = {
    1: inet_aton("255.255.255.0"),
    3: inet_aton("10.0.0.254") + inet_aton("10.0.0.253"),
    26: struct.pack("!H", 8896),
    51: struct.pack("!I", 3600),
    53: bytes([ACK]),
    54: inet_aton("10.0.0.254"),
    58: struct.pack("!I", 1000),
    59: struct.pack("!I", 3000),
    121: bytes.fromhex("18c0a8050a0000fe000a0000fe20a9fea9fe00000000"),
}


def grant(**changed: bytes | None) -> dhcp_packet.Lease | None:
    options = {**GRANT, **{int(code[1:]): value for code, value in changed.items()}}
    return dhcp_packet.lease_from(Answer(ACK, 1, "10.0.0.7", {k: v for k, v in options.items() if v is not None}))


def options_of(message: bytes) -> dict[int, bytes]:
    assert message[236:240] == b"\x63\x82\x53\x63"
    found, rest = {}, message[240:]
    while rest[0] != 255:
        found[rest[0]] = rest[2 : 2 + rest[1]]
        rest = rest[2 + rest[1] :]
    return found


def test_a_discover_asks_for_what_we_need_and_to_be_answered_by_broadcast() -> None:
    message = dhcp_packet.build(DISCOVER, 0x01020304, MAC)
    assert message[:12] == bytes.fromhex("010106000102030400008000")
    assert message[28:34] == MAC
    assert len(message) >= 300
    options = options_of(message)
    assert options[53] == b"\1"
    assert options[61] == b"\1" + MAC
    assert set(options[55]) >= {1, 3, 26, 51, 58, 59, 121}


def test_a_request_names_the_offered_address_and_the_server() -> None:
    options = options_of(dhcp_packet.build(REQUEST, 1, MAC, requested="10.0.0.7", server="10.0.0.254"))
    assert (options[50], options[54]) == (inet_aton("10.0.0.7"), inet_aton("10.0.0.254"))


def test_a_renewal_carries_our_address_and_no_server() -> None:
    message = dhcp_packet.build(REQUEST, 1, MAC, client="10.0.0.7")
    assert message[12:16] == inet_aton("10.0.0.7")
    assert message[10:12] == b"\0\0"
    assert {50, 54}.isdisjoint(options_of(message))


def test_infiniband_sends_no_hardware_address_but_an_identifier() -> None:
    mac = bytes(range(20))
    message = dhcp_packet.build(DISCOVER, 1, mac)
    assert (message[1], message[2], message[28:44]) == (32, 0, bytes(16))
    assert options_of(message)[61] == b"\xff" + mac[-4:] + b"\0\3\0\x20" + mac


def test_a_grant_becomes_a_lease() -> None:
    lease = grant()
    assert lease == dhcp_packet.Lease(
        address="10.0.0.7",
        prefix=24,
        server="10.0.0.254",
        lifetime=3600,
        renew_after=1000,
        rebind_after=3000,
        routers=("10.0.0.254", "10.0.0.253"),
        routes=(("192.168.5.0/24", "10.0.0.254"), ("0.0.0.0/0", "10.0.0.254"), ("169.254.169.254/32", "")),
        mtu=8896,
    )


def test_classless_routes_replace_the_router() -> None:
    with_routes, without = grant(), grant(o121=None)
    assert with_routes is not None
    assert without is not None
    assert with_routes.effective_routes == with_routes.routes
    assert without.effective_routes == (("0.0.0.0/0", "10.0.0.254"),)


def test_without_times_the_usual_fractions_hold() -> None:
    lease = grant(o58=None, o59=None)
    assert lease is not None
    assert (lease.renew_after, lease.rebind_after) == (1800, 3150)


def test_times_out_of_order_are_put_in_order() -> None:
    lease = grant(o58=struct.pack("!I", 9000), o59=struct.pack("!I", 8000))
    assert lease is not None
    assert lease.renew_after <= lease.rebind_after <= lease.lifetime


@pytest.mark.parametrize(
    "changed", [{"o51": None}, {"o54": None}, {"o1": inet_aton("255.0.255.0")}, {"o51": b"\1"}, {"o54": b"\1\2"}]
)
def test_a_grant_without_required_options_is_not_a_lease(changed: dict[str, bytes | None]) -> None:
    assert grant(**changed) is None


def test_a_grant_without_mask_is_for_one_host() -> None:
    lease = grant(o1=None)
    assert lease is not None
    assert lease.prefix == 32


def test_a_tiny_mtu_is_ignored() -> None:
    lease = grant(o26=struct.pack("!H", 68))
    assert lease is not None
    assert lease.mtu is None


def test_an_option_in_several_parts_is_put_together() -> None:
    head = bytes(236)
    data = (
        b"\2"
        + head[1:]
        + b"\x63\x82\x53\x63"
        + b"\x35\1\5"
        + b"\x79\2\x18\xc0"
        + b"\0"
        + b"\x79\6\xa8\5\x0a\0\0\xfe"
        + b"\xff"
    )
    answer = dhcp_packet.parse(data)
    assert answer is not None
    assert dhcp_packet.classless_routes(answer.options[121]) == (("192.168.5.0/24", "10.0.0.254"),)


def test_a_route_with_bits_beyond_its_mask_is_cleaned() -> None:
    assert dhcp_packet.classless_routes(bytes.fromhex("14c0a8ff0a0000fe")) == (("192.168.240.0/20", "10.0.0.254"),)


def test_the_packet_has_right_checksums_and_comes_back_out() -> None:
    packet = dhcp_packet.ip_packet(b"odd", "10.0.0.7", "255.255.255.255")
    assert checksum(packet[:20]) == 0
    pseudo = packet[12:20] + b"\0\x11" + packet[24:26]
    assert checksum(pseudo + packet[20:]) == 0
    to_client = packet[:20] + struct.pack("!HHH", 67, 68, 11) + packet[26:]
    assert dhcp_packet.udp_payload(to_client) == b"odd"
    assert dhcp_packet.udp_payload(packet) is None


@given(st.binary(max_size=400))
def test_no_packet_breaks_the_reader(data: bytes) -> None:
    dhcp_packet.udp_payload(data)
    dhcp_packet.classless_routes(data)
    answer = dhcp_packet.parse(b"\2" + data.ljust(235, b"\0")[:235] + b"\x63\x82\x53\x63" + data)
    if answer is not None:
        dhcp_packet.lease_from(answer)
