"""What the README tells a stranger to do, done: install from a registry, use it, undo it, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import release
from inside import ip
from kubebed import Cluster, Kubectl
from kubebed.manifests import claim_template, pod, request
from kubebed.processes import wait_until
from published import Published, lines_of

VALUES = {key: value for key, value in release.VALUES.items() if key != "image"}
"""What a bed needs besides; the image is the release's own."""


@pytest.fixture
def driver(bed: Cluster, published: Published) -> Iterator[Cluster]:
    """None yet."""
    for node in bed.nodes:
        bed.replug(node, bed.cards(node))
    yield bed
    release.remove(bed)


@pytest.mark.timeout(300)
def test_the_readmes_lines_install_a_working_driver_by_digest_and_undo_it(
    driver: Cluster, published: Published, kubectl: Kubectl
) -> None:
    lines = lines_of("README.md", "helm install")
    installing = lines[lines.index("helm install") :]  # the line before made and published the release
    published.shell(installing, VALUES)
    assert {found["spec"]["containers"][0]["image"] for found in release.drivers(driver).values()} == {published.image}
    assert sorted(release.drivers(driver)) == sorted(driver.node_names())

    kubectl.apply(claim_template("one", request("nic", "dranet", selector=release.CARD)))
    kubectl.apply(*(pod(f"on-{node}", templates={"nic": "one"}, node=node) for node in driver.node_names()))
    for node in driver.node_names():
        kubectl.wait(f"pod/on-{node}", "condition=Ready")
        assert "nic" in kubectl.exec(f"on-{node}", "ls", "/sys/class/net")
    kubectl.run("delete", "pods", "--all", "--grace-period=1", "--wait=true")

    published.shell(lines_of("README.md", "helm uninstall"), VALUES)
    wait_until(lambda: not release.drivers(driver, serving=False), "the driver's pods to be gone", 60)
    assert not [item for item in driver.kubectl.items("resourceslices") if item["spec"]["driver"] == "dra.net"]
    labelled = driver.kubectl.run(
        "get", "clusterroles,clusterrolebindings,serviceaccounts,daemonsets,deviceclasses,validatingadmissionpolicies,"
        "validatingadmissionpolicybindings", "-A", "-l", "app.kubernetes.io/name=dranet", "-o", "name",
    )  # fmt: skip
    assert labelled.split() == []
    for node in driver.nodes:
        links = {link["ifname"] for link in ip(node.pid, "link", "show")}
        assert {card.name for card in driver.cards(node)} <= links
