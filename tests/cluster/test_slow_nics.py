"""NICs that take longer than containerd waits, on a real cluster; tests/containerd has the whole matrix.

Eight NICs of 0.7 s each, and a runtime that waits two seconds. One container names the claim and waits for the
readiness gate; one does not and is refused by the hook; the kubelet tries both again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.manifests import claim_template, pod, request
from tests.cluster.test_faults import driver_process, missing

NICS = {f"nic{number}" for number in range(8)}
DEFERRED = "NetworkDeviceAttachDeferred"


@pytest.fixture(scope="module")
def driver(bed: Cluster) -> Iterator[Cluster]:
    """From the chart, with a variable more, for which it has no value."""
    for node in bed.nodes:
        bed.replug(node, bed.nics(node))
    release.load_image(bed)
    release.uninstall(bed)
    known = "            - name: DRANET_PROC_ROOT\n"
    slow = f'            - name: DRANET_SLOW_ATTACH\n              value: "0.7"\n{known}'
    rendered = bed.helm.template(release.CHART, release.VALUES)
    assert known in rendered
    objects = rendered.replace(known, slow)
    system = bed.kubectl.in_namespace(release.SYSTEM)
    system.apply(objects, release.device_class(release.CLASS, 'device.driver == "dra.net"'))
    wait_until(lambda: len(release.drivers(bed)) == len(bed.nodes), "the driver to be ready")
    for node in bed.nodes:
        release.wait_published(bed.kubectl, node.name, *NICS)
    yield bed
    system.run("delete", "-f", "-", stdin=objects)
    bed.kubectl.delete(f"deviceclass/{release.CLASS}")
    wait_until(lambda: not release.drivers(bed, serving=False), "the driver to be gone")


@pytest.fixture
def slow_pod(driver: Cluster, kubectl: Kubectl) -> dict[str, Any]:
    """Eight NICs, two containers of which one names the claim."""
    kubectl.apply(claim_template("eight", request("nic", release.CLASS, selector=release.NIC, count=8)))
    made = pod("slow", templates={"nics": "eight"}, node=driver.node_names()[0])
    (main,) = made["spec"]["containers"]
    made["spec"]["containers"].append({**main, "name": "second", "resources": {}})
    kubectl.apply(made)
    return made


def reasons(kubectl: Kubectl) -> set[str]:
    return {event["reason"] for event in kubectl.items("events")}


def assert_runs_with_all_nics(driver: Cluster, kubectl: Kubectl) -> None:
    kubectl.wait("pod/slow", "condition=Ready")
    for container in ("main", "second"):
        seen = set(kubectl.exec("slow", "ls", "/sys/class/net", container=container).split())
        assert seen == {"lo", "eth0", *NICS}
    found = kubectl.get("pod/slow")["status"]["containerStatuses"]
    assert [status["restartCount"] for status in found] == [0, 0]
    kubectl.delete("pod/slow", grace=1)
    wait_until(lambda: not missing(driver), "all NICs to be on the host")


def test_a_pod_whose_nics_are_slow_starts_by_itself_with_all_of_them(
    driver: Cluster, kubectl: Kubectl, slow_pod: dict[str, Any]
) -> None:
    before = {node: found["metadata"]["name"] for node, found in release.drivers(driver).items()}
    wait_until(lambda: DEFERRED in reasons(kubectl), "the event that the NICs take longer")
    [claim] = kubectl.items("resourceclaims")
    said = {entry["conditions"][0]["reason"] for entry in claim["status"].get("devices") or []}
    assert said <= {"Attaching", "NetworkDeviceReady"}
    assert_runs_with_all_nics(driver, kubectl)
    assert "FailedCreatePodSandBox" not in reasons(kubectl)
    assert {node: found["metadata"]["name"] for node, found in release.drivers(driver).items()} == before
    log = driver.kubectl.in_namespace(release.SYSTEM).logs(before[driver.node_names()[0]])
    assert log.count("NRI connection changed plugin=00-dra.net state=ready") == 1, "containerd has dropped the driver"


def test_a_driver_that_is_killed_while_slow_nics_are_on_their_way_finishes_when_it_is_back(
    driver: Cluster, kubectl: Kubectl, slow_pod: dict[str, Any]
) -> None:
    node = driver.nodes[0]
    process = driver_process(driver, node)
    wait_until(lambda: DEFERRED in reasons(kubectl), "the event that the NICs take longer")
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: driver_process(driver, node) != process, "the driver to be back")
    assert_runs_with_all_nics(driver, kubectl)
