"""Sysctls of a link: /proc/sys/net/ipv4/conf/LINK and ipv6/conf/LINK.

The kernel reports them with the link, as numbers in a fixed order, and resets them when the link moves to another
namespace. This module maps the numbers to names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from dranet.linux import codec, sysctl

_INET_CONF, _INET6_CONF, _INET6_TOKEN = 1, 2, 7

Values = tuple[int, ...]

_IPV4 = """
forwarding mc_forwarding proxy_arp accept_redirects secure_redirects send_redirects shared_media rp_filter
accept_source_route bootp_relay log_martians tag arp_filter medium_id disable_xfrm disable_policy force_igmp_version
arp_announce arp_ignore promote_secondaries arp_accept arp_notify accept_local src_valid_mark proxy_arp_pvlan
route_localnet igmpv2_unsolicited_report_interval igmpv3_unsolicited_report_interval ignore_routes_with_linkdown
drop_unicast_in_l2_multicast drop_gratuitous_arp bc_forwarding arp_evict_nocarrier
"""
_IPV6 = """
forwarding hop_limit mtu accept_ra accept_redirects autoconf dad_transmits router_solicitations
router_solicitation_interval router_solicitation_delay use_tempaddr temp_valid_lft temp_prefered_lft regen_max_retry
max_desync_factor max_addresses force_mld_version accept_ra_defrtr accept_ra_pinfo accept_ra_rtr_pref
router_probe_interval accept_ra_rt_info_max_plen proxy_ndp optimistic_dad accept_source_route mc_forwarding disable_ipv6
accept_dad force_tllao ndisc_notify mldv1_unsolicited_report_interval mldv2_unsolicited_report_interval
suppress_frag_ndisc accept_ra_from_local use_optimistic accept_ra_mtu stable_secret use_oif_addrs_only
accept_ra_min_hop_limit ignore_routes_with_linkdown drop_unicast_in_l2_multicast drop_unsolicited_na keep_addr_on_down
router_solicitation_max_interval seg6_enabled seg6_require_hmac enhanced_dad addr_gen_mode disable_policy
accept_ra_rt_info_min_plen ndisc_tclass rpl_seg_enabled ra_defrtr_metric ioam6_enabled ioam6_id ioam6_id_wide
ndisc_evict_nocarrier accept_untracked_na accept_ra_min_lft force_forwarding
"""
IPV4, IPV6 = tuple(_IPV4.split()), tuple(_IPV6.split())
"""The names in the kernel's order; new ones are only appended."""
NOT_PLAIN = frozenset(
    {
        "mc_forwarding",  # owned by the multicast routing daemon
        "mtu",  # follows the link's
        "stable_secret",  # not reported
        "router_solicitation_interval",  # reported in other units than written
        "router_solicitation_delay",
        "router_solicitation_max_interval",
        "router_probe_interval",
        "mldv1_unsolicited_report_interval",
        "mldv2_unsolicited_report_interval",
        "ra_defrtr_metric",  # unsigned
        "ioam6_id_wide",
    }
)


def read(af_spec: bytes) -> tuple[Values, Values]:
    """The IPv4 and IPv6 settings in a link's AF_SPEC; empty if the link does not have that protocol."""
    families = codec.attributes(af_spec)
    four = codec.attributes(families.get(AF_INET, b"")).get(_INET_CONF, b"")
    six = codec.attributes(families.get(AF_INET6, b"")).get(_INET6_CONF, b"")
    return _numbers(four), _numbers(six)


def read_token(af_spec: bytes) -> str:
    """The interface identifier of addresses from router advertisements (`ip token`); empty if none is set."""
    token = codec.attributes(codec.attributes(af_spec).get(AF_INET6, b"")).get(_INET6_TOKEN, b"")
    return inet_ntop(AF_INET6, token) if any(token) else ""


def pack_token(token: str) -> bytes:
    """The AF_SPEC that sets a token."""
    return codec.nested(AF_INET6, codec.attribute(_INET6_TOKEN, inet_pton(AF_INET6, token)))


def _numbers(data: bytes) -> Values:
    return struct.unpack_from(f"={len(data) // 4}i", data)


def sysctls_to_restore(interface: str, now: tuple[Values, Values], was: tuple[Values, Values]) -> dict[str, str]:
    """The values that restore the earlier settings, by sysctl path.

    Forwarding is switched on again but never off: the node may have enabled it for all links in the meantime.
    """
    found = {}
    for family, names, values_now, values_was in zip(("ipv4", "ipv6"), (IPV4, IPV6), now, was, strict=True):
        for name, value in _differences(names, values_now, values_was):
            if name != "forwarding" or value:
                found[sysctl.interface_path(family, interface, name)] = str(value)
    return found


def _differences(names: Sequence[str], now: Values, was: Values) -> Iterator[tuple[str, int]]:
    if now == was:  # nearly always
        return
    for name, is_now, value in zip(names, now, was, strict=False):
        if is_now != value and name not in NOT_PLAIN:
            yield name, value
