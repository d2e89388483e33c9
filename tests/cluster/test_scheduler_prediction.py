"""The real kube-scheduler and our allocator are asked the same, and must give the same devices.

Every case has a machine on paper to itself, so cases do not wait for each other; a second pod on each machine finds
what the first left. What went into a case that differs, and what came out, is written to a file of JSON lines.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import shape_slices
from dranet.scheduler.allocation.allocator import ClusterDevices
from dranet.scheduler.allocation.outcome import Allocation
from dranet.testing.waiting import wait_until
from tests.cluster.kubebed import Cluster, ExistingCluster, Kubectl, parts
from tests.cluster.kubebed.manifests import RESOURCE_API, pod
from tests.cluster.kubebed.paper import LABEL, on_paper, paper_node
from tests.cluster.random_claims import CLASSES, device_class, random_claim, taint_some

Manifest = dict[str, Any]
SEED = 20261115
VERSION = os.environ.get("K8S", parts.DEFAULT_KUBERNETES)
MACHINES = 110
PODS = ("first", "second")
FITS = "fits"
SHAPES = ("a4-highgpu-8g", "a3-ultragpu-8g", "nd-gb300-v6")


@pytest.fixture(scope="module")
def machines(cluster: Cluster | ExistingCluster) -> Iterator[list[str]]:
    chance, names = random.Random(SEED), [f"case-{number}" for number in range(MACHINES)]
    slices = [found for number, name in enumerate(names) for found in _slices(name, number, chance)]
    everywhere = cluster.kubectl
    wait_until(lambda: not _held(everywhere, names), "claims of an earlier run to be gone")
    create(everywhere, [*map(paper_node, names), *map(device_class, CLASSES), *slices])
    yield names
    for path in (f"/apis/{RESOURCE_API}/resourceslices", "/api/v1/nodes", f"/apis/{RESOURCE_API}/deviceclasses"):
        delete_paper(everywhere, path)


def delete_paper(kubectl: Kubectl, path: str) -> None:
    """All objects on paper in one request; kubectl by itself would send one for each."""
    kubectl.run("delete", "--raw", f"{path}?labelSelector={LABEL}&gracePeriodSeconds=0")


def _held(kubectl: Kubectl, machines: list[str]) -> bool:
    claims = kubectl.items("resourceclaims", "--all-namespaces")
    return any(found["pool"] in machines for item in claims for found in _results(_allocation(item) or {}))


def _allocation(item: Manifest) -> Manifest | None:
    return (item.get("status") or {}).get("allocation")


def _slices(name: str, number: int, chance: random.Random) -> list[Manifest]:
    found = shape_slices(load_shape(SHAPES[number % len(SHAPES)]), name, number)
    for one in found:
        one["apiVersion"] = RESOURCE_API
        one["metadata"]["labels"] = {LABEL: "yes"}
    taint_some(found, chance)
    return found


def create(kubectl: Kubectl, manifests: list[Manifest]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    kubectl.run("create", "-f", "-", stdin=text, timeout=300)


@pytest.mark.timeout(400)
def test_every_pick_of_the_scheduler_is_predicted(machines: list[str], kubectl: Kubectl, tmp_path: Path) -> None:
    chance = random.Random(SEED + 1)
    verdicts: dict[str, str] = {}
    for wave in PODS:
        cases = {f"{wave}-{name}": name for name in machines}
        claims = [random_claim(name, chance) for name in cases]
        create(kubectl, [*claims, *(_pinned(name, machine) for name, machine in cases.items())])
        verdicts |= wait_until(partial(_decided, kubectl, wave), f"the verdicts on {len(cases)} pods")
    differing = compare(kubectl, machines, verdicts)
    delete_paper(kubectl, f"/api/v1/namespaces/{kubectl.namespace}/pods")
    report = tmp_path / "differences.jsonl"
    report.write_text("".join(json.dumps(line) + "\n" for line in differing))
    assert not differing, f"{len(differing)} of {len(verdicts)} differ, see {report}"
    assert len([text for text in verdicts.values() if text == FITS]) > len(verdicts) // 3, "such questions tell nothing"


def _pinned(name: str, machine: str) -> Manifest:
    made = on_paper(pod(name, claims={"devices": name}))
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": machine}
    made["metadata"]["labels"]["wave"] = name.partition("-")[0]
    return made


def _decided(kubectl: Kubectl, wave: str) -> dict[str, str]:
    """What the scheduler said at first; later pods may change its mind about those that did not fit."""
    pods = kubectl.items("pods", "-l", f"wave={wave}")
    verdicts = {item["metadata"]["name"]: _verdict(item) for item in pods}
    return verdicts if len(pods) == MACHINES and all(verdicts.values()) else {}


def _verdict(found: Manifest) -> str:
    conditions = found["status"].get("conditions") or []
    return next((c.get("message") or FITS for c in conditions if c["type"] == "PodScheduled"), "")


def compare(kubectl: Kubectl, machines: list[str], verdicts: dict[str, str]) -> list[Manifest]:
    """Cases where the two differ, with all that went in."""
    asked = {item["metadata"]["name"]: item for item in kubectl.items("resourceclaims")}
    slices = [item for item in kubectl.items("resourceslices") if item["spec"].get("nodeName") in machines]
    classes = [kubectl.get(f"deviceclass/{name}") for name in CLASSES]
    differing = []
    for machine in machines:
        mine = [found for found in slices if found["spec"]["nodeName"] == machine]
        node = {"metadata": {"name": machine, "labels": {"kubernetes.io/hostname": machine}}}
        allocated: list[Manifest] = []
        for name in (f"{wave}-{machine}" for wave in PODS):
            question = {"node": node, "slices": mine, "classes": classes, "allocated": allocated[:]}
            question["claims"] = [_open(asked[name])]
            theirs = _allocation(asked[name])
            ours = predict(question)
            if not _agree(ours, theirs, verdicts[name]):
                differing.append(question | {"scheduler": theirs or verdicts[name], "predicted": ours})
            allocated += _results(theirs or {})
    return differing


def predict(question: Manifest) -> list[tuple[str, ...]] | str:
    """The devices we expect, in order, or what the scheduler will say instead."""
    cluster = ClusterDevices(question["slices"], question["classes"], allocated=question["allocated"], version=VERSION)
    outcome = cluster.allocate(question["node"], question["claims"])
    return _devices(outcome.results[0]) if isinstance(outcome, Allocation) else outcome.message


def _agree(ours: list[tuple[str, ...]] | str, theirs: Manifest | None, verdict: str) -> bool:
    return ours in verdict if isinstance(ours, str) else theirs is not None and ours == _devices(theirs)


def _open(item: Manifest) -> Manifest:
    """The claim as it was before the scheduler saw it."""
    return {key: value for key, value in item.items() if key != "status"}


def _results(allocation: Manifest) -> list[Manifest]:
    return list((allocation.get("devices") or {}).get("results") or [])


def _devices(allocation: Manifest) -> list[tuple[str, ...]]:
    return [(found["request"], found["driver"], found["pool"], found["device"]) for found in _results(allocation)]
