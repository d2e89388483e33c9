"""``dranet status`` against the sandbox's API server over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from dranet.cli.status import LISTED, status
from dranet.kube.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from dranet.model.attributes import BANDWIDTH
from dranet.model.device import Device, SharePolicy, Taint
from dranet.model.slices import resource_slices
from dranet.sandbox.apihttp import serve
from dranet.sandbox.apiserver import SandboxApiServer


def a_cluster() -> SandboxApiServer:
    server = SandboxApiServer()
    taint = Taint(key="dra.net/link-down")
    card = Device(name="pci-0000-8a-00-0", attributes={"dra.net/ifName": "rdma0", "dra.net/rdmaDevice": "mlx5_0"})
    for item in resource_slices([card, Device(name="eth9", taints=(taint,))], node="node-a"):
        server.put(RESOURCE_SLICES, item)
    result = {"driver": "dra.net", "pool": "node-a", "device": card.name, "request": "nic"}
    held = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"resource": "pods", "name": "worker-0"}]}
    server.put(RESOURCE_CLAIMS, {"metadata": {"name": "nic", "namespace": "team"}, "spec": {}, "status": held})
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
        return await asyncio.to_thread(CliRunner().invoke, status, ["--kubeconfig", str(path), *arguments])


async def test_the_table_shows_card_taint_claim_and_pod(tmp_path: Path) -> None:
    result = await run(tmp_path, a_cluster())
    assert result.exit_code == 0, result.output
    for word in ("rdma0 mlx5_0", "team/nic by worker-0", "dra.net/link-down:NoSchedule", "complete"):
        assert word in result.output


async def test_json_is_complete_and_can_be_narrowed_to_what_is_used(tmp_path: Path) -> None:
    result = await run(tmp_path, a_cluster(), "--in-use", "-o", "json")
    found = json.loads(result.output)
    assert [line["device"] for line in found["devices"]] == ["pci-0000-8a-00-0"]
    assert found["pools"][0]["used"] == 1


async def test_brackets_in_a_message_are_shown_as_they_are(tmp_path: Path) -> None:
    server = a_cluster()
    (claim,) = server.objects(RESOURCE_CLAIMS)
    message = "routes[/red].gateway: [bold] is missing"
    condition = {"type": "Ready", "status": "False", "reason": "x", "message": message}
    said = {"driver": "dra.net", "pool": "node-a", "device": "pci-0000-8a-00-0", "conditions": [condition]}
    server.put(RESOURCE_CLAIMS, {**claim, "status": {**claim["status"], "devices": [said]}})
    result = await run(tmp_path, server)
    assert f"not ready (Ready: {message})" in result.output


async def test_another_node_has_nothing_and_the_text_says_where_to_look(tmp_path: Path) -> None:
    result = await run(tmp_path, a_cluster(), "--node", "node-b")
    assert "No ResourceSlice of dra.net of node node-b. Is the driver running?" in result.output


async def test_of_a_large_cluster_what_is_in_use_or_tainted_is_listed_and_the_rest_is_counted(tmp_path: Path) -> None:
    server = a_cluster()
    for number in range(LISTED):
        for item in resource_slices([Device(name="eth0"), Device(name="eth1")], node=f"quiet-{number}"):
            server.put(RESOURCE_SLICES, item)
    result = await run(tmp_path, server)
    assert result.exit_code == 0, result.output
    for word in ("team/nic by worker-0", "dra.net/link-down:NoSchedule", "node-a"):
        assert word in result.output
    assert f"{LISTED + 1} nodes, {2 * LISTED + 2:,} devices: 1 in use, 1 tainted" in result.output
    assert "Not listed: 1 more nodes" in result.output
    assert "eth1" not in result.output


async def test_one_node_of_a_large_cluster_is_asked_for_alone(tmp_path: Path) -> None:
    server = a_cluster()
    for item in resource_slices([Device(name="eth0")], node="node-b"):
        server.put(RESOURCE_SLICES, item)
    result = await run(tmp_path, server, "--node", "node-b")
    assert "1 nodes, 1 devices: 0 in use, 0 tainted" in result.output


async def test_a_shared_card_shows_how_much_is_taken_and_by_whom(tmp_path: Path) -> None:
    server = SandboxApiServer()
    policy = SharePolicy(default="100G", least="1G", step="1G")
    card = Device(name="card0", capacity={"dra.net/bandwidth": "100G"}, shares={"dra.net/bandwidth": policy})
    for item in resource_slices([card], node="node-a"):
        server.put(RESOURCE_SLICES, item)
    for name, amount in (("blue", "30G"), ("green", "2500000000")):
        result = {"driver": "dra.net", "pool": "node-a", "device": "card0", "request": "nic", "shareID": name}
        status = {"allocation": {"devices": {"results": [result | {"consumedCapacity": {BANDWIDTH: amount}}]}}}
        server.put(RESOURCE_CLAIMS, {"metadata": {"name": name, "namespace": "team"}, "spec": {}, "status": status})
    result = await run(tmp_path, server)
    for text in ("32500M of 100G bandwidth taken", "team/blue (30G)", "team/green (2500M)"):
        assert text in result.output, result.output
