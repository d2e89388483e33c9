"""``dranet sysdump``: one archive with what matters, and without secrets."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from dranet.core.device import Device
from dranet.core.http import Request
from dranet.core.slices import resource_slices
from dranet.kubernetes.api.resources import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dranet.testing.apiserver import Response, SandboxApiServer
from tests.cli.api import run_against

TOKEN = "eyJhbGciOi"


class WithLogs(SandboxApiServer):
    """A cluster whose kubelets serve logs."""

    async def handle(self, request: Request) -> Response:
        if request.path.endswith("/log"):
            return Response(200, body=f"Attached devices claim=team/nic\nAuthorization: Bearer {TOKEN}\n".encode())
        return await super().handle(request)


def pod(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "env": [{"name": "PASSWORD", "value": TOKEN}], "args": [f"--token={TOKEN}", "--v=4"]}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": TOKEN}
    metadata = {"name": name, "namespace": namespace, "annotations": applied, "labels": {"app": name}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def a_cluster() -> SandboxApiServer:
    server = WithLogs()
    for item in resource_slices([Device(name="eth1")], node="node-a"):
        server.put(RESOURCE_SLICES, item)
    server.put(PODS, pod("dranet", "kube-system"))
    server.put(PODS, pod("worker", "team", resourceClaims=[{"name": "nic", "resourceClaimName": "nic"}]))
    server.put(PODS, pod("unrelated", "team"))
    opaque = {"driver": "dra.net", "parameters": {"apiKey": TOKEN, "interface": {"name": "net1"}}}
    spec = {"devices": {"requests": [], "config": [{"opaque": opaque}]}}
    server.put(RESOURCE_CLAIMS, {"metadata": {"name": "nic", "namespace": "team"}, "spec": spec})
    return server


async def dumped(tmp_path: Path, server: SandboxApiServer) -> dict[str, str]:
    archive = tmp_path / "dump.tar.gz"
    done = await run_against(server, tmp_path, "sysdump", "-o", str(archive))
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{archive}: ")
    with tarfile.open(archive) as files:
        return {
            member.name.removeprefix("dranet-sysdump/"): made.read().decode()
            for member in files
            if (made := files.extractfile(member)) is not None
        }


async def test_has_objects_of_dra_and_logs_of_the_driver(tmp_path: Path) -> None:
    files = await dumped(tmp_path, a_cluster())
    assert [one["metadata"]["name"] for one in json.loads(files["pods.json"])] == ["dranet", "worker"]
    assert json.loads(files["resourceslices.json"])[0]["spec"]["nodeName"] == "node-a"
    assert "Attached devices claim=team/nic" in files["logs/dranet-c.log"]
    assert files["version.txt"].startswith("dranet ")


async def test_has_no_secrets(tmp_path: Path) -> None:
    files = await dumped(tmp_path, a_cluster())
    assert [name for name, text in files.items() if TOKEN in text] == []
    (driver, _) = json.loads(files["pods.json"])
    assert driver["spec"]["containers"][0]["args"] == ["--token=REDACTED", "--v=4"]
    parameters = json.loads(files["resourceclaims.json"])[0]["spec"]["devices"]["config"][0]["opaque"]["parameters"]
    assert parameters == {"apiKey": "REDACTED", "interface": {"name": "net1"}}


async def test_lists_what_it_may_not_read(tmp_path: Path) -> None:
    server = a_cluster()
    server.forbid("list", NODES)
    files = await dumped(tmp_path, server)
    assert files["not-read.txt"].splitlines()[0] == "nodes: the API server answered 403" and "nodes.json" not in files
