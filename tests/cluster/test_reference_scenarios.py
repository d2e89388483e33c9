"""The end-to-end scenarios of the reference driver, each under its own name, with our image and chart.

Where the reference makes a dummy link, a cable into the bed's fabric stands for it: not every kernel has dummies. All
links are plugged before the first scenario, so they are published together and no scenario waits for a look.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.inside import addresses, features, ip, link, offload_sizes, process_of
from tests.cluster.kubebed import Cluster, Kubectl, Nic
from tests.cluster.kubebed.manifests import claim, claim_template, opaque, pod, request
from tests.cluster.kubebed.node import Node
from tests.cluster.programs import add_classifier, attach_tcx, programs_on, supported

Manifest = dict[str, Any]
FIRST = {
    "dummy0": (),
    "mlx5_6": (),
    "arp0": (),
    "route0": (),
    "advanced0": (),
    "double0": ("169.254.12.13/32",),
    "double1": ("169.254.12.14/32",),
    "dummy8": ("169.254.169.14/32",),
    "downtime0": (),
    "neigh0": ("169.254.169.15/32",),
    "rules0": ("169.254.17.13/24",),
    "subnet6": ("fd36::3:0:e:0:0/96",),
    "steady0": ("169.254.21.1/32",),
    "vrf0": (),
}
SECOND = {"copied0": ("169.254.169.14/32",), "bigtcp0": (), "tc0": (), "tcx0": (), "noebpf0": ()}
PAIRS = [("pbr-test-pod-1", "pbr-rtr-1"), ("pbr-test-pod-2", "pbr-rtr-2")]


def _nics(node_index: int, named: dict[str, tuple[str, ...]]) -> list[Nic]:
    return [
        Nic(name, f"02:5c:e0:00:{node_index:02x}:{k:02x}", own, rail=20 + k)
        for k, (name, own) in enumerate(named.items())
    ]


@pytest.fixture(scope="module", autouse=True)
def links_of_all_scenarios(driver: Cluster) -> Iterator[None]:
    bed = driver
    first, second = bed.nodes[:2]
    plugged = [(first, _nics(1, FIRST)), (second, _nics(2, SECOND))]
    for node, nics in plugged:
        node.plug(bed.fabric, nics)
    for one, other in PAIRS:
        first.run("ip", "link", "add", one, "type", "veth", "peer", "name", other)
        for name in (one, other):
            first.run("ip", "link", "set", name, "up")
    second.run("ip", "link", "set", "copied0", "down")
    release.wait_published(bed.kubectl, first.name, *(name for name in FIRST if "_" not in name), *PAIRS[1])
    release.wait_published(bed.kubectl, second.name, *SECOND)
    yield
    for node, nics in plugged:
        node.unplug(bed.fabric, nics)
    for one, _ in PAIRS:
        first.run("ip", "link", "del", one, check=False)


def by_name(*names: str) -> str:
    return " || ".join(f'device.attributes["dra.net"].ifName == "{name}"' for name in names)


def one_nic(name: str, interface: str, parameters: Manifest | None = None) -> Manifest:
    """A claim for the link of that name; `parameters` is what the claim says to the driver."""
    config = [opaque("dra.net", parameters)] if parameters else []
    return claim(name, request("req", release.CLASS, selector=by_name(interface)), config=config)


def status_ips(kubectl: Kubectl, name: str) -> list[str]:
    """The addresses on the claim's status, for all its devices."""
    kubectl.wait(f"resourceclaim/{name}", "jsonpath={.status.devices[0].networkData}")
    devices = kubectl.get(f"resourceclaim/{name}")["status"]["devices"]
    return [address for entry in devices for address in entry["networkData"].get("ips") or []]


STATIC = {"interface": {"name": "eth99", "addresses": ["169.254.169.13/24"]}}


@pytest.mark.parametrize("interface", ["dummy0", "mlx5_6"], ids=["plain name", "name that needs normalising"])
def test_dummy_interface_with_ip_addresses_by_resource_claim(driver: Cluster, kubectl: Kubectl, interface: str) -> None:
    kubectl.start(one_nic("static-ip", interface, STATIC), pod("pod1", claims={"nic": "static-ip"}))
    assert "169.254.169.13/24" in addresses(process_of(driver, kubectl, "pod1"), "eth99")
    assert "169.254.169.13/24" in status_ips(kubectl, "static-ip")


def test_arp_settings(driver: Cluster, kubectl: Kubectl) -> None:
    settings = {"interface": {"name": "dranet-arp", "arpIgnore": 1, "arpAnnounce": 2}}
    kubectl.start(one_nic("arp", "arp0", settings), pod("pod-arp", claims={"nic": "arp"}))
    folder = "/proc/sys/net/ipv4/conf/dranet-arp"
    assert kubectl.exec("pod-arp", "cat", f"{folder}/arp_ignore", f"{folder}/arp_announce").split() == ["1", "2"]


def test_dummy_interface_with_ip_addresses_by_resource_claim_template(driver: Cluster, kubectl: Kubectl) -> None:
    kubectl.apply(claim_template("copied", request("req", release.CLASS, selector=by_name("copied0"))))
    kubectl.start(pod("copied", templates={"nic": "copied"}))
    assert addresses(process_of(driver, kubectl, "copied"), "copied0") == ["169.254.169.14/32"]
    [made] = kubectl.items("resourceclaims")
    assert status_ips(kubectl, made["metadata"]["name"]) == ["169.254.169.14/32"]


def test_dummy_interface_with_routes(driver: Cluster, kubectl: Kubectl) -> None:
    routes = [
        {"destination": "169.254.169.0/24", "gateway": "169.254.169.1"},
        {"destination": "169.254.169.1/32", "scope": 253},
    ]
    asked = {"interface": {"name": "eth99", "addresses": ["169.254.169.13/32"]}, "routes": routes}
    kubectl.start(one_nic("routes", "route0", asked), pod("pod3", claims={"nic": "routes"}))
    process = process_of(driver, kubectl, "pod3")
    assert addresses(process, "eth99") == ["169.254.169.13/32"]
    found = {route["dst"]: route.get("gateway") for route in ip(process, "route", "show", "dev", "eth99")}
    assert found == {"169.254.169.0/24": "169.254.169.1", "169.254.169.1": None}
    assert status_ips(kubectl, "routes") == ["169.254.169.13/32"]


def test_metrics(driver: Cluster, kubectl: Kubectl) -> None:
    ask = pod("metrics", command=("sh", "-c", "wget -qO- localhost:9177/metrics | grep -c process_start_time_seconds"))
    ask["spec"]["hostNetwork"] = True
    kubectl.apply(ask)
    kubectl.wait("pod/metrics", "jsonpath={.status.phase}=Succeeded")
    assert int(kubectl.logs("metrics")) > 0


def test_advanced_network_configuration(driver: Cluster, kubectl: Kubectl) -> None:
    # The reference's own test has another address here, which a NIC of this node has: prepare refuses that.
    off = ("tcp-segmentation-offload", "generic-receive-offload", "large-receive-offload")
    asked = {
        "interface": {
            "name": "dranet0",
            "addresses": ["169.254.169.24/24"],
            "mtu": 4321,
            "hardwareAddr": "00:11:22:33:44:55",
        },
        "ethtool": {"features": dict.fromkeys(off, False)},
    }
    kubectl.start(one_nic("advanced", "advanced0", asked), pod("pod-advanced", claims={"nic": "advanced"}))
    process = process_of(driver, kubectl, "pod-advanced")
    nic = link(process, "dranet0")
    assert (nic["mtu"], nic["address"]) == (4321, "00:11:22:33:44:55")
    assert addresses(process, "dranet0") == ["169.254.169.24/24"]
    shown = features(process, "dranet0")
    assert [shown[name] for name in ("tx-tcp-segmentation", "rx-gro", "rx-lro")] == [False, False, False]


def test_big_tcp(driver: Cluster, kubectl: Kubectl) -> None:
    sizes = {"gsoMaxSize": 65536, "groMaxSize": 65536, "gsoIPv4MaxSize": 65536, "groIPv4MaxSize": 65536}
    asked = {
        "interface": {"name": "dranet1", "addresses": ["192.168.200.1/24"], "mtu": 8896, **sizes},
        "ethtool": {
            "features": {
                "tcp-segmentation-offload": True,
                "generic-receive-offload": True,
                "large-receive-offload": False,
            }
        },
    }
    kubectl.start(one_nic("big", "bigtcp0", asked), pod("pod-big", claims={"nic": "big"}))
    process = process_of(driver, kubectl, "pod-big")
    assert link(process, "dranet1")["mtu"] == 8896
    assert offload_sizes(process, "dranet1") == (65536, 65536, 65536, 65536)
    shown = features(process, "dranet1")
    assert [shown[name] for name in ("tx-tcp-segmentation", "rx-gro", "rx-lro")] == [True, True, False]


needs_programs = pytest.mark.skipif(
    not supported(),
    reason="no BPF programs on links of this kernel (TCX came with 6.6); see tests/vm/test_scenarios.py",
)


def wait_attribute(kubectl: Kubectl, device: str, name: str, value: object) -> None:
    def shown() -> bool:
        return release.published(kubectl, "n2").get(device, {}).get(name) == value

    wait_until(shown, f"{name} of {device} to be {value}")


def touch(bed: Cluster, name: str) -> None:
    """Programs give no event, so the link is touched: the driver looks again."""
    bed.nodes[1].run("ip", "link", "set", name, "down")
    bed.nodes[1].run("ip", "link", "set", name, "up")


@needs_programs
def test_ebpf_tc_filter_attributes(driver: Cluster, kubectl: Kubectl) -> None:
    node = driver.nodes[1]
    add_classifier(node.pid, "tc0", "dummy_bpf.o:[classifier]")
    touch(driver, "tc0")
    wait_attribute(kubectl, "tc0", "dra.net/ebpf", True)
    assert release.published(kubectl, node.name)["tc0"]["dra.net/tcFilterNames"] == "dummy_bpf.o:[classifier]"


@needs_programs
def test_ebpf_tcx_attributes(driver: Cluster, kubectl: Kubectl) -> None:
    attach_tcx(driver.nodes[1].pid, "tcx0", "handle_ingress")
    touch(driver, "tcx0")
    wait_attribute(kubectl, "tcx0", "dra.net/tcxProgramNames", "handle_ingress")
    assert release.published(kubectl, driver.nodes[1].name)["tcx0"]["dra.net/ebpf"] is True


@needs_programs
def test_ebpf_programs_are_removed(driver: Cluster, kubectl: Kubectl) -> None:
    node = driver.nodes[1].pid
    add_classifier(node, "noebpf0", "dummy_bpf.o:[classifier]")
    attach_tcx(node, "noebpf0", "handle_ingress")
    assert programs_on(node, "noebpf0") == ["dummy_bpf.o:[classifier]", "handle_ingress"]
    without = release.device_class("without-ebpf", 'device.driver == "dra.net"')
    # The reference's test has it in the claim: here it belongs to administrators.
    without["spec"]["config"] = [opaque("dra.net", {"interface": {"disableEbpfPrograms": True}})]
    wanted = claim("no-ebpf", request("req", "without-ebpf", selector=by_name("noebpf0")))
    kubectl.start(without, wanted, pod("pod-ebpf", claims={"nic": "no-ebpf"}))
    assert programs_on(process_of(driver, kubectl, "pod-ebpf"), "noebpf0") == []


def test_two_devices_by_one_request(driver: Cluster, kubectl: Kubectl) -> None:
    both = request("req", release.CLASS, selector=by_name("double0", "double1"), count=2)
    kubectl.start(claim_template("double", both), pod("double", templates={"nics": "double"}))
    process = process_of(driver, kubectl, "double")
    assert addresses(process, "double0") == ["169.254.12.13/32"]
    assert addresses(process, "double1") == ["169.254.12.14/32"]
    [made] = kubectl.items("resourceclaims")
    assert sorted(status_ips(kubectl, made["metadata"]["name"])) == ["169.254.12.13/32", "169.254.12.14/32"]


def test_reapply_pod_with_dummy_resources(driver: Cluster, kubectl: Kubectl) -> None:
    """The reference's test puts the address back by hand between the two pods. Here the driver does."""
    kubectl.apply(claim_template("again", request("req", release.CLASS, selector=by_name("dummy8"))))
    for _ in range(2):
        kubectl.start(pod("again", templates={"nic": "again"}))
        assert addresses(process_of(driver, kubectl, "again"), "dummy8") == ["169.254.169.14/32"]
        [made] = kubectl.items("resourceclaims")
        assert status_ips(kubectl, made["metadata"]["name"]) == ["169.254.169.14/32"]
        kubectl.delete("pod/again")
        wait_until(lambda: not kubectl.items("resourceclaims"), "the claim to be gone with its pod")


def test_permanent_neighbours_are_copied(driver: Cluster, kubectl: Kubectl) -> None:
    node = driver.nodes[0]
    known = {"192.168.1.1": "00:11:22:33:44:55", "2001:db8::1": "00:aa:bb:cc:dd:ee"}
    for address, mac in known.items():
        node.run("ip", "neigh", "add", address, "lladdr", mac, "dev", "neigh0", "nud", "permanent")
    kubectl.start(one_nic("neighbours", "neigh0", STATIC), pod("pod-neigh", claims={"nic": "neighbours"}))
    found = ip(process_of(driver, kubectl, "pod-neigh"), "neigh", "show", "dev", "eth99", "nud", "permanent")
    assert {entry["dst"]: entry["lladdr"] for entry in found} == known


def test_rules_and_routes_of_tables_are_copied(driver: Cluster, kubectl: Kubectl) -> None:
    node = driver.nodes[0]
    node.run(*["ip", "route", "add", "10.10.10.0/24", "via", "169.254.17.1", "dev", "rules0", "table", "100"])
    node.run(*["ip", "rule", "add", "from", "10.20.30.0/24", "table", "100", "priority", "500"])
    try:
        kubectl.start(
            one_nic("rules", "rules0", {"interface": {"name": "eth99"}}),
            pod("pod-rules", claims={"nic": "rules"}),
        )
        process = process_of(driver, kubectl, "pod-rules")
        [route] = ip(process, "route", "show", "table", "100")
        assert (route["dst"], route["gateway"], route["dev"]) == ("10.10.10.0/24", "169.254.17.1", "eth99")
        [rule] = ip(process, "rule", "show", "priority", "500")
        assert (f"{rule['src']}/{rule['srclen']}", rule["table"]) == ("10.20.30.0/24", "100")
    finally:
        node.run(*["ip", "rule", "del", "priority", "500"], check=False)


def test_ipv6_subnet_route_is_not_doubled(driver: Cluster, kubectl: Kubectl) -> None:
    kubectl.start(one_nic("subnet", "subnet6"), pod("pod-subnet", claims={"nic": "subnet"}))
    routes = ip(process_of(driver, kubectl, "pod-subnet"), "-6", "route", "show", "dev", "subnet6")
    subnet = [(route["protocol"], route["metric"]) for route in routes if route["dst"].startswith("fd36:")]
    assert subnet == [("kernel", 256)]


def end_of_route(name: str, own: str, other: str, interface: str) -> list[Manifest]:
    """One end of the policy routing scenario: everything between the two subnets goes through table 100."""
    rules = [{"source": f"{own}.0/24"}, {"destination": f"{other}.0/24"}]
    asked = {
        "interface": {"name": "eth1", "addresses": [f"{own}.10/24"]},
        "rules": [{**rule, "table": 100, "priority": 32000} for rule in rules],
        "routes": [{"destination": "0.0.0.0/0", "gateway": f"{own}.2", "table": 100}],
    }
    return [one_nic(name, interface, asked), pod(name, claims={"nic": name})]


def test_policy_based_routing(driver: Cluster, kubectl: Kubectl) -> None:
    (pod1, router1), (pod2, router2) = PAIRS
    sides = {
        "left": (router1, {"interface": {"name": "eth1", "addresses": ["192.168.100.2/24"], "forwarding": True}}),
        "right": (router2, {"interface": {"name": "eth2", "addresses": ["192.168.200.2/24"], "forwarding": True}}),
    }
    requests = [request(side, release.CLASS, selector=by_name(name)) for side, (name, _) in sides.items()]
    config = [opaque("dra.net", asked, side) for side, (_, asked) in sides.items()]
    router = [claim("router", *requests, config=config), pod("router", claims={"nics": "router"})]
    left = end_of_route("pod1", "192.168.100", "192.168.200", pod1)
    right = end_of_route("pod2", "192.168.200", "192.168.100", pod2)
    kubectl.start(*left, *right, *router)
    kubectl.exec("pod1", "ping", "-c", "2", "-w", "5", "192.168.200.10")


def test_vrf_configuration(driver: Cluster, kubectl: Kubectl) -> None:
    """Where this kernel has no VRF, the virtual machine's does: tests/vm/test_scenarios.py, a NIC joins a vrf."""
    probe = subprocess.run(
        ["unshare", "--net", "ip", "link", "add", "probe", "type", "vrf", "table", "9"], capture_output=True, text=True
    )
    if probe.returncode:
        pytest.skip(f"this kernel makes no VRF: {probe.stderr.strip()}")
    vrf = {"interface": {"name": "eth1", "addresses": ["10.7.0.1/24"], "vrf": {"name": "blue", "table": 77}}}
    routed = {**vrf, "routes": [{"destination": "10.70.0.0/16", "gateway": "10.7.0.254"}]}
    kubectl.start(one_nic("vrf", "vrf0", routed), pod("pod-vrf", claims={"nic": "vrf"}))
    process = process_of(driver, kubectl, "pod-vrf")
    assert link(process, "eth1")["master"] == "blue"
    assert link(process, "blue")["linkinfo"]["info_data"]["table"] == 77
    routes = ip(process, "route", "show", "table", "77", "proto", "static")
    assert [(route["dst"], route["gateway"]) for route in routes] == [("10.70.0.0/16", "10.7.0.254")]


def test_resource_slice_attributes_stay_while_allocated(driver: Cluster, kubectl: Kubectl) -> None:
    """The reference needs a feature gate for this."""
    before = json.dumps(release.published(kubectl, "n1")["steady0"], sort_keys=True)
    kubectl.start(one_nic("steady", "steady0", STATIC), pod("steady", claims={"nic": "steady"}))
    assert json.dumps(release.published(kubectl, "n1")["steady0"], sort_keys=True) == before
    old = release.drivers(driver)["n1"]["metadata"]
    driver.kubectl.in_namespace(release.SYSTEM).delete(f"pod/{old['name']}")
    wait_until(lambda: "n1" in release.drivers(driver), "another driver to serve")
    assert json.dumps(release.published(kubectl, "n1")["steady0"], sort_keys=True) == before


@pytest.fixture
def evicted(driver: Cluster) -> Iterator[Callable[[], None]]:
    """Sends the driver away from the first node; it is back when the test is over."""
    name = driver.node_names()[0]

    def send_away() -> None:
        driver.kubectl.run("label", "node", name, f"{release.KEEP_AWAY}=true")
        wait_until(lambda: name not in release.drivers(driver, serving=False), "the driver to leave")

    yield send_away
    come_back(driver)


def come_back(driver: Cluster) -> None:
    name = driver.node_names()[0]
    driver.kubectl.run("label", "node", name, f"{release.KEEP_AWAY}-")
    wait_until(lambda: name in release.drivers(driver), "the driver to be back")


def sockets(node: Node) -> list[str]:
    """The driver's sockets on a node: one to be found by, one to be used."""
    folders = ("plugins/dra.net", "plugins_registry")
    found = [path for folder in folders for path in (node.root / "var/lib/kubelet" / folder).glob("*.sock")]
    return [path.name for path in found if path.name.startswith("dra")]


def test_graceful_shutdown(driver: Cluster, evicted: Callable[[], None]) -> None:
    assert len(sockets(driver.nodes[0])) == 2
    evicted()
    assert sockets(driver.nodes[0]) == []
    assert len(sockets(driver.nodes[1])) == 2


def test_unprepare_after_downtime(driver: Cluster, kubectl: Kubectl, evicted: Callable[[], None]) -> None:
    kubectl.start(one_nic("downtime", "downtime0", STATIC), pod("gone", claims={"nic": "downtime"}))
    uid = kubectl.get("pod/gone")["metadata"]["uid"]
    evicted()
    kubectl.delete("pod/gone", grace=0)
    assert uid in remembered(driver.nodes[0])
    come_back(driver)
    wait_until(lambda: uid not in remembered(driver.nodes[0]), "the driver to forget the pod")


def remembered(node: Node) -> set[str]:
    """UIDs of the pods in the driver's store. Of a copy: sqlite would follow the path out of the node."""
    with tempfile.TemporaryDirectory() as folder:
        for file in (node.root / "var/lib/dranet").glob("dranet.sqlite*"):
            shutil.copy(file, folder)
        with contextlib.closing(sqlite3.connect(f"{folder}/dranet.sqlite")) as store:
            return {uid for (uid,) in store.execute("SELECT pod_uid FROM claims")}
