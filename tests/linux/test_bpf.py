"""BPF programs on links: TCX and XDP, attached plainly and through BPF links, pinned and not."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dranet.linux import links, virtual_links
from dranet.linux.codec import NLM_F_CREATE, NLM_F_EXCL, Message, i32, nested, text, u32
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.traffic import bpf, tc
from tests.linux.conftest import MakeNamespace, MakeRoute

SCHED_CLS, XDP = 3, 6
INGRESS, EGRESS = bpf.ATTACH_TYPES["tcx/ingress"], bpf.ATTACH_TYPES["tcx/egress"]
Load = Callable[..., int]


def attach(netns: Namespace, index: int, program: int, attach_type: int = INGRESS) -> None:
    call_or_skip(netns, bpf.PROG_ATTACH, struct.pack("=III", index, program, attach_type))


def attach_link(netns: Namespace, index: int, program: int, attach_type: int, flags: int = 0) -> int:
    return call_or_skip(netns, bpf.LINK_CREATE, struct.pack("=IIII", program, index, attach_type, flags))


def call_or_skip(netns: Namespace, command: int, attribute: bytes) -> int:
    try:
        return netns.run(lambda: bpf.call(command, attribute, "attach a program"))[0]
    except bpf.BpfError as error:
        if error.errno == errno.EINVAL:
            pytest.skip("this kernel has no TCX (it came with 6.6)")
        raise


@pytest.fixture
def linked(netns: Namespace, veth: Link, load_program: Load) -> Iterator[int]:
    """A TCX egress program held by a BPF link."""
    fd = attach_link(netns, veth.index, load_program(SCHED_CLS, "by_link", EGRESS), EGRESS)
    yield fd
    os.close(fd)


def attached(netns: Namespace, index: int) -> list[bpf.Attachment]:
    return netns.run(lambda: bpf.attachments([index]))


def test_a_link_without_programs_has_none(netns: Namespace, veth: Link) -> None:
    assert attached(netns, veth.index) == []


def test_programs_are_listed_with_their_names_and_hooks(
    netns: Namespace, veth: Link, load_program: Load, linked: int
) -> None:
    attach(netns, veth.index, load_program(SCHED_CLS, "handle_ingress"))
    found = attached(netns, veth.index)
    assert [(a.hook, a.name, a.link_id > 0) for a in found] == [
        ("tcx/ingress", "handle_ingress", False),
        ("tcx/egress", "by_link", True),
    ]


def test_many_links_are_asked_in_one_call(
    netns: Namespace, route: NetlinkSocket, veth: Link, load_program: Load
) -> None:
    attach(netns, veth.index, load_program(SCHED_CLS, "one"))
    indexes = [link.index for link in links.list_links(route)]
    assert [a.index for a in netns.run(lambda: bpf.attachments(indexes))] == [veth.index]


def test_a_link_that_is_gone_has_no_programs(netns: Namespace) -> None:
    assert attached(netns, 4711) == []


def test_both_kinds_of_attachment_are_detached(netns: Namespace, veth: Link, load_program: Load, linked: int) -> None:
    attach(netns, veth.index, load_program(SCHED_CLS, "plain"))
    found = attached(netns, veth.index)
    assert len(found) == 2
    for attachment in found:
        netns.run(partial(bpf.detach, attachment))
    assert attached(netns, veth.index) == []
    for attachment in found:  # a second time there is nothing left to do
        netns.run(partial(bpf.detach, attachment))


def test_a_program_on_another_link_of_the_same_index_is_left_alone(
    netns: Namespace, veth: Link, linked: int, make_namespace: MakeNamespace, make_route: MakeRoute
) -> None:
    other = make_namespace()
    other_route = make_route(other)
    other_route.request(virtual_links.create_veth("v0", "v1"))
    assert links.get_link(other_route, veth.index) is not None
    assert attached(other, veth.index) == []
    assert len(attached(netns, veth.index)) == 1


def test_an_xdp_program_is_reported_with_its_link_and_detached(
    route: NetlinkSocket, veth: Link, load_program: Load
) -> None:
    program = load_program(XDP, "xdp_plain")
    payload = struct.pack("=BxHiII", 0, 0, veth.index, 0, 0) + nested(43, i32(1, program) + u32(3, 2))
    route.request(Message(links.RTM_NEWLINK, 0, payload, "attach XDP"))
    assert [(xdp.mode, bpf.program_name(xdp.id)) for xdp in xdp_programs(route)] == [("skb", "xdp_plain")]
    route.request(links.detach_xdp(veth.index, "skb"))
    assert xdp_programs(route) == []


def xdp_programs(route: NetlinkSocket) -> list[links.XdpProgram]:
    return [program for link in links.list_links(route) for program in link.xdp_programs]


def test_an_xdp_program_held_by_a_link_needs_that_link_detached(
    netns: Namespace, route: NetlinkSocket, veth: Link, load_program: Load
) -> None:
    fd = attach_link(netns, veth.index, load_program(XDP, "xdp_linked", bpf.ATTACH_XDP), bpf.ATTACH_XDP, flags=2)
    try:
        (error,) = route.batch([links.detach_xdp(veth.index, "skb")])
        assert error is not None
        assert error.errno == errno.EBUSY
        program_ids = {xdp.id for xdp in xdp_programs(route)}
        (held,) = [link for link in bpf.list_links() if link.kind == "xdp" and link.program_id in program_ids]
        assert held.index == veth.index
        bpf.detach_link(held.id)
        assert xdp_programs(route) == []
    finally:
        os.close(fd)


def test_a_program_that_is_gone_has_no_name(load_program: Load) -> None:
    load_program(SCHED_CLS, "probe")  # skips where BPF is not for us
    assert bpf.program_name(0x7FFFFFFF) == ""


@pytest.fixture
def bpffs(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "bpf"
    root.mkdir()
    if subprocess.run(["mount", "-t", "bpf", "bpf", str(root)], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a BPF file system")
    yield root
    subprocess.run(["umount", str(root)], check=True)


def pin(fd: int, path: Path) -> None:
    name = ctypes.create_string_buffer(os.fsencode(path))
    bpf.call(bpf.OBJ_PIN, struct.pack("=QII", ctypes.addressof(name), fd, 0), "pin")


def test_pinned_links_are_found_and_unpinned_and_other_pins_are_left(
    bpffs: Path, netns: Namespace, veth: Link, linked: int, load_program: Load
) -> None:
    (bpffs / "deep").mkdir()
    pin(linked, bpffs / "deep" / "my_link")
    pin(load_program(SCHED_CLS, "a_program"), bpffs / "a_program")
    found, problems = bpf.pinned_links(str(bpffs))
    assert problems == []
    assert [(link.path, link.kind, link.index) for link in found] == [(f"{bpffs}/deep/my_link", "tcx", veth.index)]
    assert [a.link_id for a in attached(netns, veth.index)] == [found[0].id]
    bpf.unpin(found[0])
    bpf.unpin(found[0])
    assert bpf.pinned_links(str(bpffs)) == ([], [])
    assert (bpffs / "a_program").exists()


def test_a_bpf_file_system_that_is_not_there_is_a_problem_not_a_failure(tmp_path: Path) -> None:
    found, problems = bpf.pinned_links(str(tmp_path / "nowhere"))
    assert found == []
    assert len(problems) == 1


def add_filter(index: int, parent: int, program: int, name: str, priority: int) -> Message:
    head = struct.pack("=BxxxiIII", 0, index, 0, parent, priority << 16 | socket_htons(0x0003))
    options = nested(2, u32(6, program), text(7, name), u32(8, 1))
    return Message(tc.RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, head + text(1, "bpf") + options, f"add filter {name}")


def socket_htons(value: int) -> int:
    return int.from_bytes(value.to_bytes(2, "big"), "little")


def clsact(index: int) -> Message:
    head = struct.pack("=BxxxiIII", 0, index, 0xFFFF0000, tc.CLSACT, 0)
    return Message(tc.RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, head + text(1, "clsact"), "add clsact")


@pytest.fixture
def filtered(route: NetlinkSocket, veth: Link, load_program: Load) -> NetlinkSocket:
    program = load_program(SCHED_CLS, "classifier")
    outcome = route.batch(
        [
            clsact(veth.index),
            add_filter(veth.index, tc.INGRESS, program, "dummy_bpf.o:[classifier]", 2),
            add_filter(veth.index, tc.INGRESS, program, "first", 1),
            add_filter(veth.index, tc.EGRESS, program, "out", 1),
        ]
    )
    if outcome[0] is not None and outcome[0].errno in (errno.ENOENT, errno.EOPNOTSUPP):
        pytest.skip(f"this kernel has no clsact: {outcome[0]}")
    if outcome[1] is not None and outcome[1].errno == errno.ENOENT:
        pytest.skip(f"this kernel has no BPF classifier: {outcome[1]}")
    assert outcome == [None] * 4
    return route


def test_classifiers_are_listed_as_tc_names_them(filtered: NetlinkSocket, veth: Link) -> None:
    found = tc.list_bpf_filters(filtered)
    assert [(f.name, f.egress, f.direct_action, f.index) for f in found] == [
        ("first", False, True, veth.index),
        ("dummy_bpf.o:[classifier]", False, True, veth.index),
        ("out", True, True, veth.index),
    ]
    assert {bpf.program_name(f.program_id) for f in found if f.program_id} == {"classifier"}


def test_links_without_classifiers_cost_one_request_together(route: NetlinkSocket, veth: Link) -> None:
    before = route.requests_sent
    assert tc.list_bpf_filters(route) == []
    assert route.requests_sent - before == 1


def test_tc_shows_no_classifier_after_deletion_and_the_qdisc_stays(
    filtered: NetlinkSocket, ip: Callable[..., str]
) -> None:
    assert "dummy_bpf.o:[classifier] direct-action" in ip("filter", "show", "dev", "v0", "ingress", command="tc")
    assert not any(filtered.batch([tc.delete_bpf_filter(entry) for entry in tc.list_bpf_filters(filtered)]))
    assert "bpf" not in ip("filter", "show", "dev", "v0", "ingress", command="tc")
    assert tc.list_bpf_filters(filtered) == []
    assert tc.list_clsact_links(filtered) != []
