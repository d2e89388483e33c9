"""Offload features, private flags, speeds, and the older names of the ethtool command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dranet.linux import codec, ethtool
from dranet.linux.ethtool import Ethtool, EthtoolError, Feature
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkError

FREE, FIXED = Feature(True, True, True), Feature(False, False, False)


@pytest.fixture
def tool(netns: Namespace) -> Iterator[Ethtool]:
    with Ethtool(netns.fd) as opened:
        yield opened


def test_features_are_read_by_kernel_name(tool: Ethtool, veth: Link) -> None:
    found = tool.features(veth.index)
    assert found["tx-scatter-gather"] == Feature(active=True, wanted=True, changeable=True)
    assert found["rx-lro"] == Feature(active=False, wanted=False, changeable=False)
    assert list(found) == sorted(found)


def test_features_are_switched_off_and_on(tool: Ethtool, veth: Link) -> None:
    for on in (False, True):
        tool.set_features(veth.index, {"tx-tcp-segmentation": on, "tx-tcp6-segmentation": on})
        found = tool.features(veth.index)
        assert (found["tx-tcp-segmentation"].active, found["tx-tcp6-segmentation"].active) == (on, on)


def test_switching_off_what_is_off_for_good_is_fine(tool: Ethtool, veth: Link) -> None:
    tool.set_features(veth.index, {"rx-lro": False})


def test_a_feature_the_link_did_not_take_is_named(tool: Ethtool, veth: Link) -> None:
    with pytest.raises(EthtoolError, match="did not apply rx-lro on"):
        tool.set_features(veth.index, {"rx-lro": True, "tx-tcp-segmentation": True})


def test_a_feature_the_kernel_does_not_know_is_refused(tool: Ethtool, veth: Link) -> None:
    with pytest.raises(NetlinkError, match="bit name not found"):
        tool.set_features(veth.index, {"no-such-thing": True})


def test_a_driver_without_private_flags_has_none(tool: Ethtool, veth: Link) -> None:
    assert tool.private_flags(veth.index) == {}
    with pytest.raises(NetlinkError, match=r"private flags \['turbo'\]"):
        tool.set_private_flags(veth.index, {"turbo": True})


def test_the_speeds_of_all_links_are_read_at_once(tool: Ethtool, veth: Link) -> None:
    assert tool.speeds() == {veth.index - 1: 10000, veth.index: 10000}


def test_tables_are_read_and_written_by_the_kernels_numbers(tool: Ethtool, veth: Link) -> None:
    channels = tool.tables(veth.index)["channels"]
    assert set(tool.tables(veth.index)) == {"channels"}  # a veth has neither rings nor coalescing
    rx_most, rx = 2, 6
    tool.set_table(veth.index, "channels", {rx: channels[rx_most]})
    assert tool.tables(veth.index)["channels"] == {**channels, rx: channels[rx_most]}
    tool.set_table(veth.index, "channels", {rx: channels[rx]})
    assert tool.tables(veth.index)["channels"] == channels


def test_a_link_that_is_not_there_is_an_error(tool: Ethtool) -> None:
    with pytest.raises(NetlinkError, match="ENODEV"):
        tool.features(4711)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rx-gro", ("rx-gro",)),
        ("gro", ("rx-gro",)),
        ("generic-receive-offload", ("rx-gro",)),
        ("tso", ("tx-tcp-segmentation", "tx-tcp6-segmentation")),
        ("tcp-segmentation-offload", ("tx-tcp-segmentation", "tx-tcp6-segmentation")),
        ("sg", ("tx-scatter-gather", "tx-scatter-gather-fraglist")),
        ("lro", ("rx-lro",)),
        ("ufo", ()),
        ("warp-drive", ()),
    ],
)
def test_older_names_stand_for_kernel_features(name: str, expected: tuple[str, ...]) -> None:
    features = {
        "rx-gro": FREE,
        "rx-lro": FIXED,
        "tx-scatter-gather": FREE,
        "tx-scatter-gather-fraglist": FREE,
        "tx-tcp-segmentation": FREE,
        "tx-tcp-mangleid-segmentation": FIXED,
        "tx-tcp6-segmentation": FREE,
    }
    assert ethtool.resolve_feature(name, features) == expected


def test_every_older_name_has_a_short_and_a_long_form() -> None:
    patterns = list(ethtool.ALIASES.values())
    assert len(patterns) == 24
    assert {patterns.count(pattern) for pattern in patterns} == {2}


def test_a_bitset_is_read_as_it_was_built() -> None:
    data = ethtool.build_bitset(2, {"b": True, "a": False})
    assert ethtool.parse_bitset(codec.attributes(data)[2]) == {"a": False, "b": True}


def test_a_link_whose_driver_counts_no_pause_frames_has_none(tool: Ethtool, veth: Link) -> None:
    assert tool.pause_frames() == {}


def test_pause_frames_are_read_from_what_a_driver_that_counts_them_answers() -> None:
    """No link of this kernel does: the attributes are laid out as the kernel's header has them."""
    link, padding = codec.nested(1, codec.u32(1, 7), codec.text(2, "eth0")), codec.attribute(1, b"")
    counted = codec.nested(5, padding, codec.u64(2, 40), padding, codec.u64(3, 1 << 40))
    assert ethtool.parse_pause_frames(link + codec.attribute(2, b"\x01") + counted) == (7, (1 << 40, 40))
    assert ethtool.parse_pause_frames(link + codec.nested(5)) is None
