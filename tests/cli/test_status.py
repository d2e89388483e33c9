"""``dranet status`` against the sandbox's API server over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import Result

from dranet.cli.status import MAX_ROWS
from dranet.core.attributes import BANDWIDTH
from dranet.core.device import Device, SharePolicy, Taint
from dranet.core.http import Request
from dranet.core.slices import resource_slices
from dranet.kubernetes.api.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from dranet.testing.apiserver import Response, SandboxApiServer
from tests.cli.api import run_against


def a_cluster() -> SandboxApiServer:
    server = SandboxApiServer()
    taint = Taint(key="dra.net/link-down")
    nic = Device(name="pci-0000-8a-00-0", attributes={"dra.net/ifName": "rdma0", "dra.net/rdmaDevice": "mlx5_0"})
    for item in resource_slices([nic, Device(name="eth9", taints=(taint,))], node="node-a"):
        server.put(RESOURCE_SLICES, item)
    result = {"driver": "dra.net", "pool": "node-a", "device": nic.name, "request": "nic"}
    held = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"resource": "pods", "name": "worker-0"}]}
    server.put(RESOURCE_CLAIMS, {"metadata": {"name": "nic", "namespace": "team"}, "spec": {}, "status": held})
    return server


async def run(tmp_path: Path, server: SandboxApiServer, *arguments: str) -> Result:
    return await run_against(server, tmp_path, "status", *arguments)


async def test_table_shows_device_taint_claim_and_pod(tmp_path: Path) -> None:
    result = await run(tmp_path, a_cluster())
    assert result.exit_code == 0, result.output
    for word in ("rdma0 mlx5_0", "team/nic by worker-0", "dra.net/link-down:NoSchedule", "complete"):
        assert word in result.output


async def test_json_is_complete_and_can_be_filtered(tmp_path: Path) -> None:
    result = await run(tmp_path, a_cluster(), "--in-use", "-o", "json")
    found = json.loads(result.output)
    assert [line["device"] for line in found["devices"]] == ["pci-0000-8a-00-0"]
    assert found["pools"][0]["used"] == 1


async def test_prints_brackets_in_messages(tmp_path: Path) -> None:
    server = a_cluster()
    (claim,) = server.objects(RESOURCE_CLAIMS)
    message = "routes[/red].gateway: [bold] is missing"
    condition = {"type": "Ready", "status": "False", "reason": "x", "message": message}
    device = {"driver": "dra.net", "pool": "node-a", "device": "pci-0000-8a-00-0", "conditions": [condition]}
    server.put(RESOURCE_CLAIMS, {**claim, "status": {**claim["status"], "devices": [device]}})
    result = await run(tmp_path, server)
    assert f"not ready (Ready: {message})" in result.output


async def test_names_the_next_step_for_a_node_without_slices(tmp_path: Path) -> None:
    result = await run(tmp_path, a_cluster(), "--node", "node-b")
    assert "No ResourceSlice of driver dra.net on node node-b. Check that it runs" in result.output


async def test_lists_used_and_tainted_devices_first_in_a_large_cluster(tmp_path: Path) -> None:
    server = a_cluster()
    for number in range(MAX_ROWS):
        for item in resource_slices([Device(name="eth0"), Device(name="eth1")], node=f"quiet-{number}"):
            server.put(RESOURCE_SLICES, item)
    result = await run(tmp_path, server)
    assert result.exit_code == 0, result.output
    for word in ("team/nic by worker-0", "dra.net/link-down:NoSchedule", "node-a"):
        assert word in result.output
    assert f"{MAX_ROWS + 1} nodes, {2 * MAX_ROWS + 2:,} devices: 1 in use, 1 tainted" in result.output
    assert "Not listed: 1 more nodes" in result.output
    assert "eth1" not in result.output


async def test_requests_only_the_selected_node(tmp_path: Path) -> None:
    server = a_cluster()
    for item in resource_slices([Device(name="eth0")], node="node-b"):
        server.put(RESOURCE_SLICES, item)
    result = await run(tmp_path, server, "--node", "node-b")
    assert "1 node, 1 devices: 0 in use, 0 tainted" in result.output


async def test_shows_allocated_bandwidth_of_a_shared_nic(tmp_path: Path) -> None:
    server = SandboxApiServer()
    policy = SharePolicy(default="100G", least="1G", step="1G")
    nic = Device(name="card0", capacity={"dra.net/bandwidth": "100G"}, shares={"dra.net/bandwidth": policy})
    for item in resource_slices([nic], node="node-a"):
        server.put(RESOURCE_SLICES, item)
    for name, amount in (("blue", "30G"), ("green", "2500000000")):
        result = {"driver": "dra.net", "pool": "node-a", "device": "card0", "request": "nic", "shareID": name}
        status = {"allocation": {"devices": {"results": [result | {"consumedCapacity": {BANDWIDTH: amount}}]}}}
        server.put(RESOURCE_CLAIMS, {"metadata": {"name": name, "namespace": "team"}, "spec": {}, "status": status})
    output = (await run(tmp_path, server)).output
    for text in ("32500M of 100G bandwidth taken", "team/blue (30G)", "team/green (2500M)"):
        assert text in output, output


async def test_first_line_is_the_summary(tmp_path: Path) -> None:
    result = await run(tmp_path, a_cluster())
    assert result.stdout.splitlines()[0] == "1 node, 2 devices: 1 in use, 1 tainted"


class PublishesAfterTheFirstList(SandboxApiServer):
    """A cluster whose node publishes its slice once the slices have been listed."""

    async def handle(self, request: Request) -> Response:
        answer = await super().handle(request)
        if "resourceslices" in request.path:
            for item in resource_slices([Device(name="eth0")], node="node-b"):
                self.put(RESOURCE_SLICES, item)
        return answer


async def test_wait_ends_when_a_node_publishes(tmp_path: Path) -> None:
    result = await run(tmp_path, PublishesAfterTheFirstList(), "--node", "node-b", "--wait", "60")
    assert result.exit_code == 0 and "1 node, 1 devices" in result.stdout


async def test_wait_fails_if_nothing_is_published(tmp_path: Path) -> None:
    result = await run(tmp_path, a_cluster(), "--node", "node-b", "--wait", "0")
    assert result.exit_code == 1 and "No ResourceSlice of driver dra.net on node node-b" in result.output
