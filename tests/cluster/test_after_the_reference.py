"""On nodes where the reference ran, and back: its pods keep their NICs, and its file stays as it is.

The recorded state is set up again: eight NICs in a pod, the claim allocated, the reference's database and what it had
published. What made the pod run is our driver in the reference's own DaemonSet, which then forgets everything. In the
database the pod's UID is replaced by the one this cluster has given, because a cluster chooses UIDs itself. With
REFERENCE=path of a reference driver the whole way is gone with itself.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from dranet.testing.waiting import wait_until
from tests.cluster import release, their_daemonset
from tests.cluster.inside import ip, process_of
from tests.cluster.kubebed import Cluster, Kubectl, Nic
from tests.cluster.kubebed.manifests import RESOURCE_API, claim_template, pod, request
from tests.cluster.kubebed.node import Node
from tests.cluster.test_faults import missing

DATA = release.PROJECT / "tests/data/reference-store"
NICS = [f"rx{number}" for number in range(8)]
INSIDE = {*NICS[:7], "dranet0"}
THEIRS = "run/dranet/dranet.db"
OURS = {"their DaemonSet": "run/dranet/dranet.sqlite", "our chart": "var/lib/dranet/dranet.sqlite"}
SQLITE = b"SQLite format 3\0"
NOT_THE_HOSTS = "--cdi-dir is not mounted from the host"
NOT_LISTED = "Cannot list ResourceClaims"
NOT_READ = "Cannot read pods"


def recorded(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


def before() -> dict[str, dict[str, Any]]:
    """The NICs as the recorded node showed them before its pod started."""
    return {link["ifname"]: link for link in recorded("node-before") if link["ifname"] in NICS}


def static_routes() -> list[dict[str, Any]]:
    return [route for route in recorded("routes-before") if route.get("dev") in NICS and "gateway" in route]


def cidrs(link: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"] if a["scope"] == "global")


def on_host(node: Node) -> dict[str, tuple[int, str, tuple[str, ...]]]:
    """MTU, MAC and addresses of the NICs that are on the node and up."""
    found = [link for link in ip(node.pid, "address", "show") if link["ifname"] in NICS and "UP" in link["flags"]]
    return {link["ifname"]: (link["mtu"], link["address"], cidrs(link)) for link in found}


def routes(node: Node) -> set[tuple[str, str, str]]:
    found = [route for route in ip(node.pid, "route", "show") if route.get("dev") in NICS and "gateway" in route]
    return {(route["dst"], route["gateway"], route["dev"]) for route in found}


@pytest.fixture(scope="module")
def driver(bed: Cluster) -> Iterator[Cluster]:
    """No driver; the recorded NICs are on the first node, and no node has a past."""
    release.load_image(bed)
    release.uninstall(bed)
    node = bed.nodes[0]
    kinds = enumerate(before().items())
    nics = [Nic(name, link["address"], cidrs(link), rail=40 + k, mtu=link["mtu"]) for k, (name, link) in kinds]
    forget(bed)
    bed.replug(node, bed.nics(node))
    node.plug(bed.fabric, nics)
    for route in static_routes():
        node.run("ip", "route", "add", route["dst"], "via", route["gateway"], "dev", route["dev"])
    bed.kubectl.apply(release.device_class("dn", 'device.driver == "dra.net"', RX))
    bed.kubectl.apply(release.device_class(release.CLASS, 'device.driver == "dra.net"'))
    yield bed
    bed.kubectl.delete("deviceclass/dn", f"deviceclass/{release.CLASS}")
    node.unplug(bed.fabric, nics)
    forget(bed)


RX = 'device.attributes["dra.net"].ifName.startsWith("rx")'


def forget(bed: Cluster) -> None:
    """Whatever drivers keep on nodes, and what they have published."""
    for node in bed.nodes:
        for folder in ("run/dranet", "var/lib/dranet"):
            for file in (node.root / folder).glob("*"):
                file.unlink()
    bed.kubectl.run("delete", "resourceslices", "--all")


def install_theirs(bed: Cluster) -> None:
    system = bed.kubectl.in_namespace(release.SYSTEM)
    system.apply(*their_daemonset.objects(their_daemonset.image_of(bed)))
    wait_until(lambda: len(release.drivers(bed)) == len(bed.nodes), "their DaemonSet to be ready")


def remove_theirs(bed: Cluster) -> None:
    bed.kubectl.in_namespace(release.SYSTEM).remove(*their_daemonset.objects(""))
    wait_until(lambda: not release.drivers(bed, serving=False), "their DaemonSet to be gone")


def install_ours(bed: Cluster) -> None:
    bed.install_driver(release.RELEASE, release.CHART, values=release.VALUES)


INSTALL: dict[str, tuple[Callable[[Cluster], None], Callable[[Cluster], None]]] = {
    "their DaemonSet": (install_theirs, remove_theirs),
    "our chart": (install_ours, release.uninstall),
}


def log_of(bed: Cluster, node: Node) -> str:
    return bed.kubectl.in_namespace(release.SYSTEM).logs(release.drivers(bed)[node.name]["metadata"]["name"])


@dataclass(frozen=True)
class Past:
    """A node that the reference has left with a pod running."""

    node: Node
    kubectl: Kubectl
    database: bytes

    def inside(self, bed: Cluster) -> set[str]:
        return {link["ifname"] for link in ip(process_of(bed, self.kubectl, "eight"), "link", "show")} - {"lo", "eth0"}

    def file(self) -> bytes:
        return (self.node.root / THEIRS).read_bytes()


@pytest.fixture
def past(driver: Cluster) -> Iterator[Past]:
    """The recorded state: in the namespace and with the names that the database has."""
    node, kubectl = driver.nodes[0], driver.kubectl.in_namespace("default")
    install_theirs(driver)
    release.wait_published(driver.kubectl, node.name, *NICS)
    claim = recorded("claim")
    asked = {"metadata": {"name": "eight"}, "apiVersion": claim["apiVersion"], "kind": claim["kind"]}
    kubectl.start({**asked, "spec": claim["spec"]}, pod("eight", claims={"nics": "eight"}, node=node.name))
    remove_theirs(driver)
    forget(driver)
    (published,) = recorded("slices-running")
    slice_of_node = {"apiVersion": RESOURCE_API, "kind": "ResourceSlice", "spec": published["spec"]}
    driver.kubectl.apply({**slice_of_node, "metadata": {"name": published["metadata"]["name"]}})
    database = gzip.decompress((DATA / "running.db.gz").read_bytes())
    uid = kubectl.get("pod/eight")["metadata"]["uid"]
    database = database.replace(recorded("pod")["uid"].encode(), uid.encode())
    (node.root / THEIRS).write_bytes(database)
    yield Past(node, kubectl, database)
    kubectl.delete("pod/eight", "resourceclaim/eight", grace=1)


@pytest.mark.parametrize("way", INSTALL)
def test_a_pod_of_the_reference_keeps_its_nics_and_these_return_to_the_host_as_they_were_before_it(
    driver: Cluster, past: Past, kubectl: Kubectl, way: str
) -> None:
    install, remove = INSTALL[way]
    assert past.inside(driver) == INSIDE
    install(driver)
    try:
        wait_until(
            lambda: "Recovered plans from the cluster and the kernel plans=1" in log_of(driver, past.node),
            "the pod's plan to be rebuilt",
        )
        assert past.inside(driver) == INSIDE
        new_pod_runs(driver, kubectl, past.node)
        assert past.inside(driver) == INSIDE
        kubectl.delete("pod/new", grace=1)
        assert (past.node.root / OURS[way]).read_bytes().startswith(SQLITE)
        past.kubectl.delete("pod/eight", grace=1)
        wanted = {name: (link["mtu"], link["address"], cidrs(link)) for name, link in before().items()}
        wait_until(lambda: on_host(past.node) == wanted, f"the NICs to be on the host as {wanted}")
        ways = {(route["dst"], route["gateway"], route["dev"]) for route in static_routes()}
        wait_until(lambda: routes(past.node) == ways, f"the routes to be {ways}")  # the last thing to come back
        said = log_of(driver, past.node)
    finally:
        remove(driver)
    assert past.file() == past.database
    missing = 1 if way == "their DaemonSet" else 0
    assert [said.count(words) for words in (NOT_THE_HOSTS, NOT_LISTED, NOT_READ)] == [missing] * 3


def new_pod_runs(bed: Cluster, kubectl: Kubectl, node: Node, name: str = "new") -> None:
    """A pod gets a NIC, and another one without a claim runs as well."""
    release.wait_published(bed.kubectl, node.name, "nic7")
    kubectl.apply(claim_template("one", request("nic", release.CLASS, selector=release.NIC)))
    kubectl.start(pod(name, templates={"nic": "one"}, node=node.name))
    kubectl.start(pod(f"other-{name}", node=node.name))
    assert "nic" in kubectl.exec(name, "ls", "/sys/class/net")


def test_in_their_daemonset_pods_start_after_a_lost_store_and_those_that_run_keep_their_nics(
    driver: Cluster, kubectl: Kubectl
) -> None:
    node = driver.nodes[0]
    install_theirs(driver)
    try:
        new_pod_runs(driver, kubectl, node, "early")
        nic = kubectl.exec("early", "sh", "-c", "ls /sys/class/net | grep nic")
        remove_theirs(driver)
        for file in (node.root / "run/dranet").glob("*"):
            file.unlink()
        install_theirs(driver)
        new_pod_runs(driver, kubectl, node, "late")
        assert kubectl.exec("early", "sh", "-c", "ls /sys/class/net | grep nic") == nic
        said = log_of(driver, node)
        assert [said.count(words) for words in (NOT_THE_HOSTS, NOT_LISTED, NOT_READ)] == [1, 1, 1]
        kubectl.delete("pod/late", grace=1)
        late_is_home = lambda: set(node.links()) >= {c.name for c in driver.nics(node)} - {nic.strip()}  # noqa: E731
        wait_until(late_is_home, "the later pod's NIC to be on the host")
        kubectl.delete("pod/early", grace=1)
    finally:
        remove_theirs(driver)
        driver.replug(node, driver.nics(node))


REFERENCE = os.environ.get("REFERENCE", "")


def is_well(node: Node) -> bool:
    try:
        with urllib.request.urlopen(f"http://{node.layout.address}:9177/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextlib.contextmanager
def reference(bed: Cluster, node: Node) -> Iterator[None]:
    """The reference itself, as a process of the node."""
    flags = [f"--kubeconfig={bed.layout.kubeconfig}", f"--hostname-override={node.name}", "--filter=", "--v=2"]
    node.start("reference", [REFERENCE, *flags])
    try:
        # What stands published may be another driver's still: only this says that the kubelet knows it.
        wait_until(lambda: is_well(node), "the reference to be registered")
        nics = {nic.name for nic in bed.nics(node)}
        # It looks once in a while only: this takes it up to twenty seconds.
        wait_until(lambda: nics <= set(release.published(bed.kubectl, node.name)), "the reference to publish")
        yield
    finally:
        node.stop("reference", patience=40)


@pytest.mark.skipif(not REFERENCE, reason="REFERENCE=path of a reference driver is not given")
def test_there_and_back_with_the_reference_itself(driver: Cluster, kubectl: Kubectl) -> None:
    node = driver.nodes[0]
    forget(driver)
    driver.replug(node, driver.nics(node))
    kubectl.apply(
        *(claim_template(f"nics-{n}", request("nic", release.CLASS, selector=release.NIC, count=n)) for n in (1, 3))
    )
    with reference(driver, node):
        kubectl.start(*(pod(f"has-{n}", templates={"nics": f"nics-{n}"}, node=node.name) for n in (1, 3)))
    inside = {name: kubectl.exec(name, "ls", "/sys/class/net") for name in ("has-1", "has-3")}
    database = (node.root / THEIRS).read_bytes()

    install_ours(driver)
    try:
        wait_until(
            lambda: "Recovered plans from the cluster and the kernel plans=2" in log_of(driver, node),
            "the plans of both pods to be rebuilt",
        )
        assert {name: kubectl.exec(name, "ls", "/sys/class/net") for name in inside} == inside
        kubectl.delete(*(f"pod/{name}" for name in inside), grace=1)
        wait_until(lambda: not missing(driver), f"all NICs to be on the host and whole; now {missing(driver)}")
    finally:
        release.uninstall(driver)
    assert (node.root / THEIRS).read_bytes() == database

    with reference(driver, node):
        kubectl.start(pod("back", templates={"nics": "nics-3"}, node=node.name))
        assert kubectl.exec("back", "ls", "/sys/class/net").count("nic") == 3
        kubectl.delete("pod/back", grace=1)
