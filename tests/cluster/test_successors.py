"""Pods deleted by force, and their successors with the same named claims: what a StatefulSet does with a lost node.

A successor has its predecessor's name and claim and a UID of its own. It is there before the predecessor's sandbox has
ended, so kubelet, runtime and driver hear of both in any order, and the claim may or may not be prepared again. Every
pod looks for its NIC the moment its container starts and ends in failure if it is not there.

By hand, `make successors N=1000`: no part of `make e2e`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial

import pytest

from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.manifests import claim, pod, request
from tests.cluster.kubebed.startup import Samples
from tests.cluster.test_faults import STAY, counted, missing, readiness_gates

SUCCESSORS = int(os.environ.get("SUCCESSORS", "20"))
SECONDS_A_ROUND = 120


@pytest.fixture
def members(driver: Cluster, kubectl: Kubectl) -> Iterator[list[str]]:
    """As many names as there are NICs, each with a claim of its own that outlives its pods."""
    names = [f"member-{number}" for number in range(sum(len(driver.nics(node)) for node in driver.nodes))]
    kubectl.apply(*(claim(name, request("nic", release.CLASS, selector=release.NIC)) for name in names))
    yield names
    kubectl.run("delete", "pods", "--all", "--grace-period=1", "--wait=true")
    kubectl.run("delete", "resourceclaims", "--all", "--wait=true")


def start(kubectl: Kubectl, names: list[str]) -> None:
    made = [pod(name, claims={"nic": name}, command=("sh", "-c", STAY), labels={"user": "yes"}) for name in names]
    kubectl.apply(*made)


def uids(kubectl: Kubectl) -> set[str]:
    return {found["metadata"]["uid"] for found in kubectl.items("pods", "-l", "user=yes")}


@pytest.mark.timeout(60 + SUCCESSORS * SECONDS_A_ROUND // 8)
def test_successors_of_pods_deleted_by_force_get_their_nics(
    driver: Cluster, kubectl: Kubectl, members: list[str], samples: Samples
) -> None:
    """Every third generation is deleted while it is still starting."""
    start(kubectl, members)
    wait_until(partial(counted, kubectl, "Running", len(members)), "the first generation to run")
    made, seen = 0, uids(kubectl)
    while made < SUCCESSORS:
        began = time.monotonic()
        kubectl.run("delete", "pods", "-l", "user=yes", "--grace-period=0", "--force", "--wait=true")
        start(kubectl, members)
        made += len(members)
        running = 1 if made // len(members) % 3 == 0 and made < SUCCESSORS else len(members)
        wait_until(partial(counted, kubectl, "Running", running), f"{running} of successors to {made}")
        assert not seen & uids(kubectl)
        seen = uids(kubectl)
        if running > 1:
            samples.add(f"{len(members)} pods force deleted, successors run", time.monotonic() - began)
    kubectl.run("delete", "pods", "-l", "user=yes", "--grace-period=0", "--force", "--wait=true")
    wait_until(lambda: not missing(driver), f"all NICs to be on the host after {made} successors")
    wait_until(lambda: not any(map(readiness_gates, driver.nodes)), "no readiness gate to be left")
