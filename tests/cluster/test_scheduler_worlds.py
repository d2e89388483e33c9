"""Random small clusters are played with the real scheduler, and every verdict is predicted.

A scheduler and an API server of their own: no controller, no kubelet, nothing that would change a node meanwhile.
WORLDS=500 plays more of them (a sample otherwise), WORLDS_SEED others. What differs is written to a file that `make
golden FILE=` reads; with WORLDS_OUT=folder both that and all that was played stay there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubebed import Cluster, Options
from kubebed.layout import Layout
from live_worlds import play

from dranet.cli.golden_worlds import compare_world

WORLDS = int(os.environ.get("WORLDS", "40"))
SEED = int(os.environ.get("WORLDS_SEED", "20261115"))
BED = 9
"""Beside the bed of the other scenarios."""


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Cluster]:
    alone = Cluster(Layout(BED), Options(nodes=0, cards=0, controllers=False))
    alone.up()
    yield alone
    alone.down()


@pytest.mark.timeout(60 + WORLDS * 10)
async def test_every_verdict_of_the_scheduler_is_predicted(scheduler: Cluster, tmp_path: Path) -> None:
    folder = Path(os.environ.get("WORLDS_OUT", tmp_path))
    report = folder / "differing-worlds.jsonl"
    differing: list[tuple[str, str]] = []
    steps = placed = 0
    with report.open("w") as out, (folder / "worlds.jsonl").open("w") as everything:
        async for line in play(scheduler.layout.kubeconfig, SEED, range(WORLDS)):
            found = [(name, text) for name, text in compare_world(line) if text is not None]
            differing += found
            steps += len(line["steps"])
            placed += sum("node" in step["verdict"] for step in line["steps"])
            everything.write(json.dumps(line) + "\n")
            if found:
                out.write(json.dumps(line) + "\n")
    assert not differing, f"{len(differing)} of {steps} differ, see {report}; the first: {differing[0]}"
    assert steps // 5 < placed < steps, f"{placed} of {steps} pods fitted: such questions tell nothing"
