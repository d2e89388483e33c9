"""Whatever fails, no pod runs without its NIC and no NIC is lost.

Every pod here looks for its NIC the moment its container starts, and ends in failure if it is not there: a NIC that
comes late does not count. After every scenario all NICs are on their nodes again, up, with their addresses.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.inside import ip
from tests.cluster.kubebed import Cluster, Kubectl, Nic, default_nics
from tests.cluster.kubebed.manifests import claim_template, pod, request
from tests.cluster.kubebed.node import Node
from tests.cluster.kubebed.startup import Samples

Manifest = dict[str, Any]
LOOK = "ip link | grep -q ': nic[0-9]' || exit 1; "
STAY = LOOK + "trap 'exit 0' TERM; sleep 1000000 & wait"
PASS_BY = LOOK + "sleep 0.5"
FORCED_PODS = 200
BATCH = 50
API_SERVER_AWAY = 60


@pytest.fixture
def one_nic(driver: Cluster, kubectl: Kubectl) -> Iterator[str]:
    """A template for one NIC; when the pods are gone, every NIC must be on its host again."""
    kubectl.apply(claim_template("one", request("nic", release.CLASS, selector=release.NIC)))
    yield "one"
    kubectl.run("delete", "pods", "--all", "--grace-period=1", "--wait=true")
    wait_until(lambda: not missing(driver), "all NICs to be on the host")


def missing(bed: Cluster, count: int | None = None) -> dict[str, str]:
    """What is not as it was when plugged in, by node and NIC; empty when every NIC is on its host and whole."""
    problems = {}
    for node in bed.nodes:
        found = {entry["ifname"]: entry for entry in ip(node.pid, "address", "show")}
        for nic in default_nics(node.layout.index, count) if count else bed.nics(node):
            if problem := _problem(nic, found.get(nic.name)):
                problems[f"{node.name} {nic.name}"] = problem
    return problems


def _problem(nic: Nic, found: Manifest | None) -> str:
    if found is None:
        return "not there"
    own = [f"{entry['local']}/{entry['prefixlen']}" for entry in found["addr_info"] if entry["family"] == "inet"]
    if own != list(nic.addresses):
        return f"addresses {own}"
    return "" if (found["address"], found["mtu"], "UP" in found["flags"]) == (nic.mac, nic.mtu, True) else str(found)


def user(name: str, template: str, node: Node | None = None, command: str = STAY) -> Manifest:
    made = pod(name, templates={"nic": template}, node=node.name if node else None, command=("sh", "-c", command))
    made["metadata"]["labels"]["user"] = "yes"
    return made


def phases(kubectl: Kubectl) -> list[str]:
    return [item["status"]["phase"] for item in kubectl.items("pods", "-l", "user=yes")]


@pytest.fixture
def many_nics(driver: Cluster) -> Iterator[int]:
    """So many on each node that a whole batch of pods runs at a time."""
    count = BATCH // len(driver.nodes)
    more = {node: default_nics(node.layout.index, count)[len(driver.nics(node)) :] for node in driver.nodes}
    for node, nics in more.items():
        node.plug(driver.fabric, nics)
        release.wait_published(driver.kubectl, node.name, *(nic.name for nic in nics))
    yield count
    for node, nics in more.items():
        node.unplug(driver.fabric, nics)
    for node, nics in more.items():  # as long as they stand there, the scheduler gives them to the next pods
        wait_gone(driver, node, *(nic.name for nic in nics))


def wait_gone(bed: Cluster, node: Node, *devices: str) -> None:
    names = f"{node.name} to publish no {', '.join(devices)}"
    wait_until(lambda: not set(devices) & set(release.published(bed.kubectl, node.name)), names)


@pytest.mark.timeout(400)
def test_200_pods_are_force_deleted_and_no_nic_is_lost(
    driver: Cluster, kubectl: Kubectl, many_nics: int, one_nic: str, samples: Samples
) -> None:
    """Every other batch is deleted while its pods are still starting."""
    deleted = 0
    while deleted < FORCED_PODS:
        started = time.monotonic()
        kubectl.apply(*(user(f"forced-{deleted + k}", one_nic) for k in range(BATCH)))
        running = BATCH if deleted // BATCH % 2 == 0 else 1
        wait_until(partial(counted, kubectl, "Running", running), f"{running} pods to run, {deleted} deleted")
        kubectl.run("delete", "pods", "-l", "user=yes", "--grace-period=0", "--force", "--wait=false")
        deleted += BATCH
        wait_until(lambda: not missing(driver, many_nics), f"all NICs to be on the host after {deleted} pods")
        samples.add(f"{BATCH} pods started, force deleted, NICs back", time.monotonic() - started)
    wait_until(lambda: not any(map(readiness_gates, driver.nodes)), "no readiness gate to be left")


def counted(kubectl: Kubectl, phase: str, least: int) -> bool:
    """Whether at least so many pods are in this phase, and none has failed."""
    found = phases(kubectl)
    assert "Failed" not in found, "a pod did not find its NIC"
    return found.count(phase) >= least


def readiness_gates(node: Node) -> list[Path]:
    return list((node.root / "run/cdi").glob("dra.net-claim-*"))


@pytest.mark.parametrize(("node_index", "delay"), [(0, 0.0), (1, 0.05)], ids=["in prepare", "in attach"])
def test_driver_is_killed_while_a_pod_starts(
    driver: Cluster, kubectl: Kubectl, one_nic: str, node_index: int, delay: float
) -> None:
    """Each on another node: the kubelet makes a container that dies twice wait for its third start."""
    node = driver.nodes[node_index]
    process = driver_process(driver, node)
    start_and_catch(kubectl, node, one_nic, delay)
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: driver_process(driver, node) != process, "the driver to be back")
    # A change of the pod is a round of the kubelet, too.
    kubectl.run("annotate", "pod/caught", "changed=yes")
    kubectl.wait("pod/caught", "condition=Ready")


@pytest.mark.parametrize("delay", [0.0, 0.05], ids=["in prepare", "in attach"])
def test_driver_stands_still_while_a_pod_starts(driver: Cluster, kubectl: Kubectl, one_nic: str, delay: float) -> None:
    """For longer than the runtime waits for a hook: it drops the driver, which has to come back by itself."""
    node = driver.nodes[1]
    process = driver_process(driver, node)
    start_and_catch(kubectl, node, one_nic, delay)
    os.kill(process, signal.SIGSTOP)
    try:
        time.sleep(6)
        assert phases(kubectl) == ["Pending"] or "nic" in kubectl.exec("caught", "ip", "-br", "link")
    finally:
        os.kill(process, signal.SIGCONT)
    kubectl.wait("pod/caught", "condition=Ready")


@pytest.mark.parametrize("delay", [0.08, 0.2], ids=["early", "late"])
def test_runtime_is_killed_while_a_pod_starts(driver: Cluster, kubectl: Kubectl, one_nic: str, delay: float) -> None:
    """The kubelet makes another sandbox for the pod; the NIC must come out of the first, whose end is not reported."""
    node = driver.nodes[1]
    start_and_catch(kubectl, node, one_nic, delay)
    driver.restart_containerd(node, crash=True)
    kubectl.run("annotate", "pod/caught", "changed=yes")
    kubectl.wait("pod/caught", "condition=Ready")
    assert nic_in(kubectl, "caught")


def driver_process(bed: Cluster, node: Node) -> int:
    """The driver itself, once it serves; the other process of its pod is the sandbox's."""
    return wait_until(lambda: _serving(bed, node), f"the driver of {node.name} to serve")


def _serving(bed: Cluster, node: Node) -> int:
    """0 while there is none."""
    drivers = release.drivers(bed)
    found = node.pod_processes(drivers[node.name]["metadata"]["uid"]) if node.name in drivers else []
    return next((pid for pid in found if b"dranet" in command_line(pid)), 0)


def start_and_catch(kubectl: Kubectl, node: Node, template: str, delay: float) -> None:
    """Returns `delay` after the driver has written the plan of the pod's claim down, which ends its prepare."""
    before = _written(node)
    kubectl.apply(user("caught", template, node))
    deadline = time.monotonic() + 60
    while _written(node) == before:  # no pause: milliseconds count
        assert time.monotonic() < deadline, "the driver does not prepare the claim"
    time.sleep(delay)


def _written(node: Node) -> list[tuple[str, int, int]]:
    files = sorted((node.root / "var/lib/dranet").glob("dranet.sqlite*"))
    return [(file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files]


def test_driver_loses_its_store_with_a_pod_running(driver: Cluster, kubectl: Kubectl, one_nic: str) -> None:
    """The next driver finds out from cluster, runtime and kernel what the node does, and returns the NIC whole."""
    node = driver.nodes[0]
    kubectl.start(user("before", one_nic, node))
    nic = nic_in(kubectl, "before")
    published = release.published(kubectl, node.name)[nic]
    store = node.root / "var/lib/dranet/dranet.sqlite"
    for file in store.parent.glob("dranet.sqlite*"):
        file.unlink()
    store.write_bytes(b"what a dying disk gives back" * 100)
    process = driver_process(driver, node)
    kubectl.in_namespace(release.SYSTEM).delete(f"pod/{release.drivers(driver)[node.name]['metadata']['name']}")
    wait_until(lambda: driver_process(driver, node) != process, "the next driver to serve")
    kubectl.start(user("after", one_nic, node))
    assert nic_in(kubectl, "before") == nic != nic_in(kubectl, "after")
    assert release.published(kubectl, node.name)[nic] == published
    assert list(store.parent.glob("dranet.sqlite.unreadable-*"))


@pytest.mark.parametrize("daemon", ["containerd", "kubelet"])
def test_daemon_is_restarted_with_pods_running(driver: Cluster, kubectl: Kubectl, one_nic: str, daemon: str) -> None:
    node = driver.nodes[0]
    kubectl.start(user("before", one_nic, node))
    nic = nic_in(kubectl, "before")
    getattr(driver, f"restart_{daemon}")(node)
    kubectl.start(user("after", one_nic, node))
    assert nic_in(kubectl, "before") == nic != nic_in(kubectl, "after")
    assert kubectl.get("pod/before")["status"]["containerStatuses"][0]["restartCount"] == 0


def nic_in(kubectl: Kubectl, name: str) -> str:
    return kubectl.exec(name, "sh", "-c", "ls /sys/class/net | grep nic").strip()


@pytest.mark.timeout(400)
def test_api_server_is_away_for_a_minute_with_pods_running(driver: Cluster, kubectl: Kubectl, one_nic: str) -> None:
    """Pods keep their NICs, also when a container of theirs dies and starts again, which is between kubelet, runtime
    and driver alone. A NIC plugged in meanwhile is published once the server is back. The driver never restarts."""
    node = driver.nodes[0]
    late = {one: Nic("late0", f"02:5c:e2:00:00:{one.layout.index:02x}", rail=60) for one in driver.nodes}
    again = user("again", one_nic, node)
    again["spec"]["restartPolicy"] = "Always"
    kubectl.start(user("steady", one_nic, node), again)
    process = driver_process(driver, node)
    steady, victim = (kubectl.get(f"pod/{name}")["metadata"]["uid"] for name in ("steady", "again"))
    [dies] = shells(node, victim)
    try:
        with driver.api_server_away(controllers_restart=True):
            back = time.monotonic() + API_SERVER_AWAY
            for one in driver.nodes:
                one.plug(driver.fabric, [late[one]])
            os.kill(dies, signal.SIGKILL)
            wait_until(lambda: shells(node, victim) not in ([], [dies]), "the container to start again")
            while time.monotonic() < back:
                assert [len(nics_seen(node, uid)) for uid in (steady, victim)] == [1, 1]
                time.sleep(1)
        for one in driver.nodes:
            release.wait_published(kubectl, one.name, "late0")
        restart_kubelets(driver)
        # What the kubelets have deleted a driver's own watch would tell it within two minutes; who has something to
        # write finds out at once. Both nodes: the scenarios after this one need their NICs.
        for one in driver.nodes:
            one.unplug(driver.fabric, [late[one]])
        for one in driver.nodes:
            release.wait_published(kubectl, one.name, *(nic.name for nic in driver.nics(one)))
            wait_gone(driver, one, "late0")
        kubectl.start(user("after", one_nic, node))
        assert nic_in(kubectl, "steady")
        assert driver_process(driver, node) == process
    finally:
        for one in driver.nodes:
            one.unplug(driver.fabric, [late[one]])


def restart_kubelets(bed: Cluster) -> None:
    """Their own pauses have grown to a minute while there was no API server. Each deletes its node's slices first."""
    before = slices(bed)
    for node in bed.nodes:
        bed.restart_kubelet(node)
    wait_until(lambda: not before & slices(bed), "the kubelets to delete the slices of their nodes")


def slices(bed: Cluster) -> set[str]:
    """UIDs: a slice that is there again is another one."""
    found = bed.kubectl.items("resourceslices")
    return {item["metadata"]["uid"] for item in found if item["spec"]["driver"] == "dra.net"}


def shells(node: Node, pod_uid: str) -> list[int]:
    """The pod's own process, looked up without the API server; its sandbox sleeps and has no shell.

    Only the container's first process: for a moment what it starts is a shell of the same words.
    """
    found = [pid for pid in node.pod_processes(pod_uid) if command_line(pid).startswith(b"sh\0-c\0")]
    return [pid for pid in found if is_first(pid)]


def is_first(pid: int) -> bool:
    """Whether it is process 1 of its own process namespace."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(line for line in lines if line.startswith("NSpid:")).split()[-1] == "1"
    return False


def command_line(pid: int) -> bytes:
    """Empty for a process that has just ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def nics_seen(node: Node, pod_uid: str) -> list[str]:
    """The NICs in the pod, as its own process sees them."""
    [shell] = shells(node, pod_uid)
    return [entry["ifname"] for entry in ip(shell, "link", "show") if entry["ifname"].startswith("nic")]


def test_node_is_drained(driver: Cluster, kubectl: Kubectl, one_nic: str) -> None:
    """Pods of a Deployment move to the other node and find NICs there."""
    first, second = driver.nodes[:2]
    made = user("x", one_nic)
    template = {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"] | {"restartPolicy": "Always"}}
    spec = {"replicas": 4, "selector": {"matchLabels": {"user": "yes"}}, "template": template}
    kubectl.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "movers"}, "spec": spec})
    try:
        wait_until(lambda: phases(kubectl) == ["Running"] * 4, "four pods to run")
        kubectl.run("drain", first.name, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=60s")
        wait_until(lambda: phases(kubectl) == ["Running"] * 4, "four pods to run again")
        assert {item["spec"]["nodeName"] for item in kubectl.items("pods", "-l", "user=yes")} == {second.name}
        wait_until(lambda: not any(name.startswith(first.name) for name in missing(driver)), "its NICs back")
    finally:
        kubectl.run("uncordon", first.name)
        kubectl.delete("deployment/movers")


@pytest.mark.timeout(400)
def test_driver_is_updated_under_a_stream_of_pods(driver: Cluster, kubectl: Kubectl, one_nic: str) -> None:
    """New and old driver overlap, so that every pod finds one; pods that run keep their NICs."""
    nodes = driver.node_names()
    kubectl.start(*(pod(f"on-{node}", templates={"nic": one_nic}, node=node) for node in nodes))
    nics = [nic_in(kubectl, f"on-{node}") for node in nodes]
    before = {found["metadata"]["uid"] for found in running_drivers(driver)}
    system = driver.kubectl.in_namespace(release.SYSTEM)
    system.run("rollout", "restart", "daemonset/dranet")
    made, overlapped = 0, set[str]()
    while before & {found["metadata"]["uid"] for found in running_drivers(driver)}:
        kubectl.apply(*(user(f"passer-{made + k}", one_nic, command=PASS_BY) for k in range(2)))
        made += 2
        assert made < 300, "the update does not end"
        overlapped |= with_two_drivers(driver)
        # The controller of 1.36 may miss that a new driver became ready; it looks again when anything changes.
        system.run("annotate", "daemonset/dranet", f"dra.net/made={made}", "--overwrite")
        time.sleep(0.5)
    wait_until(lambda: set(phases(kubectl)) <= {"Succeeded", "Failed"}, f"{made} pods to end")
    assert phases(kubectl) == ["Succeeded"] * made
    assert overlapped == set(nodes)
    assert [nic_in(kubectl, f"on-{node}") for node in nodes] == nics


def running_drivers(bed: Cluster) -> list[Manifest]:
    """Drivers that run, also those that are about to leave."""
    found = bed.kubectl.in_namespace(release.SYSTEM).items("pods", "-l", f"app={release.RELEASE}")
    return [one for one in found if one["status"]["phase"] == "Running"]


def with_two_drivers(bed: Cluster) -> set[str]:
    """Nodes where the next driver runs next to the old one, which serves until the next can."""
    nodes = [one["spec"]["nodeName"] for one in running_drivers(bed)]
    return {node for node in nodes if nodes.count(node) > 1}
