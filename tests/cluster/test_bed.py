"""The bed itself, proven with nothing of ours in it: plain pods, another driver, helm, NICs, and its own end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dranet.testing.waiting import wait_until
from tests.cluster.kubebed import Cluster, ExistingCluster, Kubectl, Nic, parts
from tests.cluster.kubebed.images import program_image
from tests.cluster.kubebed.manifests import claim, claim_template, pod, request
from tests.cluster.kubebed.processes import start_time
from tests.cluster.kubebed.startup import Samples, start_pod

_TESTER = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.cluster.kubebed import Cluster, Options
from tests.cluster.kubebed.layout import Layout
cluster = Cluster(Layout.from_environment(), Options.from_environment())
cluster.up()
print(cluster.nodes[0].process("kubelet").pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def example_driver(bed: Cluster) -> Cluster:
    """gpu.example.com, a driver by others, from its own chart with an image made here."""
    image, reference = program_image(parts.EXAMPLE_DRIVER)
    repository, _, tag = reference.rpartition(":")
    bed.install_driver(
        "example", _example_chart(), image, {"image": {"repository": repository, "tag": tag, "pullPolicy": "Never"}}
    )
    return bed


def _example_chart() -> Path:
    return parts.source_of(parts.EXAMPLE_DRIVER) / "deployments/helm/dra-example-driver"


def test_a_plain_pod_runs_on_each_node(cluster: Cluster | ExistingCluster, kubectl: Kubectl) -> None:
    kubectl.start(*(pod(f"plain-{node}", node=node) for node in cluster.node_names()))
    for node in cluster.node_names():
        assert kubectl.get(f"pod/plain-{node}")["spec"]["nodeName"] == node


def test_pods_of_different_nodes_reach_each_other(cluster: Cluster | ExistingCluster, kubectl: Kubectl) -> None:
    first, second = cluster.node_names()[:2]
    kubectl.start(pod("here", node=first), pod("there", node=second))
    address = kubectl.get("pod/there")["status"]["podIP"]
    assert "1 packets received" in kubectl.exec("here", "ping", "-c1", "-W2", address)


def test_the_start_of_a_pod_is_measured(bed: Cluster, kubectl: Kubectl, samples: Samples) -> None:
    for number in range(5):
        startup = start_pod(kubectl, pod(f"timed-{number}"))
        assert 0 <= startup.scheduled < startup.running
        samples.add("pod without a claim: scheduling", startup.scheduled)
        samples.add("pod without a claim: running", startup.running)


def test_a_pod_reaches_the_api_server_at_its_service_address(bed: Cluster, kubectl: Kubectl) -> None:
    kubectl.start(pod("client"))
    assert kubectl.exec("client", "sh", "-c", "echo $KUBERNETES_SERVICE_HOST").strip() == bed.layout.api_address
    kubectl.exec("client", "nc", "-w", "2", bed.layout.api_address, "443")


def test_every_nic_reaches_the_nic_of_its_rail_on_the_other_node(bed: Cluster) -> None:
    here, there = bed.nodes[:2]
    for nic, peer in zip(bed.nics(here), bed.nics(there), strict=True):
        address = peer.addresses[0].partition("/")[0]
        assert "1 packets received" in here.run(parts.busybox(), "ping", "-c1", "-W2", "-I", nic.name, address)


def test_a_nic_has_the_mac_it_was_given(bed: Cluster) -> None:
    for nic in bed.nics(bed.nodes[0]):
        assert (bed.nodes[0].root / "sys/class/net" / nic.name / "address").read_text().strip() == nic.mac


def test_a_macvlan_nic_is_plugged_and_pulled_like_any_other(bed: Cluster) -> None:
    here, there = bed.nodes[:2]
    nic = Nic("mac0", "02:be:d0:00:0a:01", ("192.168.77.1/24",), rail=77, kind="macvlan")
    peer = Nic("mac0", "02:be:d0:00:0a:02", ("192.168.77.2/24",), rail=77)
    here.plug(bed.fabric, [nic])
    there.plug(bed.fabric, [peer])
    try:
        assert "1 packets received" in here.run(parts.busybox(), "ping", "-c1", "-W2", "-I", "mac0", "192.168.77.2")
    finally:
        here.unplug(bed.fabric, [nic])
        there.unplug(bed.fabric, [peer])
    assert "mac0" not in here.links()


def test_stand_in_rdma_devices_exist_on_their_node_only(bed: Cluster) -> None:
    bed.nodes[0].make_rdma_devices(2)
    assert bed.nodes[0].run("ls", "/dev/infiniband").split() == ["umad0", "umad1", "uverbs0", "uverbs1"]
    assert not Path("/dev/infiniband/uverbs1").exists()
    assert bed.nodes[1].run("sh", "-c", "ls /dev/infiniband 2>/dev/null || true") == ""


def test_a_node_shows_the_synthetic_sysfs_given_to_it(bed: Cluster) -> None:
    (bed.nodes[0].sysfs / "marker").write_text("seen")
    assert bed.nodes[0].run("cat", "/run/bed/sysfs/marker") == "seen"


def test_another_driver_installed_by_helm_gives_a_pod_its_device(example_driver: Cluster, kubectl: Kubectl) -> None:
    kubectl.start(claim_template("gpu", request("gpu", "gpu.example.com")), pod("user", templates={"gpu": "gpu"}))
    assert "GPU_DEVICE" in kubectl.exec("user", "env")


def test_the_start_of_a_pod_with_a_claim_is_measured(
    example_driver: Cluster, kubectl: Kubectl, samples: Samples
) -> None:
    kubectl.apply(claim_template("gpu", request("gpu", "gpu.example.com")))
    for number in range(5):
        startup = start_pod(kubectl, pod(f"timed-{number}", templates={"gpu": "gpu"}))
        samples.add("pod with a claim of gpu.example.com: running", startup.running)


def test_a_claim_that_asks_for_too_much_is_not_scheduled(example_driver: Cluster, kubectl: Kubectl) -> None:
    kubectl.apply(claim("many", request("gpu", "gpu.example.com", count=9)), pod("user", claims={"gpu": "many"}))
    kubectl.wait("pod/user", 'jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable')


def test_both_nodes_publish_slices(example_driver: Cluster) -> None:
    kubectl, wanted = example_driver.kubectl, set(example_driver.node_names())
    wait_until(lambda: _publish(kubectl, "gpu.example.com") == wanted, f"slices of {', '.join(wanted)}")


def _publish(kubectl: Kubectl, driver: str) -> set[str]:
    """The nodes with slices of this driver."""
    slices = [entry["spec"] for entry in kubectl.items("resourceslices")]
    return {spec["nodeName"] for spec in slices if spec["driver"] == driver}


def test_helm_renders_a_chart(example_driver: Cluster) -> None:
    assert "kind: DaemonSet" in example_driver.helm.template(_example_chart())
    assert example_driver.helm.run("version", "--short").startswith("v3.")


def test_kernel_settings_written_in_a_node_do_not_reach_the_machine(bed: Cluster) -> None:
    setting = Path("/proc/sys/kernel/panic")
    before = setting.read_text()
    bed.nodes[0].run("sh", "-c", f"echo 12345 > {setting}")
    assert bed.nodes[0].run("cat", setting).strip() == "12345"
    assert setting.read_text() == before


def test_a_bed_whose_tester_is_killed_goes_away_by_itself(second_bed: dict[str, str]) -> None:
    command = [sys.executable, "-c", _TESTER]
    with subprocess.Popen(command, env=second_bed, stdout=subprocess.PIPE, text=True) as tester:
        assert tester.stdout is not None
        kubelet = int(tester.stdout.readline())
        assert start_time(kubelet)
        tester.send_signal(signal.SIGKILL)
    wait_until(lambda: _left_on_the_machine("bed9") == [], "the second bed to go away")
    assert not start_time(kubelet)


def test_a_bed_left_up_is_found_and_taken_down_by_later_commands(second_bed: dict[str, str]) -> None:
    kubebed = [sys.executable, str(Path(__file__).parent / "kubebed")]
    up = subprocess.run([*kubebed, "up"], env=second_bed, check=True, stdout=subprocess.PIPE, text=True)
    assert Path(up.stdout.strip()).name == "admin.conf"
    status = subprocess.run([*kubebed, "status"], env=second_bed, check=True, stdout=subprocess.PIPE, text=True)
    assert ", healthy," in status.stdout
    assert _left_on_the_machine("bed9") != []
    subprocess.run([*kubebed, "down"], env=second_bed, check=True)
    assert _left_on_the_machine("bed9") == []


@pytest.fixture
def second_bed() -> Iterator[dict[str, str]]:
    """The environment of a small bed next to the one of this run."""
    environment = {**os.environ, "BED": "9", "BED_NODES": "1", "BED_NICS": "1"}
    yield environment
    subprocess.run([sys.executable, str(Path(__file__).parent / "kubebed"), "down"], env=environment, check=True)


def _left_on_the_machine(bed: str) -> list[Path]:
    """Links, control groups and processes of a bed."""
    found = [*Path("/sys/class/net").glob(f"{bed}*"), *Path("/sys/fs/cgroup").glob(f"*/{bed}-*")]
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"/beds/{bed}/".encode() in command.read_bytes():
                found.append(command)
    return found
