"""Numbers and names of the IP layers' settings agree with this kernel's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dranet.kernel import devconf, links
from dranet.kernel.netlink import NetlinkSocket


@pytest.mark.parametrize(("family", "names"), [("ipv4", devconf.IPV4), ("ipv6", devconf.IPV6)])
def test_every_setting_the_kernel_tells_is_what_its_file_says(family: str, names: tuple[str, ...]) -> None:
    with NetlinkSocket() as route:
        (link,) = links.get_links(route, ["lo"], settings=True)
    assert link is not None
    told = link.ipv4_settings if family == "ipv4" else link.ipv6_settings
    folder = Path(f"/proc/sys/net/{family}/conf/lo")
    if not folder.is_dir():
        pytest.skip(f"this kernel has no {family}")
    plain = {name: value for name, value in zip(names, told, strict=False) if name not in devconf.NOT_PLAIN}
    compared = {name: value for name, value in plain.items() if (folder / name).is_file()}
    assert {name: int((folder / name).read_text()) for name in compared} == compared
    assert len(compared) >= 25


def test_what_differs_is_written_back_by_its_name() -> None:
    was, now = [0] * 10, [0] * 10
    was[devconf.IPV4.index("rp_filter")] = 2
    assert devconf.to_restore("eth1", (tuple(now), ()), (tuple(was), ())) == {"net/ipv4/conf/eth1/rp_filter": "2"}


def test_forwarding_is_given_back_and_never_taken() -> None:
    on, off = ((1,), ()), ((0,), ())
    assert devconf.to_restore("eth1", off, on) == {"net/ipv4/conf/eth1/forwarding": "1"}
    assert devconf.to_restore("eth1", on, off) == {}
