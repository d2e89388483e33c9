"""adminAccess in a real cluster: the scheduler gives the same device twice, and only one of the two has it."""

from __future__ import annotations

from typing import Any

from tests.cluster import release
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.manifests import claim, pod, request

NIC0 = 'device.attributes["dra.net"].ifName == "nic0"'


def look() -> dict[str, Any]:
    asked = request("nic", release.CLASS, selector=NIC0)
    asked["exactly"]["adminAccess"] = True
    return claim("look", asked)


def reasons(kubectl: Kubectl, name: str) -> list[str]:
    kubectl.wait(f"resourceclaim/{name}", "jsonpath={.status.devices[0].conditions}")
    (entry,) = kubectl.get(f"resourceclaim/{name}")["status"]["devices"]
    return [condition["reason"] for condition in entry["conditions"]]


def links(kubectl: Kubectl, name: str) -> str:
    return kubectl.exec(name, "ls", "/sys/class/net")


def test_an_admin_looks_at_a_nic_before_while_and_after_a_pod_has_it(driver: Cluster, kubectl: Kubectl) -> None:
    node = driver.node_names()[0]
    driver.kubectl.run("label", "namespace", kubectl.namespace, "resource.kubernetes.io/admin-access=true")
    kubectl.apply(look(), claim("own", request("nic", release.CLASS, selector=NIC0)))
    kubectl.start(pod("admin", claims={"nic": "look"}, node=node))
    kubectl.start(pod("owner", claims={"nic": "own"}, node=node))
    assert "nic0" in links(kubectl, "owner")
    assert "nic0" not in links(kubectl, "admin")
    assert reasons(kubectl, "look") == ["AdminAccessReady"]
    kubectl.delete("pod/admin")
    assert "nic0" in links(kubectl, "owner")
    kubectl.start(pod("again", claims={"nic": "look"}, node=node))
