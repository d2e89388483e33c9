"""`dranet check --cluster` against the sandbox's API server over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from click.testing import CliRunner, Result

from dranet.cli.check import check
from dranet.kube.resources import NODES, RESOURCE_SLICES
from dranet.model.device import Device, Taint
from dranet.model.slices import resource_slices
from dranet.sandbox.apihttp import serve
from dranet.sandbox.apiserver import SandboxApiServer


def card(number: int, *, taints: tuple[Taint, ...] = (), speed: str = "400G", mtu: int = 4200) -> Device:
    said = {"dra.net/ifName": f"rdma{number}", "dra.net/pciAddress": f"0000:0{number}:00.0", "dra.net/mtu": mtu}
    model = {"dra.net/pciVendor": "Mellanox", "dra.net/pciDevice": "MT2910"}
    return Device(name=f"c{number}", attributes=said | model, capacity={"dra.net/linkSpeed": speed}, taints=taints)


def a_cluster(**odd: Any) -> SandboxApiServer:
    """Two nodes of three cards; the second card of node-b is odd."""
    server = SandboxApiServer()
    for node, changes in (("node-a", {}), ("node-b", odd)):
        server.put(NODES, {"metadata": {"name": node}})
        for item in resource_slices([card(0), card(1, **changes), card(2)], node=node):
            server.put(RESOURCE_SLICES, item)
    return server


async def run(tmp_path: Path, server: SandboxApiServer, *arguments: str) -> Result:
    async with serve(server) as port:
        config: dict[str, Any] = {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        }
        path = tmp_path / "config"
        path.write_text(json.dumps(config))
        words = ["--cluster", "--kubeconfig", str(path), *arguments]
        return await asyncio.to_thread(CliRunner().invoke, check, words)


async def findings(tmp_path: Path, server: SandboxApiServer, *arguments: str) -> list[tuple[str, str, str]]:
    result = await run(tmp_path, server, "-o", "json", *arguments)
    return [(node["node"], f["device"], f["fault"]) for node in json.loads(result.output) for f in node["findings"]]


async def test_a_cluster_that_is_well_ends_with_zero(tmp_path: Path) -> None:
    result = await run(tmp_path, a_cluster())
    assert (result.exit_code, "2 nodes, 2 well" in result.output) == (0, True), result.output


async def test_a_tainted_card_is_named_with_its_node_and_fails(tmp_path: Path) -> None:
    server = a_cluster(taints=(Taint(key="dra.net/pcie-degraded"),))
    assert await findings(tmp_path, server) == [("node-b", "c1", "pcie-degraded")]
    assert (await run(tmp_path, server)).exit_code == 1
    assert (await run(tmp_path, server, "--node", "node-a")).exit_code == 0


async def test_cards_are_compared_with_their_siblings_and_a_shape(tmp_path: Path) -> None:
    assert await findings(tmp_path, a_cluster(speed="100G")) == [("node-b", "c1", "slow-link")]
    assert await findings(tmp_path, a_cluster(mtu=1500)) == [("node-b", "c1", "mtu-mismatch")]
    missing = await findings(tmp_path, a_cluster(), "--shape", "dgx-h100")
    assert {(node, fault) for node, _, fault in missing} == {("node-a", "card-missing"), ("node-b", "card-missing")}


async def test_a_taint_of_others_is_no_fault_of_ours(tmp_path: Path) -> None:
    assert await findings(tmp_path, a_cluster(taints=(Taint(key="example.com/maintenance"),))) == []


async def test_junit_has_a_suite_a_node(tmp_path: Path) -> None:
    result = await run(tmp_path, a_cluster(taints=(Taint(key="dra.net/link-down"),)), "-o", "junit")
    suites = ElementTree.fromstring(result.output)
    assert [(suite.get("name"), suite.get("failures")) for suite in suites] == [
        ("dranet check node-a", "0"),
        ("dranet check node-b", "1"),
    ]


def label(server: SandboxApiServer, node: str) -> str | None:
    found = server.find(NODES, node) or {}
    return found["metadata"].get("labels", {}).get("dranet.net/network-healthy")


async def test_nodes_are_labelled_only_where_that_is_asked_for(tmp_path: Path) -> None:
    server = a_cluster(taints=(Taint(key="dra.net/link-down"),))
    await run(tmp_path, server)
    assert (label(server, "node-a"), label(server, "node-b")) == (None, None)
    await run(tmp_path, server, "--label-nodes")
    assert (label(server, "node-a"), label(server, "node-b")) == ("true", "false")


async def test_a_cluster_without_the_driver_says_so(tmp_path: Path) -> None:
    result = await run(tmp_path, SandboxApiServer())
    assert result.exit_code == 1 and "no ResourceSlice of dra.net" in result.output
