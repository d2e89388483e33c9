"""`status`, `plan`, `explain` and `serve` against ten thousand machines with eight GPUs and eight NICs each.

The server is played by a process of its own: it hands out prepared pages over plain HTTP, and waits before each as long
as a real API server computes on it (0.45 ms for a slice of 16 devices, docs/evidence/scale.md), so who asks for
the next page only after reading the last one pays for it. Every command runs in a process of its own, as people call
it.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import shape_slices

NODES = 10_000
SHAPE = "a4-highgpu-8g"
SECONDS_PER_DEVICE = 0.45e-3 / 16
POD = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t}
spec:
  spec:
    devices:
      requests:
      - {name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}
      - name: nic
        exactly:
          deviceClassName: dranet
          selectors: [{cel: {expression: 'device.attributes["dra.net"].rdma == true'}}]
      constraints: [{requests: [gpu, nic], matchAttribute: resource.kubernetes.io/pcieRoot}]
---
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: d}]}}]
  resourceClaims: [{name: d, resourceClaimTemplateName: t}]
"""


def measure() -> dict[str, Any]:
    """Every command once."""
    with tempfile.TemporaryDirectory() as folder, _played() as address:
        config, pod = Path(folder, "config"), Path(folder, "pod.yaml")
        config.write_text(json.dumps(_kubeconfig(address)))
        pod.write_text(POD)
        asked = ["--live", "--kubeconfig", str(config), "-f", str(pod)]
        return {
            "nodes": NODES,
            "devices": NODES * 16,
            "load_average": round(os.getloadavg()[0], 1),
            "status": _command("status", "--kubeconfig", str(config)),
            "plan": _command("plan", *asked),
            "explain": _command("explain", *asked),
            "serve": _serve(config),
        }


def _command(*arguments: str) -> dict[str, Any]:
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, "-m", "dranet", *arguments], stdout=subprocess.PIPE)
    assert child.stdout is not None
    said = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0 and said, f"dranet {arguments[0]} ended with {child.returncode}"
    return {"seconds": round(time.monotonic() - began, 1), **_used(used.ru_utime + used.ru_stime, used.ru_maxrss)}


def _serve(config: Path) -> dict[str, Any]:
    """Until the page could draw every machine: its first look is the whole fleet."""
    began = time.monotonic()
    command = [sys.executable, "-u", "-m", "dranet", "serve", "--kubeconfig", str(config), "--listen", "127.0.0.1:0"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert child.stdout is not None
        address = next(word for line in child.stdout for word in line.split() if word.startswith("http://"))
        machines = _first_look(address.rstrip("/."))
        assert machines == NODES, f"the page shows {machines} machines"
        seconds = round(time.monotonic() - began, 1)
        status = Path(f"/proc/{child.pid}/status").read_text()
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        processor = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        highest = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return {"seconds": seconds, **_used(processor, int(highest.split()[1]))}
    finally:
        child.send_signal(signal.SIGINT)
        child.wait(30)


def _used(processor: float, resident_kb: int) -> dict[str, Any]:
    return {"processor_seconds": round(processor, 1), "memory_mb": resident_kb // 1024}


def _first_look(address: str) -> int:
    """Machines the page knows once it says that nothing is left to be read."""
    with urllib.request.urlopen(f"{address}/events", timeout=300) as stream:
        machines: set[str] = set()
        waiting, left = True, 1
        for line in stream:
            if not line.startswith(b"data: "):
                continue
            change = json.loads(line[6:])
            machines |= {node["name"] for node in change.get("nodes", ())}
            waiting, left = bool(change.get("waiting", waiting)), change.get("left", left)
            if not waiting and not left:
                break
    return len(machines)


@contextlib.contextmanager
def _played() -> Iterator[str]:
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_play, args=(there,), daemon=True)
    child.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        child.terminate()
        child.join()


def _kubeconfig(address: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "played",
        "clusters": [{"name": "played", "cluster": {"server": address}}],
        "users": [{"name": "played", "user": {}}],
        "contexts": [{"name": "played", "context": {"cluster": "played", "user": "played"}}],
    }


def _play(ready: Connection) -> None:
    """The server's process."""
    answers = _Answers()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            target = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(target.query).items()}
            if "watch" in query:  # a fleet where nothing happens
                self.send_response(200)
                self.end_headers()
                time.sleep(3600)
            seconds, body = answers.get(target.path, query)
            time.sleep(seconds)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    ready.send(server.server_address[1])
    server.serve_forever()


class _Answers:
    """What the played server has: slices and nodes, all unused."""

    def __init__(self) -> None:
        shape = load_shape(SHAPE)
        names = [f"node-{number:05}" for number in range(NODES)]
        made = [item for number, name in enumerate(names) for item in shape_slices(shape, name, number)]
        self._slices = [(item["spec"]["driver"], _stored(item)) for item in made]
        self._nodes = [_stored({"metadata": {"name": name}, "spec": {}, "status": {}}) for name in names]

    def get(self, path: str, query: dict[str, str]) -> tuple[float, bytes]:
        """How long it takes to make, and the answer."""
        match path.rpartition("/")[2]:
            case "version":
                return 0.0, b'{"major":"1","minor":"36","gitVersion":"v1.36.4"}'
            case "resource.k8s.io":
                return 0.0, b'{"kind":"APIGroup","versions":[{"version":"v1"}]}'
            case "resourceslices":
                wanted = query.get("fieldSelector", "").partition("spec.driver=")[2]
                items = [item for driver, item in self._slices if wanted in {"", driver}]
                page, rest = _page(items, query)
                return page.count(b'"attributes"') * SECONDS_PER_DEVICE, _list(page, rest)
            case "nodes":
                return 0.0, _list(*_page(self._nodes, query))
            case "deviceclasses":
                return 0.0, _list(b",".join(map(_class, ("gpu.nvidia.com", "dra.net"))), 0)
        return 0.0, _list(b"", 0)


def _stored(item: dict[str, Any]) -> bytes:
    """With what a server adds."""
    managed = [{"manager": "dranet", "operation": "Update", "fieldsV1": {"f:spec": {"f:devices": {}, "f:pool": {}}}}]
    more = {"uid": "2b3c9f0e-8d7d-4f1c-9a55-5ad7b6a4d111", "resourceVersion": "1234", "managedFields": managed}
    whole = {key: value for key, value in item.items() if key not in {"kind", "apiVersion"}}
    return json.dumps({**whole, "metadata": {**item["metadata"], **more}}, separators=(",", ":")).encode()


def _class(driver: str) -> bytes:
    name = {"dra.net": "dranet"}.get(driver, driver)
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    return _stored({"metadata": {"name": name}, "spec": {"selectors": selectors}})


def _page(items: list[bytes], query: dict[str, str]) -> tuple[bytes, int]:
    first, many = int(query.get("continue", "0")), int(query.get("limit", len(items)))
    return b",".join(items[first : first + many]), first + many if first + many < len(items) else 0


def _list(items: bytes, rest: int) -> bytes:
    more = b'"continue":"%d",' % rest if rest else b""
    return b'{"kind":"List","apiVersion":"v1","metadata":{%s"resourceVersion":"9"},"items":[%s]}' % (more, items)
