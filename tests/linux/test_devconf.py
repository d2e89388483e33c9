"""Numbers and names of interface sysctls agree with this kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dranet.linux import devconf, links
from dranet.linux.netlink import NetlinkSocket


@pytest.mark.parametrize(("family", "names"), [("ipv4", devconf.IPV4), ("ipv6", devconf.IPV6)])
def test_every_setting_in_netlink_equals_its_file(family: str, names: tuple[str, ...]) -> None:
    with NetlinkSocket() as route:
        (link,) = links.get_links(route, ["lo"], settings=True)
    assert link is not None
    reported = link.ipv4_settings if family == "ipv4" else link.ipv6_settings
    folder = Path(f"/proc/sys/net/{family}/conf/lo")
    if not folder.is_dir():
        pytest.skip(f"this kernel has no {family}")
    plain = {name: value for name, value in zip(names, reported, strict=False) if name not in devconf.NOT_PLAIN}
    compared = {name: value for name, value in plain.items() if (folder / name).is_file()}
    assert {name: int((folder / name).read_text()) for name in compared} == compared
    assert len(compared) >= 25


def test_a_difference_is_restored_by_its_name() -> None:
    was, now = [0] * 10, [0] * 10
    was[devconf.IPV4.index("rp_filter")] = 2
    restored = devconf.sysctls_to_restore("eth1", (tuple(now), ()), (tuple(was), ()))
    assert restored == {"net/ipv4/conf/eth1/rp_filter": "2"}


def test_forwarding_is_switched_on_again_and_never_off() -> None:
    on, off = ((1,), ()), ((0,), ())
    assert devconf.sysctls_to_restore("eth1", off, on) == {"net/ipv4/conf/eth1/forwarding": "1"}
    assert devconf.sysctls_to_restore("eth1", on, off) == {}
