"""Pods that come and go on real NICs, under load, make no fault: none is ever reported, by event or metric.

Two pairs of NICs, each pair on one wire and one of them with soft-RoCE, so that carriers, GIDs, error counters and
MTUs change hands all the time. Pods live from no time at all to a few looks long. `make churn` takes half an hour.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dranet.kubernetes.api import resources
from dranet.testing.node import SandboxPod
from dranet.testing.waiting import until, wait_until
from tests.vm.injected import carrier, machine_file
from tests.vm.machine import VIRTIO_NODE0, VIRTIO_NODE1, Nic
from tests.vm.node import GuestNode, guest_node
from tests.vm.parts import name_at
from tests.vm.test_health import reported, scraped
from tests.vm.world import SoftRoce, netdev_of, tool

LONGEST_SECONDS = 8.0
FAULTS = ("NetworkDeviceBroken", "NetworkDeviceDegraded")


def reported_events(node: GuestNode) -> list[str]:
    return [str(event) for event in node.api.objects(resources.EVENTS) if event["reason"] in FAULTS]


async def live(node: GuestNode, nics: tuple[Nic, Nic], number: int, dice: random.Random) -> None:
    """Two pods on one wire, which talk for as long as both are there."""
    mtu = dice.choice((1400, 1500))
    pods = [
        node.claim(
            name_at(nic.address),
            f"churn-{number}-{place}",
            {"interface": {"name": "net0", "mtu": mtu, "addresses": [f"10.8.{number % 200}.{place + 1}/24"]}},
        )
        for place, nic in enumerate(nics)
    ]
    for pod in pods:
        await node.start_pod(pod)
    if seconds := dice.choice((0.0, dice.random() * LONGEST_SECONDS)):
        await talk(pods[0], f"10.8.{number % 200}.2", seconds)
    for pod in dice.sample(pods, 2):
        await node.stop_pod(pod)


async def talk(pod: SandboxPod, other: str, seconds: float) -> None:
    """As many packets as the other side answers; the first are lost while carriers come."""
    words = ("nsenter", f"--net={pod.path}", "timeout", f"{seconds:.1f}", "ping", "-f", "-q", "-s", "1300", other)
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.DEVNULL)
    await process.wait()


@pytest.fixture
def virtio_up() -> Iterator[None]:
    links = [netdev_of(nic) for nic in (VIRTIO_NODE0, VIRTIO_NODE1)]
    for link in links:
        tool("ip", "link", "set", link, "up")
        wait_until(lambda link=link: carrier(link) == "1", f"the carrier of {link}")  # type: ignore[misc]
    yield
    for nic in (VIRTIO_NODE0, VIRTIO_NODE1):
        tool("ip", "link", "set", netdev_of(nic), "down")


@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("virtio_up")
async def test_pods_that_come_and_go_under_load_make_no_fault(
    soft_roce: tuple[SoftRoce, SoftRoce], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    end = time.monotonic() + 60 * pytestconfig.getoption("--churn-minutes")
    pairs = [(soft_roce[0].nic, soft_roce[1].nic), (VIRTIO_NODE0, VIRTIO_NODE1)]
    seen, lived = set[tuple[str, str]](), [0, 0]
    async with guest_node(f"--machine-shape={machine_file(tmp_path / 'guest.toml')}") as node:
        names = {name_at(nic.address) for pair in pairs for nic in pair}
        await until(lambda: names <= set(node.published()), "the NICs to be published")

        async def churn(place: int) -> None:
            dice = random.Random(place)
            while time.monotonic() < end:
                await live(node, pairs[place], 2 * lived[place] + place, dice)
                lived[place] += 1

        async def watch() -> None:
            for second in itertools.count():
                seen.update(await asyncio.to_thread(reported))
                if second % 60 == 0:
                    print(f"{2 * sum(lived)} pods, {scraped()[1]} looks, seen {seen or 'nothing'}", flush=True)
                await asyncio.sleep(1)

        watching = asyncio.create_task(watch())
        try:
            await asyncio.gather(churn(0), churn(1))
            await asyncio.sleep(2 * 3)  # two looks at what the last pods left
            assert not watching.done(), watching
        finally:
            watching.cancel()
        print(f"{2 * sum(lived)} pods, {scraped()[1]} looks", flush=True)
        assert (reported_events(node), seen) == ([], set())
        assert min(lived) > 0
