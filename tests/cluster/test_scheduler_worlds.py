"""Random small clusters are played with the real scheduler, and every verdict is predicted.

A scheduler and an API server of their own: no controller, no kubelet, nothing that would change a node meanwhile.
WORLDS=500 plays more of them (a sample otherwise), SHARE_WORLDS=500 more with shared NICs, DEVICE_WORLDS=500 more with
devices of every sort, WORLDS_SEED others.
What differs is written to a file that `make golden FILE=` reads; with WORLDS_OUT=folder both that and all that was
played stay there.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dranet.advise.manifests import Manifests, read_text
from dranet.advise.plan.hardware import hardware_of_slices
from dranet.advise.plan.planning import Plan, plan
from dranet.cli.live_cluster import Cluster as Source
from dranet.cli.live_cluster import read_cluster
from tests.cluster.kubebed import Cluster, Options
from tests.cluster.kubebed.layout import Layout
from tests.cluster.live_worlds import World, play
from tests.cluster.random_devices import random_device_world
from tests.cluster.random_shares import random_share_world
from tests.cluster.random_worlds import random_world
from tests.golden.clusters import compare_world

WORLDS = int(os.environ.get("WORLDS", "40"))
SHARE_WORLDS = int(os.environ.get("SHARE_WORLDS", "25"))
DEVICE_WORLDS = int(os.environ.get("DEVICE_WORLDS", "20"))
SEED = int(os.environ.get("WORLDS_SEED", "20261115"))
BED = 9
"""Next to the bed of the other scenarios."""


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Cluster]:
    alone = Cluster(Layout(BED), Options(nodes=0, nics=0, controllers=False))
    alone.up()
    yield alone
    alone.down()


@pytest.mark.timeout(60 + WORLDS * 10)
async def test_every_verdict_of_the_scheduler_is_predicted(scheduler: Cluster, tmp_path: Path) -> None:
    await _all_predicted(scheduler, "worlds", WORLDS, random_world, tmp_path)


@pytest.mark.timeout(60 + SHARE_WORLDS * 20)
async def test_whole_nics_and_shares_of_them_are_counted_as_the_scheduler_does(
    scheduler: Cluster, tmp_path: Path
) -> None:
    """Devices, which of them are shares, and how much each consumes."""
    lines = await _all_predicted(scheduler, "share-worlds", SHARE_WORLDS, random_share_world, tmp_path)
    verdicts = [step["verdict"] for line in lines for step in line["steps"]]
    rows = [row for verdict in verdicts for given in verdict.get("devices", {}).values() for row in given]
    assert len([row for row in rows if len(row) == SHARED]) > len(rows) // 2, (
        "few shares were given: this tells nothing"
    )


@pytest.mark.timeout(60 + DEVICE_WORLDS * 20)
async def test_devices_of_every_sort_are_given_as_predicted(scheduler: Cluster, tmp_path: Path) -> None:
    """Parts of GPUs, devices that several nodes reach, pools in several slices, taints, alternatives, admin access."""
    await _all_predicted(scheduler, "device-worlds", DEVICE_WORLDS, random_device_world, tmp_path)


SHARED = 5
"""Parts of what is recorded of a share; the last is how much it consumes."""


async def _all_predicted(scheduler: Cluster, name: str, count: int, world: World, tmp_path: Path) -> list[Any]:
    folder = Path(os.environ.get("WORLDS_OUT", tmp_path))
    report, lines = folder / f"differing-{name}.jsonl", []
    differing: list[tuple[str, str]] = []
    with report.open("w") as out, (folder / f"{name}.jsonl").open("w") as everything:
        async for line in play(scheduler.layout.kubeconfig, SEED, range(count), world=world):
            found = [(step, text) for step, text in compare_world(line) if text is not None]
            differing += found
            lines.append(line)
            everything.write(json.dumps(line) + "\n")
            if found:
                out.write(json.dumps(line) + "\n")
    steps = [step for line in lines for step in line["steps"]]
    placed = sum("node" in step["verdict"] for step in steps)
    assert not differing, f"{len(differing)} of {len(steps)} differ, see {report}; the first: {differing[0]}"
    assert len(steps) // 5 < placed < len(steps), f"{placed} of {len(steps)} pods fitted: such questions tell nothing"
    return lines


@pytest.mark.timeout(300)
async def test_a_plan_for_the_live_cluster_is_what_then_happens(scheduler: Cluster) -> None:
    """At least a hundred pods, each planned with `--live` just before it is applied."""
    config = scheduler.layout.kubeconfig
    plans: dict[str, Plan] = {}

    async def before(pod: dict[str, Any]) -> None:
        plans[pod["metadata"]["name"]] = await asyncio.to_thread(_planned, str(config), pod)

    steps = [step async for line in play(config, SEED + 1, range(PLANNED_WORLDS), before) for step in line["steps"]]
    differing = [found for step in steps if (found := _differs(plans[step["pod"]["metadata"]["name"]], step))]
    assert differing == []
    assert len(steps) >= 100


PLANNED_WORLDS = 18


def _planned(kubeconfig: str, pod: dict[str, Any]) -> Plan:
    cluster = read_cluster(Source(kubeconfig))
    manifests = Manifests(read_text(json.dumps(pod), "pod.json")[0], [*cluster.surroundings, *cluster.objects])
    return plan(manifests, hardware_of_slices(manifests.checked_slices()))


def _differs(found: Plan, step: dict[str, Any]) -> tuple[Any, ...] | None:
    """Where several nodes are equally good, any of them is right; a sentence may name another node's device."""
    verdict, ours = step["verdict"], [refusal.reason for refusal in found.unschedulable]
    if "preempted" in verdict:
        return None if ours and "of lower priority" in ours[0] else (verdict, ours)
    if said := verdict.get("message"):
        return None if ours and (ours[0].startswith(said) or said.startswith("running")) else (said, ours)
    if ours and ours[0].startswith(f"scheduled on {verdict['node']}, "):  # where a driver will refuse a shared NIC
        return None
    placed = [*(one.placement for one in found.pods), *found.others]
    if len(placed) != 1 or (placed[0].node != verdict["node"] and not placed[0].others):
        return verdict["node"], [one.node for one in placed], ours
    return None
