"""The sample webhook for addresses, with Debian's host-local behind it: alone, and asked by the driver."""

from __future__ import annotations

import contextlib
import copy
import http.client
import importlib.util
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dranet.kubernetes.kubelet.handler import PrepareError
from dranet.linux import addresses, routes
from dranet.linux.namespaces import Namespace, NamespaceError
from dranet.linux.netlink import NetlinkSocket
from dranet.testing.waiting import until
from tests.node.driver.daemon_bench import bench

WEBHOOK = Path(__file__).parents[2] / "examples/ipam/webhook.py"
RANGE = [[{"subnet": "10.20.0.0/24", "rangeStart": "10.20.0.10", "rangeEnd": "10.20.0.12", "gateway": "10.20.0.1"}]]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ipam_webhook", WEBHOOK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


webhook = _load()


@pytest.fixture(scope="session")
def plugins() -> Path:
    """Where host-local is: Debian's folder for CNI plugins, or the cluster bed's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dranet/cluster/deb"
    for found in (Path("/usr/lib/cni"), Path("/opt/cni/bin"), *cache.glob("*containernetworking-plugins/usr/lib/cni")):
        if (found / "host-local").is_file():
            return found
    pytest.skip("no host-local: install containernetworking-plugins or build the cluster bed's parts")


class Served:
    """The webhook on a Unix socket."""

    def __init__(self, folder: Path, plugins: Path) -> None:
        self.folder, self.plugins = folder, plugins
        (folder / "profiles").mkdir()
        self.url = f"unix://{folder}/ipam.sock"
        ipam = {"type": "host-local", "dataDir": f"{folder}/data", "ranges": RANGE, "routes": [{"dst": "10.21.0.0/16"}]}
        self.profile("rail0", ipam)

    def profile(self, name: str, ipam: dict[str, Any]) -> None:
        content = {"cniVersion": "1.0.0", "name": name, "ipam": ipam}
        (self.folder / f"profiles/{name}.json").write_text(json.dumps(content))

    def another(self) -> Served:
        """A webhook that takes over where this one stopped."""
        other = copy.copy(self)
        other.url += "2"
        return other

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        ipam = webhook.Ipam(self.folder / "profiles", self.plugins, self.folder / "state")
        server = webhook.server(self.url, ipam)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        with contextlib.closing(http.client.HTTPConnection("localhost", timeout=10)) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(self.url.removeprefix("unix://"))
            sent = body if body is None or isinstance(body, str) else json.dumps(body)
            connection.request(method, path, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
        return answer.status, json.loads(text) if text.startswith("{") else text

    def given(self) -> set[str]:
        """Addresses that host-local has written down."""
        return {path.name for path in (self.folder / "data/rail0").glob("10.*")}


@pytest.fixture
def served(tmp_path: Path, plugins: Path) -> Iterator[Served]:
    made = Served(tmp_path, plugins)
    with made.running():
        yield made


def request(uid: str = "claim-1", device: str = "nic0", profile: str = "rail0", users: int = 1) -> dict[str, Any]:
    pods = [{"resource": "pods", "name": f"worker-{n}", "uid": f"pod-{n}"} for n in range(users)]
    claim = {"metadata": {"namespace": "ml", "name": "c", "uid": uid}, "status": {"reservedFor": pods}}
    return {"device": {"name": device}, "claim_uid": uid, "claim": claim, "config": {"profile": profile}}


def without(body: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in fields}


GET, RELEASE = "/GetProfileConfig", "/ReleaseProfileConfig"
FIRST = {
    "interface": {"addresses": ["10.20.0.10/24"]},
    "routes": [{"destination": "10.21.0.0/16", "gateway": "10.20.0.1"}],
}


def test_lists_its_profiles(served: Served) -> None:
    assert served.ask("GET", "/health") == (200, {"cloudProvider": False, "profileProvider": True})


def test_device_of_a_claim_keeps_its_address_over_a_restart(served: Served) -> None:
    assert served.ask("POST", GET, request()) == (200, FIRST)
    assert served.ask("POST", GET, request()) == (200, FIRST)
    other = served.another()
    with other.running():
        assert other.ask("POST", GET, request()) == (200, FIRST)
    assert served.given() == {"10.20.0.10"}


@pytest.mark.parametrize("other", [request("claim-2"), request(device="nic1")])
def test_claims_and_devices_get_different_addresses(served: Served, other: dict[str, Any]) -> None:
    served.ask("POST", GET, request())
    assert served.ask("POST", GET, other)[1]["interface"] == {"addresses": ["10.20.0.11/24"]}


def test_release_frees_the_address_and_is_idempotent(served: Served) -> None:
    served.ask("POST", GET, request())
    assert [served.ask("POST", RELEASE, request())[0] for _ in range(2)] == [200, 200]
    assert served.given() == set()
    assert not list((served.folder / "state").iterdir())


@pytest.mark.parametrize("form", [("claim",), ("claim_uid",)])
def test_accepts_releases_of_older_and_newer_drivers(served: Served, form: tuple[str]) -> None:
    served.ask("POST", GET, request())
    assert served.ask("POST", RELEASE, without(request(), *form))[0] == 200
    assert served.given() == set()


def test_lost_response_does_not_leak_the_address(served: Served) -> None:
    served.ask("POST", GET, request())
    for kept in (served.folder / "state").iterdir():
        kept.unlink()
    status, answer = served.ask("POST", GET, request())
    assert status == 200 and answer["interface"]["addresses"]
    assert len(served.given()) == 1


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (request(profile="nope"), 404, "no profile is called 'nope'; known are: rail0"),
        (without(request(), "claim", "claim_uid"), 400, "names no claim"),
        (without(request(), "claim"), 400, "exactly one pod, not for 0"),
        (request(users=2), 400, "exactly one pod, not for 2"),
        (request(users=0), 400, "exactly one pod, not for 0"),
        (without(request(), "device"), 400, "names no device"),
        ("[]", 400, "no object"),
        ("{", 400, "not JSON"),
    ],
)
def test_rejects_invalid_requests_with_a_status(served: Served, body: Any, status: int, word: str) -> None:
    found, text = served.ask("POST", GET, body)
    assert (found, word in text) == (status, True), text
    assert served.given() == set()


def test_reports_an_empty_pool_of_the_plugin(served: Served) -> None:
    for number in range(3):
        assert served.ask("POST", GET, request(f"claim-{number}"))[0] == 200
    status, text = served.ask("POST", GET, request("one-too-many"))
    assert status == 500 and "no IP addresses available" in text


def test_reports_a_missing_plugin(served: Served) -> None:
    served.profile("rail1", {"type": "no-such-plugin"})
    other = served.another()
    with other.running():
        status, text = other.ask("POST", GET, request(profile="rail1"))
    assert status == 500 and "no-such-plugin" in text


def test_release_of_an_unknown_profile_succeeds(served: Served) -> None:
    assert served.ask("POST", RELEASE, request(profile="gone"))[0] == 200


def test_plugin_gets_the_pod(tmp_path: Path, plugins: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    script = f'#!/bin/sh\necho "$CNI_COMMAND $CNI_IFNAME $CNI_CONTAINERID $CNI_ARGS" >> {tmp_path}/heard\necho "{{}}"\n'
    (folder / "spy").write_text(script)
    (folder / "spy").chmod(0o755)
    made = Served(tmp_path, folder)
    made.profile("rail0", {"type": "spy"})
    with made.running():
        made.ask("POST", GET, request(device="pci-0000-8a-00-0"))
    *_, asked = (tmp_path / "heard").read_text().splitlines()
    command, interface, container, arguments = asked.split()
    assert (command, container, len(interface)) == ("ADD", "claim-1", 15)
    assert {"K8S_POD_NAMESPACE=ml", "K8S_POD_NAME=worker-0", "K8S_POD_UID=pod-0"} <= set(arguments.split(";"))


@pytest.mark.parametrize(
    ("result", "routes_"),
    [
        ({"ips": [{"address": "10.0.0.2/24"}], "routes": [{"dst": "10.9.0.0/16"}]}, [("10.9.0.0/16", None, 253)]),
        (
            {"ips": [{"address": "fd::2/64", "gateway": "fd::1"}], "routes": [{"dst": "fd:9::/48"}]},
            [("fd:9::/48", "fd::1", None)],
        ),
        (
            {
                "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}],
                "routes": [{"dst": "10.9.0.0/16", "gw": "10.0.0.9"}],
            },
            [("10.9.0.0/16", "10.0.0.9", None)],
        ),
    ],
)
def test_routes_use_their_gateway_the_default_or_the_link(result: Any, routes_: Any) -> None:
    found = webhook.network_config(result)["routes"]
    assert [(route["destination"], route.get("gateway"), route.get("scope")) for route in found] == routes_


def _may_make_namespaces() -> None:
    try:
        Namespace.create().close()
    except NamespaceError as error:
        pytest.skip(f"needs the right to make network namespaces: {error}")


async def test_two_pods_get_and_release_addresses(served: Served) -> None:
    _may_make_namespaces()
    async with bench(start=False) as b:
        b.node.flags += ["--profile-provider=webhook", f"--webhook-url={served.url}"]
        await b.node.start_driver()
        await until(b.published)
        pods = [b.claim(nic, parameters={"profile": "rail0"}) for nic in ("nic0", "nic1")]
        found = set()
        for pod in pods:
            await b.node.start_pod(pod)
            assert pod.netns is not None
            with NetlinkSocket(namespace_fd=pod.netns.fd) as route:
                found |= {a.cidr for a in addresses.list_addresses(route) if a.local.startswith("10.20.")}
                assert "10.21.0.0/16" in [way.destination for way in routes.list_configured_routes(route)]
        assert found == {"10.20.0.10/24", "10.20.0.11/24"}
        for pod in pods:
            await b.node.stop_pod(pod)
        assert served.given() == set()
        with pytest.raises(PrepareError, match="no profile is called 'nope'"):
            await b.node.prepare(b.claim("nic0", parameters={"profile": "nope"}))
