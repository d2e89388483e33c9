"""Pods that come and go on real cards, under load, make no fault: none is ever told, by event or metric.

Two pairs of cards, each pair on one wire and one of them with soft-RoCE, so that carriers, GIDs, error counters and
MTUs change hands all the time. Pods live from no time at all to a few looks long. `make churn` takes half an hour.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dranet.kube import resources
from dranet.sandbox.node import SandboxPod
from tests.vm.injected import carrier, machine_file
from tests.vm.machine import VIRTIO_NODE0, VIRTIO_NODE1, Card
from tests.vm.node import GuestNode, guest_node
from tests.vm.parts import name_at
from tests.vm.test_daemon import until
from tests.vm.test_health import scraped, told
from tests.vm.world import SoftRoce, netdev_of, tool, wait_for

LONGEST_SECONDS = 8.0
FAULTS = ("NetworkDeviceBroken", "NetworkDeviceDegraded")


def told_events(node: GuestNode) -> list[str]:
    return [str(event) for event in node.api.objects(resources.EVENTS) if event["reason"] in FAULTS]


async def live(node: GuestNode, cards: tuple[Card, Card], number: int, dice: random.Random) -> None:
    """Two pods on one wire, which talk for as long as both are there."""
    mtu = dice.choice((1400, 1500))
    pods = [
        node.claim(
            name_at(card.address),
            f"churn-{number}-{place}",
            {"interface": {"name": "net0", "mtu": mtu, "addresses": [f"10.8.{number % 200}.{place + 1}/24"]}},
        )
        for place, card in enumerate(cards)
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
    links = [netdev_of(card) for card in (VIRTIO_NODE0, VIRTIO_NODE1)]
    for link in links:
        tool("ip", "link", "set", link, "up")
        wait_for(lambda link=link: carrier(link) == "1", f"the carrier of {link}")  # type: ignore[misc]
    yield
    for card in (VIRTIO_NODE0, VIRTIO_NODE1):
        tool("ip", "link", "set", netdev_of(card), "down")


@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("virtio_up")
async def test_pods_that_come_and_go_under_load_make_no_fault(
    soft_roce: tuple[SoftRoce, SoftRoce], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    end = time.monotonic() + 60 * pytestconfig.getoption("--churn-minutes")
    pairs = [(soft_roce[0].card, soft_roce[1].card), (VIRTIO_NODE0, VIRTIO_NODE1)]
    seen, lived = set[tuple[str, str]](), [0, 0]
    async with guest_node(f"--machine-shape={machine_file(tmp_path / 'guest.toml')}") as node:
        names = {name_at(card.address) for pair in pairs for card in pair}
        await until(lambda: names <= set(node.published()), "the cards to be published")

        async def churn(place: int) -> None:
            dice = random.Random(place)
            while time.monotonic() < end:
                await live(node, pairs[place], 2 * lived[place] + place, dice)
                lived[place] += 1

        async def watch() -> None:
            for second in itertools.count():
                seen.update(await asyncio.to_thread(told))
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
        assert (told_events(node), seen) == ([], set())
        assert min(lived) > 0
