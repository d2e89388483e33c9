"""What the README tells a stranger to do, done: install from a registry, use it, undo it, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.inside import ip
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.manifests import claim_template, pod, request
from tests.cluster.kubebed.node import Node
from tests.cluster.published import Published, lines_of

VALUES = {
    **{key: value for key, value in release.VALUES.items() if key != "image"},
    "terminationGracePeriodSeconds": 60,
}
"""What a bed needs besides; the image is the release's own. A driver that is killed on its way leaves more behind."""
NRI = {"nri": {"enable": True}}
"""The init container looks at the node in its own root folder, and finds NRI on."""


@pytest.fixture
def driver(bed: Cluster, published: Published) -> Iterator[Cluster]:
    """None yet, and nodes without a past."""
    for node in bed.nodes:
        forget(node)
        bed.replug(node, bed.nics(node))
    yield bed
    release.remove(bed)


def test_what_was_published_can_be_checked_as_the_page_says(published: Published) -> None:
    lines = lines_of("docs/contributing/release.md", "sha256sum")
    assert published.image.partition("@")[2] in published.shell(f"cd {published.dist}\n{lines}", VALUES)


@pytest.mark.timeout(300)
def test_the_readmes_lines_install_a_working_driver_by_digest_and_undo_it(
    driver: Cluster, published: Published, kubectl: Kubectl, tmp_path: Path
) -> None:
    lines = lines_of("README.md", "helm install")
    installing = lines[lines.index("helm install") :]  # the line before made and published the release
    published.shell(installing, {**VALUES, **NRI})
    assert {found["spec"]["containers"][0]["image"] for found in release.drivers(driver).values()} == {published.image}
    assert sorted(release.drivers(driver)) == sorted(driver.node_names())

    system = driver.kubectl.in_namespace(release.SYSTEM)
    for found in release.drivers(driver).values():
        assert "already enabled" in system.run("logs", found["metadata"]["name"], "-c", "enable-nri")
    looked = published.shell(lines_of("docs/tasks/install.md", "helm test"), VALUES)
    assert "Succeeded" in looked
    assert all(nic.name in looked for node in driver.nodes for nic in driver.nics(node))

    kubectl.apply(claim_template("one", request("nic", "dranet", selector=release.NIC)))
    kubectl.start(*(pod(f"on-{node}", templates={"nic": "one"}, node=node) for node in driver.node_names()))
    for node in driver.node_names():
        assert "nic" in kubectl.exec(f"on-{node}", "ls", "/sys/class/net")
    kubectl.run("delete", "pods", "--all", "--grace-period=1", "--wait=true")

    published.shell(lines_of("README.md", "helm uninstall"), VALUES)
    wait_until(lambda: not release.drivers(driver, serving=False), "the driver's pods to be gone")
    assert not [item for item in driver.kubectl.items("resourceslices") if item["spec"]["driver"] == "dra.net"]
    labelled = driver.kubectl.run(
        "get", "clusterroles,clusterrolebindings,serviceaccounts,daemonsets,pods,deviceclasses,"
        "validatingadmissionpolicies,validatingadmissionpolicybindings",
        "-A", "-l", "app.kubernetes.io/name=dranet", "-o", "name",
    )  # fmt: skip
    assert labelled.split() == []
    assert not [
        label for node in driver.kubectl.items("nodes") for label in node["metadata"]["labels"] if "dranet" in label
    ]
    for bed_node in driver.nodes:
        assert files_of_the_driver(bed_node.root) == set()
        links = {link["ifname"] for link in ip(bed_node.pid, "link", "show")}
        assert {nic.name for nic in driver.nics(bed_node)} <= links


def forget(node: Node) -> None:
    """As docs/tasks/install.md says it."""
    node.run("sh", "-c", lines_of("docs/tasks/install.md", "rm -rf"))


def files_of_the_driver(root: Path) -> set[str]:
    """On a node, below the folders that the chart mounts."""
    kubelet = root / "var/lib/kubelet"
    found = [*(root / "var/lib/dranet").rglob("*"), *(kubelet / "plugins/dra.net").rglob("*")]
    found += [*(kubelet / "plugins_registry").glob("*dra.net*"), *(root / "run/cdi").glob("*dra.net*")]
    return {str(path.relative_to(root)) for path in found if not path.is_dir()}
