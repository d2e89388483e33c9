"""The pods of the trial on kind, on this bed: two pods, each with a NIC under the name that the trial shows."""

from __future__ import annotations

import yaml

from tests.cluster import release
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.images import BUSYBOX_IMAGE

PODS = release.PROJECT / "deploy" / "kind" / "pods.yaml"


def test_both_pods_of_the_trial_get_their_nic(driver: Cluster, kubectl: Kubectl) -> None:
    items = list(yaml.safe_load_all(PODS.read_text()))
    for item in items:
        for container in item["spec"].get("containers", ()):
            container["image"] = BUSYBOX_IMAGE  # a bed pulls nothing
    kubectl.start(*items)
    addresses = [kubectl.exec(pod, "ip", "addr", "show", "net1") for pod in ("first", "second")]
    assert all("192.168." in shown for shown in addresses)
    assert addresses[0] != addresses[1]
