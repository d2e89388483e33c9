"""How long a pod with cards takes to start, and where the time goes; the percentiles stand below the closing table.

Prepare and attach are taken from the driver's own metrics, read before and after every pod. What remains is the
sandbox, the pod's network and the container, which a pod without a claim needs as well.
"""

from __future__ import annotations

import re
import urllib.request

import pytest
import release
from kubebed import Cluster, Kubectl
from kubebed.manifests import claim_template, pod, request
from kubebed.node import Node
from kubebed.processes import wait_until
from kubebed.startup import Samples, start_pod

PODS = 8
"""With one card each they fill a node: pods with one card need not make room for each other."""
PREPARE = 'dranet_driver_dra_plugin_requests_latency_seconds_sum{method="PrepareResourceClaims"}'
ATTACH = 'dranet_driver_nri_plugin_requests_latency_seconds_sum{method="RunPodSandbox",status="success"}'


def spent(node: Node, series: str) -> float:
    """Seconds the driver of a node has spent on something since its start."""
    url = f"http://{node.layout.address}:9177/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        found = re.search(rf"^{re.escape(series)} (\S+)$", answer.read().decode(), re.MULTILINE)
    return float(found.group(1)) if found else 0.0


@pytest.mark.parametrize("cards", [0, 1, 8], ids=["no claim", "1 card", "8 cards"])
def test_start_of_a_pod_is_measured(driver: Cluster, kubectl: Kubectl, samples: Samples, cards: int) -> None:
    node, label = driver.nodes[0], f"pod with {cards} card{'s' * (cards > 1)}" if cards else "pod without a claim"
    if cards:
        kubectl.apply(claim_template("cards", request("nic", release.CLASS, selector=release.CARD, count=cards)))
    wait_until(lambda: free(driver, node), "the cards of earlier pods", 90)
    for number in range(PODS):
        before = [spent(node, series) for series in (PREPARE, ATTACH)]
        name, templates = f"timed-{number}", {"nics": "cards"} if cards else {}
        found = start_pod(kubectl, pod(name, node=node.name, templates=templates))
        prepare, attach = (spent(node, series) - past for series, past in zip((PREPARE, ATTACH), before, strict=True))
        samples.add(f"{label}: running", found.running)
        samples.add(f"{label}: scheduling", found.scheduled)
        if cards:
            assert prepare > 0 < attach
            samples.add(f"{label}: prepare", prepare)
            samples.add(f"{label}: attach", attach)
        samples.add(f"{label}: sandbox and container", found.running - found.scheduled - prepare - attach)
        if cards == len(driver.cards(node)):
            kubectl.delete(f"pod/{name}")
            wait_until(lambda: free(driver, node), "the cards to be free again", 60)


def free(bed: Cluster, node: Node) -> bool:
    """Every card is home and no claim holds one: the next pod waits for nothing."""
    home = {card.name for card in bed.cards(node)} <= set(node.links())
    return home and not bed.kubectl.items("resourceclaims", "--all-namespaces")
