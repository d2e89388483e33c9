"""`dranet check --emit-job` on a real cluster: the Job as it is printed, with the driver's image, on claimed NICs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.manifests import claim_template, request
from tests.cluster.kubebed.node import Node
from tests.cluster.kubebed.startup import Samples

SLOW = "nic3"
MOST_SECONDS = 20
"""Half of which is waiting for packets and not work: ten seconds on busy cores."""
TBF = "tbf rate {rate} burst 32k latency 20ms"


@pytest.fixture
def shaped(driver: Cluster) -> Iterator[Cluster]:
    """Every NIC gets 300 Mbit/s from its switch, so that siblings are equal; one of the first node a tenth of it."""
    driver.start_dns()
    for node in driver.nodes:
        for nic in driver.nics(node):
            slow = (node, nic.name) == (driver.nodes[0], SLOW)
            at_switch(driver, node, nic.name, f"replace {TBF}".format(rate="30mbit" if slow else "300mbit"))
    yield driver
    for node in driver.nodes:
        for nic in driver.nics(node):
            at_switch(driver, node, nic.name, "del")


def at_switch(bed: Cluster, node: Node, nic: str, change: str) -> None:
    """At the fabric's end of the cable: it stays when the NIC moves into a pod."""
    verb, _, rest = change.partition(" ")
    command = f"tc qdisc {verb} dev n{node.layout.index}-{nic} root {rest}"
    holder = bed.processes.find("fabric").pid
    subprocess.run(["nsenter", "-t", str(holder), "-n", *command.split()], check=True)


def emitted(*words: str) -> str:
    command = [sys.executable, "-m", "dranet", "check", "--emit-job", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def first_pod(kubectl: Kubectl) -> dict[str, Any]:
    label = "batch.kubernetes.io/job-name=fit,batch.kubernetes.io/job-completion-index=0"
    return kubectl.items("pods", "-l", label)[0]


def test_the_slow_nic_is_found_among_two_nodes_of_eight_nics(
    shaped: Cluster, kubectl: Kubectl, samples: Samples
) -> None:
    kubectl.apply(claim_template("eight", request("nics", release.CLASS, selector=release.NIC, count=8)))
    begin = time.monotonic()
    kubectl.apply(emitted("-n", "2", "--template", "eight", "--job-name", "fit"))
    wait_until(lambda: "failed" in kubectl.get("job/fit").get("status", {}), "the Job to end in failure")
    samples.add("check pair, 2 x 8 NICs: from the Job to its end", time.monotonic() - begin)
    log = kubectl.logs(first_pod(kubectl)["metadata"]["name"])
    found = json.loads(log.splitlines()[-1])
    samples.add("check pair, 2 x 8 NICs: measuring", found["seconds"])
    assert found["seconds"] < MOST_SECONDS, log
    assert len([path for path in found["paths"] if not path["cross_rail"]]) == 16, log
    (finding,) = found["findings"]
    assert (finding["kind"], {end["nic"] for end in finding["nics"]}) == ("slow", {SLOW}), log
    assert shaped.nodes[0].name in {end["node"] for end in finding["nics"]}
    assert f"fault: {finding['message']}" in log.splitlines()
