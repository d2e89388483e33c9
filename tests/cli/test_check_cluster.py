"""`dranet check --cluster` against the sandbox's API server over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from click.testing import Result

from dranet.core.device import Device, Taint
from dranet.core.slices import resource_slices
from dranet.kubernetes.api.resources import NODES, RESOURCE_SLICES
from dranet.testing.apiserver import SandboxApiServer
from tests.cli.api import run_against


def nic(number: int, *, taints: tuple[Taint, ...] = (), speed: str = "400G", mtu: int = 4200) -> Device:
    attributes = {"dra.net/ifName": f"rdma{number}", "dra.net/pciAddress": f"0000:0{number}:00.0", "dra.net/mtu": mtu}
    attributes |= {"dra.net/pciVendor": "Mellanox", "dra.net/pciDevice": "MT2910"}
    return Device(name=f"c{number}", attributes=attributes, capacity={"dra.net/linkSpeed": speed}, taints=taints)


def a_cluster(**odd: Any) -> SandboxApiServer:
    """Two nodes of three NICs; the second NIC of node-b is odd."""
    server = SandboxApiServer()
    for node, changes in (("node-a", {}), ("node-b", odd)):
        server.put(NODES, {"metadata": {"name": node}})
        for item in resource_slices([nic(0), nic(1, **changes), nic(2)], node=node):
            server.put(RESOURCE_SLICES, item)
    return server


async def run(tmp_path: Path, server: SandboxApiServer, *arguments: str) -> Result:
    return await run_against(server, tmp_path, "check", "--cluster", *arguments)


async def findings(tmp_path: Path, server: SandboxApiServer, *arguments: str) -> list[tuple[str, str, str]]:
    result = await run(tmp_path, server, "-o", "json", *arguments)
    return [(node["node"], f["device"], f["fault"]) for node in json.loads(result.output) for f in node["findings"]]


async def test_exits_0_for_a_healthy_cluster(tmp_path: Path) -> None:
    result = await run(tmp_path, a_cluster())
    assert (result.exit_code, "2 nodes, 2 healthy" in result.output) == (0, True), result.output


async def test_names_a_tainted_nic_with_its_node_and_fails(tmp_path: Path) -> None:
    server = a_cluster(taints=(Taint(key="dra.net/pcie-degraded"),))
    assert await findings(tmp_path, server) == [("node-b", "c1", "pcie-degraded")]
    assert (await run(tmp_path, server)).exit_code == 1
    assert (await run(tmp_path, server, "--node", "node-a")).exit_code == 0


async def test_compares_nics_with_each_other_and_with_a_shape(tmp_path: Path) -> None:
    assert await findings(tmp_path, a_cluster(speed="100G")) == [("node-b", "c1", "slow-link")]
    assert await findings(tmp_path, a_cluster(mtu=1500)) == [("node-b", "c1", "mtu-mismatch")]
    missing = await findings(tmp_path, a_cluster(), "--shape", "dgx-h100")
    assert {(node, fault) for node, _, fault in missing} == {("node-a", "card-missing"), ("node-b", "card-missing")}


async def test_ignores_taints_of_others(tmp_path: Path) -> None:
    assert await findings(tmp_path, a_cluster(taints=(Taint(key="example.com/maintenance"),))) == []


async def test_junit_has_one_suite_a_node(tmp_path: Path) -> None:
    result = await run(tmp_path, a_cluster(taints=(Taint(key="dra.net/link-down"),)), "-o", "junit")
    suites = ElementTree.fromstring(result.output)
    assert [(suite.get("name"), suite.get("failures")) for suite in suites] == [
        ("dranet check node-a", "0"),
        ("dranet check node-b", "1"),
    ]


def label(server: SandboxApiServer, node: str) -> str | None:
    found = server.find(NODES, node) or {}
    labels: dict[str, str] = found["metadata"].get("labels", {})
    return labels.get("dranet.net/network-healthy")


async def test_labels_nodes_only_with_label_nodes(tmp_path: Path) -> None:
    server = a_cluster(taints=(Taint(key="dra.net/link-down"),))
    await run(tmp_path, server)
    assert (label(server, "node-a"), label(server, "node-b")) == (None, None)
    await run(tmp_path, server, "--label-nodes")
    assert (label(server, "node-a"), label(server, "node-b")) == ("true", "false")


async def test_reports_a_cluster_without_the_driver(tmp_path: Path) -> None:
    result = await run(tmp_path, SandboxApiServer())
    assert result.exit_code == 1 and "no ResourceSlice of driver dra.net" in result.output
