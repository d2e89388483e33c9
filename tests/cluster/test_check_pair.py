"""`dranet check --emit-job` on a real cluster: the Job as it is printed, with the driver's image, on claimed cards."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import release
from kubebed import Cluster, Kubectl
from kubebed.manifests import claim_template, request
from kubebed.node import Node
from kubebed.processes import wait_until
from kubebed.startup import Samples

SLOW = "nic3"
MOST_SECONDS = 20
"""Half of which is waiting for packets and not work: ten seconds on busy cores."""
TBF = "tbf rate {rate} burst 32k latency 20ms"


@pytest.fixture
def shaped(driver: Cluster) -> Iterator[Cluster]:
    """Every card gets 300 Mbit/s from its switch, so that siblings are alike; one of the first node a tenth of it."""
    driver.start_dns()
    for node in driver.nodes:
        for card in driver.cards(node):
            slow = (node, card.name) == (driver.nodes[0], SLOW)
            at_switch(driver, node, card.name, f"replace {TBF}".format(rate="30mbit" if slow else "300mbit"))
    yield driver
    for node in driver.nodes:
        for card in driver.cards(node):
            at_switch(driver, node, card.name, "del")


def at_switch(bed: Cluster, node: Node, card: str, change: str) -> None:
    """At the fabric's end of the cable: it stays when the card moves into a pod."""
    verb, _, rest = change.partition(" ")
    command = f"tc qdisc {verb} dev n{node.layout.index}-{card} root {rest}"
    holder = bed.processes.find("fabric").pid
    subprocess.run(["nsenter", "-t", str(holder), "-n", *command.split()], check=True)


def emitted(*words: str) -> str:
    command = [sys.executable, "-m", "dranet", "check", "--emit-job", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def first_pod(kubectl: Kubectl) -> dict[str, Any]:
    label = "batch.kubernetes.io/job-name=fit,batch.kubernetes.io/job-completion-index=0"
    return kubectl.items("pods", "-l", label)[0]


def test_the_slow_card_is_found_among_two_nodes_of_eight_cards(
    shaped: Cluster, kubectl: Kubectl, samples: Samples
) -> None:
    kubectl.apply(claim_template("eight", request("nics", release.CLASS, selector=release.CARD, count=8)))
    begin = time.monotonic()
    kubectl.apply(emitted("-n", "2", "--template", "eight", "--job-name", "fit"))
    wait_until(lambda: "failed" in kubectl.get("job/fit").get("status", {}), "the Job to end in failure", 90)
    samples.add("check pair, 2 x 8 cards: from the Job to its end", time.monotonic() - begin)
    log = kubectl.logs(first_pod(kubectl)["metadata"]["name"])
    found = json.loads(log.splitlines()[-1])
    samples.add("check pair, 2 x 8 cards: measuring", found["seconds"])
    assert found["seconds"] < MOST_SECONDS, log
    assert len([path for path in found["paths"] if not path["crossing"]]) == 16, log
    (finding,) = found["findings"]
    assert (finding["kind"], {end["card"] for end in finding["cards"]}) == ("slow", {SLOW}), log
    assert shaped.nodes[0].name in {end["node"] for end in finding["cards"]}
    assert f"fault: {finding['words']}" in log.splitlines()
