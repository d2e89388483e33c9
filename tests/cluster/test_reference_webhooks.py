"""The reference's two scenarios with a webhook: addresses by profile, and attributes and settings of a device.

The webhook (`webhook.py`) runs as a DaemonSet from a ConfigMap, in our image because that has a Python. The reference's
first scenario puts whereabouts behind its webhook; here the webhook keeps the range itself: to a driver it is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dranet import __version__
from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.inside import addresses, link, process_of
from tests.cluster.kubebed import Cluster, Kubectl, Nic
from tests.cluster.kubebed.manifests import claim, claim_template, opaque, pod, request

PORT = 8081
IMAGE = f"localhost/dranet:{__version__}"
ARGS = {
    "cloudProviderHint": "webhook",
    "profileProvider": "webhook",
    "webhookURL": f"http://127.0.0.1:{PORT}",
}


@pytest.fixture(scope="module")
def driver(bed: Cluster) -> Iterator[Cluster]:
    system = bed.kubectl.in_namespace(release.SYSTEM)
    nics = {node.name: Nic("dummy1", f"02:5c:e1:00:00:{node.layout.index:02x}", rail=50) for node in bed.nodes}
    for node in bed.nodes:
        node.plug(bed.fabric, [nics[node.name]])
    release.load_image(bed)
    system.apply(*webhook())
    system.run("rollout", "status", "daemonset/webhook", "--timeout=60s")
    release.install(bed, args=ARGS)
    yield bed
    release.remove(bed)
    system.delete("daemonset/webhook", "configmap/webhook")
    for node in bed.nodes:
        node.unplug(bed.fabric, [nics[node.name]])


def webhook() -> list[dict[str, Any]]:
    labels = {"app": "webhook"}
    script = {"webhook.py": (Path(__file__).parent / "webhook.py").read_text()}
    container = {
        "name": "webhook",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/usr/bin/python3", "/etc/webhook/webhook.py", str(PORT)],
        "volumeMounts": [{"name": "script", "mountPath": "/etc/webhook"}],
        "readinessProbe": {"httpGet": {"host": "127.0.0.1", "port": PORT, "path": "/health"}, "periodSeconds": 1},
    }
    spec = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "script", "configMap": {"name": "webhook"}}],
    }
    daemons = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "webhook"}, "data": script},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "webhook"}, "spec": daemons},
    ]


def leases(bed: Cluster, node: str) -> dict[str, str]:
    """By claim UID, as the webhook of a node has them."""
    ask = f"import urllib.request; print(urllib.request.urlopen('{ARGS['webhookURL']}/leases').read().decode())"
    found: dict[str, str] = json.loads(bed.node(node).run("python3", "-c", ask))
    return found


def test_webhook_profile_gives_an_address_of_its_range_and_gets_it_back(driver: Cluster, kubectl: Kubectl) -> None:
    selector = 'device.attributes["dra.net"].ifName == "nic0"'
    profile = opaque("dra.net", {"profile": "whereabouts-profile"})
    kubectl.apply(claim_template("ranged", request("req", release.CLASS, selector=selector), config=[profile]))
    kubectl.start(pod("ranged", templates={"nic": "ranged"}))
    node = kubectl.get("pod/ranged")["spec"]["nodeName"]
    [leased] = leases(driver, node).values()
    assert f"{leased}/24" in addresses(process_of(driver, kubectl, "ranged"), "nic0")
    assert leased.startswith("192.168.100.")
    kubectl.delete("pod/ranged")
    wait_until(lambda: not leases(driver, node), "the address to be given back")


def test_python_webhook_attributes_configuration_and_profile(driver: Cluster, kubectl: Kubectl) -> None:
    wait_until(
        lambda: release.published(kubectl, "n1").get("dummy1", {}).get("dra.net/webhook_attr") == "python",
        "the webhook's attribute",
    )
    selector = 'device.attributes["dra.net"].?webhook_attr.orValue("") == "python"'
    profile = opaque("dra.net", {"profile": "python-profile"})
    kubectl.apply(claim("hooked", request("req", release.CLASS, selector=selector), config=[profile]))
    kubectl.start(pod("hooked", claims={"nic": "hooked"}))
    process = process_of(driver, kubectl, "hooked")
    assert addresses(process, "dummy1") == ["10.200.200.200/24"]
    assert link(process, "dummy1")["mtu"] == 1450
