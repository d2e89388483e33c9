"""Random gangs on small clusters: what the real scheduler does with them is what `dranet plan` says of them.

An API server and a scheduler of their own with the gates on; no controller, no kubelet. GANGS=200 asks about more of
them (a sample otherwise), GANGS_SEED others; with GANGS_OUT=file what happened is written there. Where the scheduler
leaves something to luck, the plan says so, and what happened must be one of the ways it could have gone: every pod on a
node that was among the best at its turn, with the devices we expect there, in some order of pods of equal priority; the
others refused at theirs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dranet.advise.manifests import Manifests, read_text
from dranet.advise.plan.cluster import add_bare_nodes, build_simulator
from dranet.advise.plan.gang_placement import GangVerdict, restrict_to
from dranet.advise.plan.hardware import Hardware, hardware_of_slices
from dranet.advise.plan.pending_pods import PendingPod, list_pending_pods
from dranet.advise.plan.placement import Placement, Simulator
from dranet.advise.plan.planning import plan
from dranet.advise.plan.selectors import SelectorTester as Selectors
from tests.cluster.kubebed import Cluster, Options
from tests.cluster.kubebed.layout import Layout
from tests.cluster.live_gangs import GATES, play_gang
from tests.cluster.live_worlds import prepare
from tests.cluster.random_gangs import GROUP, Question, random_gang
from tests.cluster.random_worlds import fixed_objects

GANGS = int(os.environ.get("GANGS", "25"))
SEED = int(os.environ.get("GANGS_SEED", "20261116"))
BED = 8
"""Next to the bed of the other scenarios."""
Real = dict[str, tuple[str, list[str]]]


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Cluster]:
    gates = dict.fromkeys(GATES, True)
    alone = Cluster(Layout(BED), Options(nodes=0, nics=0, controllers=False, feature_gates=gates))
    alone.up()
    yield alone
    alone.down()


@pytest.mark.timeout(60 + GANGS * 25)
async def test_what_becomes_of_every_gang_is_predicted(scheduler: Cluster) -> None:
    await prepare(scheduler.layout.kubeconfig)
    differing, started, by_luck = [], 0, 0
    with Path(os.environ.get("GANGS_OUT", os.devnull)).open("w") as kept:
        for number in range(GANGS):
            question = random_gang(SEED, number)
            real = await play_gang(scheduler.layout.kubeconfig, question)
            kept.write(json.dumps([number, real]) + "\n")
            verdict, difference = compare(question, real)
            if difference:
                differing.append((number, difference, verdict, real))
            started += any(node for node, _ in real.values())
            by_luck += bool(verdict.luck)
    assert not differing, f"{len(differing)} of {GANGS} differ, the first: {differing[0]}"
    assert GANGS // 5 < started < GANGS, f"{started} of {GANGS} gangs started: such questions tell nothing"
    assert by_luck < GANGS // 4, f"{by_luck} of {GANGS} gangs are luck: such answers tell nothing"


def compare(question: Question, real: Real) -> tuple[GangVerdict, str]:
    """What we say, and how that differs from what happened; nothing where it does not."""
    manifests, hardware = _world(question)
    (verdict,) = plan(manifests, hardware).gangs
    started = any(node for node, _ in real.values())
    if started != verdict.fits and not verdict.luck:
        return verdict, "starts or not"
    if not started:
        return verdict, ""
    blocks = {
        node["metadata"]["name"]: node["metadata"]["labels"] for node in question.objects if node["kind"] == "Node"
    }
    places = {blocks[node].get(question.key, "") for node, _ in real.values() if node} if question.key else set()
    if len(places) > 1 or not places <= {*verdict.places, *verdict.equally}:
        return verdict, f"place {places}"
    place = next(iter(places), "")
    machines = add_bare_nodes(manifests, hardware)
    asked = build_simulator(manifests, machines, (1, 36))
    pods = [pod for pod in list_pending_pods(manifests, list(machines.machines), Selectors()) if pod.name in real]
    pods.sort(key=lambda pod: -asked.priority(pod))
    if not explained(
        asked, pods, real, (lambda pod: restrict_to(pod, question.key, place)) if place else lambda pod: pod
    ):
        return verdict, "no order of pods explains it"
    return verdict, ""


def _world(question: Question) -> tuple[Manifests, Hardware]:
    group = {"apiVersion": f"{GROUP}/v1alpha2", **question.group}
    made = [*question.objects, *question.pods, *fixed_objects(), group]
    manifests = Manifests(read_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}), "gang.json")[0])
    return manifests, hardware_of_slices(manifests.checked_slices())


def explained(
    scheduler: Simulator, waiting: list[PendingPod], real: Real, narrow: Callable[[PendingPod], PendingPod]
) -> bool:
    """Whether some order of pods of equal priority leads to what happened."""
    for i, pod in enumerate(waiting):
        if scheduler.priority(pod) != scheduler.priority(waiting[0]):
            break
        node, devices = real[pod.name]
        mark = scheduler.checkpoint()
        rest = waiting[:i] + waiting[i + 1 :]
        if _agrees(scheduler, narrow(pod), node, devices) and (not rest or explained(scheduler, rest, real, narrow)):
            return True
        scheduler.rollback(mark)
    return False


def _agrees(scheduler: Simulator, pod: PendingPod, node: str, devices: list[str]) -> bool:
    verdict = scheduler.decide(pod)
    if not node:
        return bool(verdict.message)
    if verdict.message or node not in verdict.best_nodes:
        return False
    found = scheduler.place(pod, node)
    return isinstance(found, Placement) and [one.device for claim in found.devices for one in claim] == devices
