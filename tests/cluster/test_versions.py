"""Up and down by one version with pods running: stores of the driver before this one are read, and the other way round.

Before means the last commit whose rows were of the first version of our format, a 0.1.0, with the image and the chart
of its own time. Upwards goes as users go: by helm, to the chart and the image of a release in a registry. A tree
without its history skips this; tests/node/driver/test_stored_records.py reads such rows from golden files everywhere.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.inside import ip
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.manifests import claim_template, pod, request
from tests.cluster.published import Published, lines_of

BEFORE = "9e94aaa"
OLD_IMAGE = {"repository": "localhost/dranet", "tag": "before"}


@pytest.fixture(scope="module")
def old(bed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the driver before; its image is on every node."""
    command = ["git", "-C", str(release.PROJECT), "archive", BEFORE]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history is not here: {archive.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tree:
        tree.extractall(folder, filter="data")
    reference = f"{OLD_IMAGE['repository']}:{OLD_IMAGE['tag']}"
    build = [sys.executable, str(folder / "deploy/image/build.py"), "--reference", reference]
    subprocess.run([*build, "--output", str(folder / "image.tar")], check=True, stdout=sys.stderr)
    bed.load_image(folder / "image.tar")
    return folder


@pytest.fixture
def driver(bed: Cluster) -> Iterator[Cluster]:
    """No driver yet: the tests install one after the other. All NICs are where they belong."""
    for node in bed.nodes:
        bed.replug(node, bed.nics(node))
    release.load_image(bed)
    bed.kubectl.apply(release.device_class(release.CLASS, 'device.driver == "dra.net"'))
    yield bed
    release.remove(bed)
    for node in bed.nodes:
        # What the earlier version left keeps its place; the scenarios after these begin on nodes without a past.
        for file in (node.root / "var/lib/dranet").glob("dranet.*"):
            file.unlink()


def install_before(bed: Cluster, old: Path) -> None:
    values = {**release.VALUES, "image": {**release.VALUES["image"], **OLD_IMAGE}}
    bed.install_driver(release.RELEASE, old / "deploy/helm/dranet", values=values)


def install_now(bed: Cluster) -> None:
    bed.install_driver(release.RELEASE, release.CHART, values=release.VALUES)


def update(published: Published) -> None:
    """As docs/tasks/install.md says it, from the registry, to the image by its digest."""
    values = {key: value for key, value in release.VALUES.items() if key != "image"}
    published.shell(lines_of("docs/tasks/install.md", "helm upgrade"), values)


@contextlib.contextmanager
def nudged(bed: Cluster) -> Iterator[None]:
    """The controller of 1.36 may miss that a new driver became ready; it looks again when anything changes."""
    ended, system = threading.Event(), bed.kubectl.in_namespace(release.SYSTEM)

    def nudge() -> None:
        times = 0
        while not ended.wait(1):
            times += 1
            system.run("annotate", f"daemonset/{release.RELEASE}", f"dra.net/nudged={times}", "--overwrite")

    with ThreadPoolExecutor(1) as threads:
        nudging = threads.submit(nudge)
        try:
            yield
        finally:
            ended.set()
        nudging.result()


def images(bed: Cluster) -> set[str]:
    return {found["spec"]["containers"][0]["image"] for found in release.drivers(bed).values()}


def logs(bed: Cluster) -> str:
    system = bed.kubectl.in_namespace(release.SYSTEM)
    return "".join(system.logs(found["metadata"]["name"]) for found in release.drivers(bed).values())


def nics_on_hosts(bed: Cluster) -> bool:
    return all(
        {nic.name for nic in bed.nics(node)} <= {link["ifname"] for link in ip(node.pid, "link", "show")}
        for node in bed.nodes
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("direction", ["up", "down"])
def test_pods_outlive_a_change_of_the_drivers_version(
    driver: Cluster, old: Path, published: Published, kubectl: Kubectl, direction: str
) -> None:
    install_before(driver, old)  # also on the way down: so its store is where it left it
    if direction == "down":
        with nudged(driver):
            install_now(driver)
    for bed_node in driver.nodes:
        release.wait_published(driver.kubectl, bed_node.name, *(nic.name for nic in driver.nics(bed_node)))
    kubectl.apply(claim_template("one", request("nic", release.CLASS, selector=release.NIC)))
    kubectl.start(*(pod(f"on-{node}", templates={"nic": "one"}, node=node) for node in driver.node_names()))
    nics = {node: nic_in(kubectl, f"on-{node}") for node in driver.node_names()}
    running = images(driver)

    with nudged(driver):
        update(published) if direction == "up" else install_before(driver, old)
    assert images(driver).isdisjoint(running)
    assert direction == "down" or images(driver) == {published.image}
    # The first is this version's text, the second that of 0.2.0, which runs after a downgrade.
    recovered = [text for text in ("Recovered plans", "rebuilt") if text in logs(driver)]
    assert not recovered, "the store was not read; the plans were recovered from the cluster"
    assert {node: nic_in(kubectl, f"on-{node}") for node in driver.node_names()} == nics
    kubectl.start(*(pod(f"next-{node}", templates={"nic": "one"}, node=node) for node in driver.node_names()))
    for node in driver.node_names():
        assert nic_in(kubectl, f"next-{node}") != nics[node]
    restarts = [item["status"]["containerStatuses"][0]["restartCount"] for item in kubectl.items("pods")]
    assert restarts == [0] * len(restarts)
    kubectl.run("delete", "pods", "--all", "--grace-period=1", "--wait=true")
    wait_until(lambda: nics_on_hosts(driver), "all NICs to be on the host")


def nic_in(kubectl: Kubectl, name: str) -> str:
    return kubectl.exec(name, "sh", "-c", "ls /sys/class/net | grep nic").strip()
