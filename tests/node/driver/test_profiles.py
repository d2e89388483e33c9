"""Profiles and clouds in the whole daemon: what webhooks hear of a claim, and what a cloud says of a node."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dranet.kubernetes.api import resources
from dranet.kubernetes.kubelet.handler import PrepareError
from dranet.linux import addresses
from dranet.linux.netlink import NetlinkSocket
from dranet.testing.waiting import until

from .daemon_bench import NODE, Bench, bench

pytestmark = pytest.mark.usefixtures("may_make_namespaces")

Heard = list[tuple[str, Any]]


@contextlib.asynccontextmanager
async def answering(b: Bench, answer: Callable[[str, Any], tuple[int, Any]]) -> AsyncIterator[tuple[str, Heard]]:
    """An HTTP server on the node's loopback; tells its URL and what it is asked."""
    heard: Heard = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(fields.get("content-length", "0")))
        path = head.split()[1]
        heard.append((path, json.loads(body) if body else None))
        status, content = answer(path, heard[-1][1])
        data = json.dumps(content).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        await writer.drain()
        writer.close()

    listening = b.node.namespace.run(lambda: socket.create_server(("127.0.0.1", 0)))
    server = await asyncio.start_server(serve, sock=listening)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", heard
    finally:
        server.close()


def profiles(path: str, body: Any) -> tuple[int, Any]:
    if path == "/health":
        return 200, {"cloudProvider": False, "profileProvider": True}
    if body["config"]["profile"] == "routing":
        return 200, {"rules": [{"table": 7}]}
    return 200, {"interface": {"addresses": ["10.77.0.5/24"]}}


async def test_webhook_gets_the_whole_claim_and_pod() -> None:
    async with bench(start=False) as b, answering(b, profiles) as (url, heard):
        b.node.flags += ["--profile-provider=webhook", f"--webhook-url={url}"]
        await b.node.start_driver()
        await until(b.published)
        pod = b.claim("nic0", parameters={"profile": "gold"})
        written = b.api.find(resources.RESOURCE_CLAIMS, "claim-1", "default")
        assert written is not None
        await b.node.start_pod(pod)
        asked = dict(heard)["/GetProfileConfig"]
        assert {part: asked["claim"][part] for part in ("metadata", "spec")}.items() <= written.items()
        assert (asked["claim"]["apiVersion"], asked["claim"]["kind"]) == ("resource.k8s.io/v1", "ResourceClaim")
        assert asked["claim"]["status"]["reservedFor"] == [{"resource": "pods", "name": "pod-1", "uid": "pod-1-uid"}]
        assert (asked["claim_uid"], asked["config"], asked["device"]["name"]) == ("uid-1", {"profile": "gold"}, "nic0")
        assert pod.netns is not None
        with NetlinkSocket(namespace_fd=pod.netns.fd) as route:
            assert "10.77.0.5/24" in [address.cidr for address in addresses.list_addresses(route)]
        await b.node.stop_pod(pod)
        released = dict(heard)["/ReleaseProfileConfig"]
        assert released["claim_uid"] == "uid-1"
        assert released["claim"]["metadata"] == {"namespace": "default", "name": "claim-1", "uid": "uid-1"}
        assert released["claim"]["status"]["reservedFor"] == asked["claim"]["status"]["reservedFor"]
        assert released["config"]["interface"]["addresses"] == ["10.77.0.5/24"]
        assert [path for path, _ in heard].count("/GetProfileConfig") == 1


async def test_invalid_profile_answer_is_refused_and_released() -> None:
    async with bench(start=False) as b, answering(b, profiles) as (url, heard):
        b.node.flags += ["--profile-provider=webhook", f"--webhook-url={url}"]
        await b.node.start_driver()
        await until(b.published)
        pod = b.claim("nic0", parameters={"profile": "routing", "interface": {"vrf": {"name": "blue"}}})
        with pytest.raises(PrepareError, match=r"rules: cannot be used with interface\.vrf"):
            await b.node.prepare(pod)
        assert [path for path, _ in heard][-1] == "/ReleaseProfileConfig"


async def test_coreweave_is_detected_by_node_labels() -> None:
    async with bench(start=False) as b:
        labels = {"cks.coreweave.com/cluster": "prod", "backend.coreweave.cloud/superpod": "7"}
        b.api.put(resources.NODES, {"metadata": {"name": NODE, "labels": labels}})
        b.node.flags += ["--cloud-provider-hint=CKS"]
        await b.node.start_driver()
        await until(b.published)
        (nic, *_) = b.api.objects(resources.RESOURCE_SLICES)[0]["spec"]["devices"]
        assert nic["attributes"]["coreweave.dra.net/superpod"] == {"string": "7"}
