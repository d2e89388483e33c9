"""Sysctls of a namespace: written inside it only, and never outside `net/`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dranet.linux import sysctl
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace
from dranet.linux.sysctl import SysctlError
from tests.kernel_tools import read_sysctls

ARP_IGNORE = "net/ipv4/conf/v0/arp_ignore"
FORWARD = "net/ipv4/ip_forward"


def test_a_setting_is_written_and_read_inside_the_namespace(netns: Namespace, veth: Link) -> None:
    sysctl.write_all(netns.fd, {ARP_IGNORE: "2", "net/ipv4/conf/v0/arp_announce": "1"})
    assert read_sysctls(netns.fd, [ARP_IGNORE]) == {ARP_IGNORE: "2"}


def test_other_namespaces_are_not_touched(netns: Namespace, make_namespace: Callable[[], Namespace]) -> None:
    other = make_namespace()
    before = read_sysctls(None, [FORWARD])
    for value in ("0", "1"):
        sysctl.write_all(netns.fd, {FORWARD: value})
        sysctl.write_all(other.fd, {FORWARD: "1" if value == "0" else "0"})
        assert read_sysctls(netns.fd, [FORWARD])[FORWARD] == value
    assert read_sysctls(None, [FORWARD]) == before


def test_a_setting_that_does_not_exist_reads_as_none_and_is_refused(netns: Namespace) -> None:
    assert read_sysctls(netns.fd, [ARP_IGNORE]) == {ARP_IGNORE: None}
    with pytest.raises(SysctlError, match=r"cannot set sysctl net/ipv4/conf/v0/arp_ignore to '1': No such file"):
        sysctl.write_all(netns.fd, {ARP_IGNORE: "1"})


def test_a_value_the_kernel_does_not_take_is_refused(netns: Namespace, veth: Link) -> None:
    with pytest.raises(SysctlError, match="Invalid argument"):
        sysctl.write_all(netns.fd, {"net/ipv6/conf/v0/addr_gen_mode": "77"})


def test_another_proc_root_is_used(tmp_path: Path, netns: Namespace) -> None:
    folder = tmp_path / "sys/net/ipv4"
    folder.mkdir(parents=True)
    (folder / "ip_forward").write_text("0")
    sysctl.write_all(netns.fd, {FORWARD: "1"}, proc_root=str(tmp_path))
    assert (folder / "ip_forward").read_text() == "1"


def test_a_link_in_place_of_a_setting_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "sys/net/ipv4"
    folder.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("safe")
    (folder / "ip_forward").symlink_to(victim)
    with pytest.raises(SysctlError):
        sysctl.write_all(None, {FORWARD: "1"}, proc_root=str(tmp_path))
    assert victim.read_text() == "safe"


@pytest.mark.parametrize(
    "path",
    [
        "kernel/panic",
        "net/../kernel/panic",
        "net/ipv4/conf/../../../kernel/panic",
        "net/ipv4//x",
        "/etc/passwd",
        "net",
        "",
        "net/ipv4/x\0y",
        "net/./x",
    ],
)
def test_paths_that_could_lead_elsewhere_are_refused(path: str) -> None:
    with pytest.raises(SysctlError):
        sysctl.write_all(None, {path: "1"}, proc_root="/nonexistent")


@given(st.text(max_size=20))
def test_no_interface_name_escapes_its_folder(name: str) -> None:
    try:
        path = sysctl.interface_path("ipv4", name, "arp_ignore")
    except SysctlError:
        return
    parts = path.split("/")
    assert parts == ["net", "ipv4", "conf", name, "arp_ignore"]
    assert name not in ("", ".", "..", "all", "default")


def test_nothing_is_written_when_one_path_of_several_is_bad(tmp_path: Path) -> None:
    folder = tmp_path / "sys/net/ipv4"
    folder.mkdir(parents=True)
    (folder / "ip_forward").write_text("0")
    with pytest.raises(SysctlError):
        sysctl.write_all(None, {FORWARD: "1", "net/../x": "1"}, proc_root=str(tmp_path))
    assert (folder / "ip_forward").read_text() == "0"
