"""How long a pod with NICs takes to start, and where the time goes; the percentiles stand below the closing table.

Prepare and attach are taken from the driver's own metrics, read before and after every pod. What remains is the
sandbox, the pod's network and the container, which a pod without a claim needs as well.
"""

from __future__ import annotations

import re
import urllib.request

import pytest

from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.manifests import claim_template, pod, request
from tests.cluster.kubebed.node import Node
from tests.cluster.kubebed.startup import Samples, start_pod

PODS = 8
"""With one NIC each they fill a node: pods with one NIC need not make room for each other."""
PREPARE = 'dranet_driver_dra_plugin_requests_latency_seconds_sum{method="PrepareResourceClaims"}'
ATTACH = 'dranet_driver_nri_plugin_requests_latency_seconds_sum{method="RunPodSandbox",status="success"}'


def spent(node: Node, series: str) -> float:
    """Seconds the driver of a node has spent on something since its start."""
    url = f"http://{node.layout.address}:9177/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        found = re.search(rf"^{re.escape(series)} (\S+)$", answer.read().decode(), re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def since(node: Node, series: str, past: float, nics: int) -> float:
    """Seconds since then. The driver caches its metrics, so those of a pod with NICs may come a moment later."""
    if nics:
        wait_until(lambda: spent(node, series) > past, f"more than {past} in {series}")
    return spent(node, series) - past


@pytest.mark.parametrize("nics", [0, 1, 8], ids=["no claim", "1 NIC", "8 NICs"])
def test_start_of_a_pod_is_measured(driver: Cluster, kubectl: Kubectl, samples: Samples, nics: int) -> None:
    node, label = driver.nodes[0], f"pod with {nics} NIC{'s' * (nics > 1)}" if nics else "pod without a claim"
    if nics:
        kubectl.apply(claim_template("nics", request("nic", release.CLASS, selector=release.NIC, count=nics)))
    wait_until(lambda: free(driver, node), "the NICs of earlier pods")
    for number in range(PODS):
        before = [spent(node, series) for series in (PREPARE, ATTACH)]
        name, templates = f"timed-{number}", {"nics": "nics"} if nics else {}
        found = start_pod(kubectl, pod(name, node=node.name, templates=templates))
        prepare, attach = (
            since(node, series, past, nics) for series, past in zip((PREPARE, ATTACH), before, strict=True)
        )
        samples.add(f"{label}: running", found.running)
        samples.add(f"{label}: scheduling", found.scheduled)
        if nics:
            samples.add(f"{label}: prepare", prepare)
            samples.add(f"{label}: attach", attach)
        samples.add(f"{label}: sandbox and container", found.running - found.scheduled - prepare - attach)
        if nics == len(driver.nics(node)):
            kubectl.delete(f"pod/{name}")
            wait_until(lambda: free(driver, node), "the NICs to be free again")


def free(bed: Cluster, node: Node) -> bool:
    """Every NIC is on its host and no claim holds one: the next pod waits for nothing."""
    home = {nic.name for nic in bed.nics(node)} <= set(node.links())
    return home and not bed.kubectl.items("resourceclaims", "--all-namespaces")
