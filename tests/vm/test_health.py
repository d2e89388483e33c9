"""Faults put into real NICs while the real daemon runs: each is named in time, and none other.

In time means: by the third look from when the kernel shows it. The first may have begun before, the second sees it and
the third confirms it. Looks are three seconds apart, and half of that where something was seen, so that is within five
seconds. Seconds are printed and not asserted: this processor is emulated, and a look may take it a second by itself.
"""

import asyncio
import http.client
import re
import time
from pathlib import Path

import pytest

from dranet.testing.waiting import until, wait_until
from tests.vm.injected import (
    Fault,
    Injection,
    another_mtu_than_its_siblings,
    carrier,
    carrier_lost,
    carrier_lost_in_a_pod,
    flap,
    flapping_in_a_pod,
    machine_file,
    moved_by_others,
    pulled_out_unclaimed,
    pulled_out_while_claimed,
    slower_link,
    unbound_while_claimed,
)
from tests.vm.machine import E1000E_NODE0
from tests.vm.node import guest_node
from tests.vm.parts import name_at
from tests.vm.world import SoftRoce, netdev_of, tool

LOOKS = 3
PATIENCE_SECONDS = 90.0
_LOOKS = re.compile(r"^dranet_driver_health_checks_total (\S+)", re.MULTILINE)
_SERIES = re.compile(r'dranet_driver_device_faults\{device="([^"]*)",fault="([^"]*)"')
INJECTIONS: tuple[Injection, ...] = (
    carrier_lost,
    moved_by_others,
    unbound_while_claimed,
    pulled_out_while_claimed,
    pulled_out_unclaimed,
    slower_link,
    another_mtu_than_its_siblings,
    carrier_lost_in_a_pod,
    flapping_in_a_pod,
)


def scraped() -> tuple[set[Fault], int]:
    """What is reported now, and after how many looks."""
    connection = http.client.HTTPConnection("127.0.0.1", 9177, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    return set(_SERIES.findall(text)), int(float(_LOOKS.findall(text)[0]))


def reported() -> set[Fault]:
    return scraped()[0]


async def named_after(expected: set[Fault]) -> int:
    """How many looks until exactly this is reported, and nothing else before."""
    began, (now, first) = time.monotonic(), scraped()
    looks = first
    while now != expected:
        assert now <= expected, f"{now - expected} in addition to {expected}"
        assert time.monotonic() - began < PATIENCE_SECONDS, f"waited for {expected}, reported is {now}"
        await asyncio.sleep(0.1)
        now, looks = scraped()
    print(f"{expected}: {looks - first} looks, {time.monotonic() - began:.1f} s", flush=True)
    return looks - first


@pytest.mark.timeout(400)
async def test_every_injected_fault_is_named_in_time_and_none_other_and_goes_when_it_is_well(tmp_path: Path) -> None:
    link, looks = netdev_of(E1000E_NODE0), {}
    tool("ip", "link", "set", link, "up")
    try:
        wait_until(lambda: carrier(link) == "1", "the carrier")
        async with guest_node(f"--machine-shape={machine_file(tmp_path / 'guest.toml')}") as node:
            await until(lambda: name_at(E1000E_NODE0.address) in node.published(), "the NICs to be published")
            await until(lambda: not reported(), "a node without faults")
            for inject in INJECTIONS:
                async with inject(node) as fault:
                    looks[inject.__name__] = await named_after({fault})
                await until(lambda: not reported(), f"{fault} to go")
            await flap(E1000E_NODE0, 2)
            looks["flap"] = await named_after({(name_at(E1000E_NODE0.address), "link-flapping")})
    finally:
        tool("ip", "link", "set", link, "down")
    assert {name: count for name, count in looks.items() if count > LOOKS} == {}


@pytest.mark.timeout(240)
async def test_a_gid_that_goes_and_an_error_counter_that_grows_are_named_in_time(
    soft_roce: tuple[SoftRoce, SoftRoce],
) -> None:
    """On soft-RoCE, which counts the times its link went down."""
    made, looks = soft_roce[1], {}
    name = name_at(made.nic.address)
    async with guest_node() as node:
        await until(lambda: name in node.published(), "the NIC to be published")
        pod = node.claim(name, "roce", {"interface": {"name": "net0", "addresses": ["10.8.0.7/24"]}})
        await node.start_pod(pod)
        await until(lambda: not reported(), "a node without faults")
        tool("nsenter", f"--net={pod.path}", "ip", "address", "del", "10.8.0.7/24", "dev", "net0")
        looks["gid"] = await named_after({(name, "gid-missing")})
        await node.stop_pod(pod)
        await until(lambda: not reported(), "the fault to go with the pod")
        await flap(soft_roce[0].nic, 1)
        looks["counter"] = await named_after({(name_at(soft_roce[0].nic.address), "port-errors")})
    assert {name: count for name, count in looks.items() if count > LOOKS} == {}
