"""The command on a hand-made sysfs and real links in a network namespace."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dranet.core.device import Device
from dranet.core.slices import slice_problems
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.resources import RESOURCE_SLICES
from dranet.linux.namespaces import Namespace
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.faults import LocalTransport
from tests.node.inventory.conftest import Machine

LINKS = """
link add gpu0rdma0 type veth peer name far0
link set gpu0rdma0 address 02:00:00:00:8a:00 mtu 8896 alias rail-0
link set far0 up
link set gpu0rdma0 up
addr add 10.0.0.5/24 dev gpu0rdma0
addr add fd00::5/64 dev gpu0rdma0 nodad
addr add 169.254.7.7/16 dev gpu0rdma0
link add uplink0 type veth peer name far1
link add br0 type bridge
link set uplink0 master br0
link add docker0 type bridge
link add plain_0 type ifb
link add link br0 name child0 type macvlan
link set lo up
link set far1 up
link set uplink0 up
link set br0 up
addr add 192.0.2.2/24 dev br0
route add default via 192.0.2.1
"""


BOND = """
link add bond0 type bond
link add port1 type dummy
link set port1 master bond0
link set bond0 up
addr add 192.0.2.2/24 dev bond0
route add default via 192.0.2.1
"""


def inside(netns: Namespace, *command: str, script: str = "") -> subprocess.CompletedProcess[str]:
    enter = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{netns.fd}"]
    return subprocess.run([*enter, *command], input=script, text=True, capture_output=True)


def dranet(netns: Namespace, *args: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-c", "from dranet.cli.main import main; main()"]
    return inside(netns, *run, "inventory", "--cloud-provider-hint", "NONE", "--offer-interfaces", "plain_0", *args)


@pytest.fixture
def node(machine: Machine, netns: Namespace) -> Namespace:
    """One NIC over a real link, one NIC that a virtual machine has, a GPU, and a node's usual virtual links."""
    path = machine.nic("0000:8a:00.0", netdevs=["gpu0rdma0"], rdma="mlx5_0", numa=1, sriov_totalvfs=8, sriov_numvfs=0)
    machine.write(f"{path}/net/gpu0rdma0/speed", 400000)
    machine.nic("0000:8b:00.0", driver="vfio-pci")
    machine.nic("0000:8f:00.0", pci_class="030200", ids=("10de", "2901", "0000"), driver="nvidia")
    make(netns, LINKS)
    return netns


def make(netns: Namespace, script: str) -> None:
    done = inside(netns, "ip", "-batch", "-", script=script)
    if "Unknown device type" in done.stderr:
        pytest.skip(f"this kernel cannot make the links of this test: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def found(node: Namespace, machine: Machine) -> Any:
    done = dranet(node, "-o", "json", "--sysfs", str(machine.root), "--filter", "", "--node", "n1")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_gives_every_attribute_of_a_nic_with_its_type(found: Any) -> None:
    (nic,) = [device for device in found["devices"] if device["name"] == "pci-0000-8a-00-0"]
    assert nic["attributes"] == {
        "dra.net/alias": {"string": "rail-0"},
        "dra.net/ebpf": {"bool": False},
        "dra.net/encapsulation": {"string": "ether"},
        "dra.net/ibOnly": {"bool": False},
        "dra.net/ifName": {"string": "gpu0rdma0"},
        "dra.net/ipv4": {"string": "10.0.0.5/24"},
        "dra.net/ipv6": {"string": "fd00::5/64"},
        "dra.net/mac": {"string": "02:00:00:00:8a:00"},
        "dra.net/mtu": {"int": 8896},
        "dra.net/numaNode": {"int": 1},
        "dra.net/pciAddress": {"string": "0000:8a:00.0"},
        "dra.net/pciDevice": {"string": "MT2910 Family [ConnectX-7]"},
        "dra.net/pciSubsystem": {"string": "0023"},
        "dra.net/pciVendor": {"string": "Mellanox Technologies"},
        "dra.net/rail": {"string": "0"},
        "dra.net/rdma": {"bool": True},
        "dra.net/rdmaDevice": {"string": "mlx5_0"},
        "dra.net/sriov": {"bool": True},
        "dra.net/sriovVfs": {"int": 0},
        "dra.net/state": {"string": "up"},
        "dra.net/type": {"string": "veth"},
        "dra.net/virtual": {"bool": False},
        "resource.kubernetes.io/numaNode": {"int": 1},
        "resource.kubernetes.io/pciBusID": {"string": "0000:8a:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:10"},
    }
    assert nic["capacity"] == {"dra.net/linkSpeed": {"value": "400G"}}


def test_the_command_gives_the_reason_it_leaves_things_alone(found: Any) -> None:
    reasons = {skipped["name"]: skipped["reason"] for skipped in found["skipped"]}
    assert "default route" in reasons["br0"]
    assert reasons["uplink0"] == "the uplink br0 is stacked on it"
    assert "vfio-pci" in reasons["0000:8b:00.0"]
    assert "loopback" in reasons["lo"]
    assert "docker0" in reasons
    published = {device["attributes"].get("dra.net/ifName", {}).get("string") for device in found["devices"]}
    assert not published & reasons.keys()


def test_members_of_an_uplink_bond_are_left_alone(netns: Namespace, machine: Machine) -> None:
    make(netns, BOND)
    content = json.loads(dranet(netns, "-o", "json", "--sysfs", str(machine.root)).stdout)
    reasons = {skipped["name"]: skipped["reason"] for skipped in content["skipped"]}
    assert reasons["port1"] == "the uplink bond0 is stacked on it"


def test_a_link_that_stands_on_the_uplink_is_offered(found: Any) -> None:
    assert "child0" in [device["name"] for device in found["devices"]]


def test_the_command_names_the_node_and_reports_no_problem(found: Any) -> None:
    assert list(found) == ["node", "devices", "skipped", "problems"]
    assert (found["node"], found["problems"]) == ("n1", [])


def test_what_the_command_would_publish_passes_the_limits_of_the_api(found: Any) -> None:
    assert slice_problems(map(Device.from_api, found["devices"])) == []


def test_a_link_that_is_no_dns_label_is_published_under_an_encoded_name(found: Any) -> None:
    assert "net-obwgc2lol4ya" in [device["name"] for device in found["devices"]]


def test_yaml_is_the_slices_that_would_be_published(node: Namespace, machine: Machine) -> None:
    done = dranet(node, "-o", "yaml", "--sysfs", str(machine.root), "--node", "n1")
    (content,) = yaml.safe_load_all(done.stdout)
    assert (content["kind"], content["spec"]["pool"]["name"]) == ("ResourceSlice", "n1")
    # The default filter leaves out veth links, which the NIC of this test is made of.
    assert [device["name"] for device in content["spec"]["devices"]] == ["child0", "net-obwgc2lol4ya"]


def test_the_table_is_plain_in_a_pipe(node: Namespace, machine: Machine) -> None:
    done = dranet(node, "--sysfs", str(machine.root), "--filter", "")
    assert "\x1b" not in done.stdout
    assert "pci-0000-8a-00-0" in done.stdout
    assert "the uplink br0 is stacked on it" in done.stdout
    assert "10de:2901" in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--sysfs", "/nowhere"], "/nowhere"),
        (["--filter", "attributes["], "does not compile"),
        (["--filter", "attribute.x"], "does not compile"),
        (["--shape", "no-such-machine"], "no-such-machine"),
        (["--no-such-flag"], "no-such-flag"),
        (["--cloud-provider-hint", "GCP"], "GCE"),
        (["--cloud-provider-hint", "webhook"], "--webhook-url"),
        (["-o", "xml"], "xml"),
        (["--sysfs", "/etc/passwd"], "/etc/passwd"),
        (["--sysfs"], "requires an argument"),
        (["--move-ib-interfaces=maybe"], "maybe"),
        (["surplus"], "surplus"),
        (["--shape", "/etc/passwd"], "/etc/passwd"),
    ],
)
def test_bad_input_is_one_clear_line(netns: Namespace, args: list[str], words: str) -> None:
    done = dranet(netns, *args)
    (error,) = done.stderr.splitlines()
    assert done.returncode != 0
    assert error.startswith("Error: ")
    assert words in error
    assert done.stdout == ""


@pytest.mark.parametrize("args", [["--sysfs", "sys"], ["--shape", "shape.toml"]])
def test_what_may_not_be_read_is_one_clear_line(tmp_path: Path, args: list[str]) -> None:
    (tmp_path / "sys").mkdir(mode=0o000)
    (tmp_path / "shape.toml").touch(mode=0o000)
    path = str(tmp_path / args[1])
    humble = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    command = [*humble, sys.executable, "-m", "dranet", "inventory", args[0], path]
    done = subprocess.run([*command, "--cloud-provider-hint", "NONE"], text=True, capture_output=True)
    (error,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert error.startswith("Error: ")
    assert path in error
    assert "ermission denied" in error


def test_a_shape_can_be_scanned_without_such_a_machine(netns: Namespace) -> None:
    done = dranet(netns, "-o", "json", "--shape", "a4-highgpu-8g")
    content = json.loads(done.stdout)
    assert (content["node"], len(content["devices"])) == ("a4-highgpu-8g", 8)


def test_a_shape_of_ones_own_goes_by_the_name_in_its_file(netns: Namespace, tmp_path: Path) -> None:
    text = inside(netns, sys.executable, "-m", "dranet", "shape", "show", "nd-gb300-v6").stdout
    (tmp_path / "mine.toml").write_text(text)
    content = json.loads(dranet(netns, "-o", "json", "--shape", str(tmp_path / "mine.toml")).stdout)
    assert content["node"] == "nd-gb300-v6"


@pytest.mark.parametrize("shape", ["a4-highgpu-8g", "a3-ultragpu-8g", "nd-gb300-v6"])
async def test_the_slices_of_a_shape_are_what_an_api_server_takes(netns: Namespace, shape: str) -> None:
    client = KubeClient(LocalTransport(SandboxApiServer()))
    for item in yaml.safe_load_all(dranet(netns, "-o", "yaml", "--shape", shape).stdout):
        assert item["apiVersion"] == "resource.k8s.io/v1"
        stored = await client.create(RESOURCE_SLICES, item)
        assert stored["spec"] == item["spec"]


def test_the_table_has_colours_on_a_terminal_and_none_where_nobody_wants_them(netns: Namespace) -> None:
    command = shlex.join([sys.executable, "-m", "dranet", "inventory", "--shape", "a4-highgpu-8g"])
    shown = [
        subprocess.run(["script", "-qec", command, "/dev/null"], text=True, capture_output=True, env=os.environ | env)
        for env in ({"NO_COLOR": ""}, {"NO_COLOR": "1"})
    ]
    assert ["\x1b[" in done.stdout for done in shown] == [True, False]


def test_a_shape_and_its_sysfs_give_the_same_devices(netns: Namespace, tmp_path: Path) -> None:
    """What the shape promises is what a look at such a machine finds."""
    from dranet.machines.shape import load_shape
    from dranet.testing.sysfs_tree import write_sysfs

    write_sysfs(load_shape("nd-gb300-v6"), tmp_path / "sys")
    shape = json.loads(dranet(netns, "-o", "json", "--shape", "nd-gb300-v6").stdout)
    looked = json.loads(
        dranet(netns, "-o", "json", "--sysfs", str(tmp_path / "sys"), "--move-ib-interfaces=false").stdout
    )
    promised = {d["name"]: _without_cloud(d["attributes"]) for d in shape["devices"]}
    assert {d["name"]: d["attributes"] for d in looked["devices"]} == promised
    assert [d["name"] for d in looked["devices"]] == list(promised)


def _without_cloud(attributes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if not key.startswith("azure.")}
