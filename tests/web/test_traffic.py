"""What goes through the NICs, as their driver counts it behind the API server's proxy; a reason where it is unknown."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dranet.core.errors import InvalidInput
from dranet.core.http import Request
from dranet.kubernetes.api import resources
from dranet.kubernetes.api.client import KubeClient
from dranet.node.health.readings import DeviceReading
from dranet.node.server.metrics import DeviceCounters, Owner
from dranet.testing.apiserver import Response, SandboxApiServer, json_response
from dranet.testing.faults import LocalTransport
from dranet.web import LiveSource, serving
from dranet.web.traffic import DEFAULT_PORT, parse_counters

from .browser import Browser
from .lab import Lab
from .test_server import a_cluster, ask

WAY = "/api/v1/namespaces/kube-system/pods/dranet-x1:{}/proxy/metrics"
GIGABYTE = 10**9


def driver_pod(node: str, name: str = "dranet-x1", phase: str = "Running", port: int | None = None) -> dict[str, Any]:
    probe = {"readinessProbe": {"httpGet": {"path": "/readyz", "port": port}}} if port else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": {"app.kubernetes.io/name": "dranet"},
            "ownerReferences": [{"kind": "DaemonSet", "name": "dranet", "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "dranet", **probe}]},
        "status": {"phase": phase},
    }


class Driver:
    """The counters of a real driver, with NICs and a clock of the test's own: each time it is asked, it has looked
    again, three seconds later."""

    def __init__(self, *nics: tuple[str, str]) -> None:
        self._nics = nics
        self._looks = 0
        self._counters = DeviceCounters()
        self._counters.owners = lambda: {claim: Owner("default", "worker", claim) for _, claim in nics}

    def text(self) -> str:
        self._looks += 1
        self._counters.readings = [self._nic(device, claim) for device, claim in self._nics]
        return self._counters.text()

    def _nic(self, device: str, claim: str) -> DeviceReading:
        n = self._looks
        traffic = {"rx_bytes": 3 * n * GIGABYTE, "tx_bytes": 0, "port_rcv_data": 15 * n * GIGABYTE // 4}
        return DeviceReading(
            device=device, at=3.0 * n, claim=claim, traffic=traffic, counters={"symbol_error": 2 * n, "link_downed": 7}
        )


class Proxy(LocalTransport):
    """An API server that also hands on what a driver answers at one place."""

    def __init__(self, api: SandboxApiServer, way: str, answer: Callable[[], Response]) -> None:
        super().__init__(api)
        self.way, self.answer = way, answer

    async def open(self, request: Request) -> Response:
        if request.target == self.way:
            return self.answer()
        return await super().open(request)


@contextlib.asynccontextmanager
async def page(
    api: SandboxApiServer, answer: Callable[[], Response], port: int = DEFAULT_PORT, way: str = ""
) -> AsyncIterator[Callable[[], Any]]:
    """A page over this cluster; how to ask it for the traffic of its first node."""
    client = KubeClient(Proxy(api, way or WAY.format(port), answer))
    async with serving(LiveSource("test", client)) as url:
        at = int(url.rstrip("/").rpartition(":")[2])

        async def traffic() -> tuple[int, str]:
            while True:
                status, answered = await ask(at, "/traffic?node=node-0")
                if not answered.endswith("live cluster\n"):
                    return status, answered.partition("\r\n\r\n")[2]
                await asyncio.sleep(0.02)  # the slices are still being read

        yield traffic


def plain(text: str) -> Response:
    return Response(200, text.encode(), {"content-type": "text/plain"})


async def test_counters_come_by_nic_and_claim_with_the_time_of_the_look() -> None:
    api, driver = a_cluster(), Driver(("nic0", "nics"))
    api.put(resources.PODS, driver_pod("node-0"))
    async with page(api, lambda: plain(driver.text())) as traffic:
        first, second = [json.loads((await traffic())[1]) for _ in range(2)]
    assert second["at"] - first["at"] == pytest.approx(3.0, abs=0.1)
    assert first["nics"] == [
        {
            "device": "nic0",
            "claim": "default/nics",
            "receive": {"interface": 3 * GIGABYTE, "rdma": 15 * GIGABYTE},
            "transmit": {"interface": 0},
            "errors": {"symbol_error": 2, "link_downed": 7},
            "drops": {},
            "congestion": {},
        }
    ]


async def test_a_driver_on_another_port_is_asked_where_the_kubelet_asks_it() -> None:
    api = a_cluster()
    api.put(resources.PODS, driver_pod("node-0", port=9200))
    async with page(api, lambda: plain(Driver(("nic0", "nics")).text()), port=9200) as traffic:
        assert (await traffic())[0] == 200


@pytest.mark.parametrize(
    "pods", [[], [driver_pod("node-1")], [driver_pod("node-0", phase="Failed")]], ids=["none", "elsewhere", "ended"]
)
async def test_a_node_without_a_running_driver_is_said_to_have_none(pods: list[dict[str, Any]]) -> None:
    api = a_cluster()
    for pod in pods:
        api.put(resources.PODS, pod)
    async with page(api, lambda: plain("")) as traffic:
        status, said = await traffic()
    assert status == 404
    assert "no running pod of a DaemonSet with the label app.kubernetes.io/name=dranet on node-0" in said


def labelled(namespace: str, **owner: Any) -> dict[str, Any]:
    """A pod of another user with the driver's label."""
    pod = driver_pod("node-0")
    metadata = {**pod["metadata"], "namespace": namespace, "ownerReferences": [owner] if owner else []}
    return {**pod, "metadata": metadata}


@pytest.mark.parametrize(
    "pod",
    [
        labelled("tenant", kind="DaemonSet", name="dranet", controller=True),
        labelled("kube-system"),
        labelled("kube-system", kind="ReplicaSet", name="x", controller=True),
    ],
    ids=["another namespace", "no owner", "another owner"],
)
async def test_pods_that_only_have_the_label_are_not_asked(pod: dict[str, Any]) -> None:
    api = a_cluster()
    api.put(resources.PODS, pod)
    asked: list[str] = []

    def answer() -> Response:
        asked.append("asked")
        return plain(Driver(("nic0", "nics")).text())

    way = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/dranet-x1:{DEFAULT_PORT}/proxy/metrics"
    async with page(api, answer, way=way) as traffic:
        assert (await traffic())[0] == 404
    assert asked == []


async def test_an_endless_answer_is_cut_off() -> None:
    api = a_cluster()
    api.put(resources.PODS, driver_pod("node-0"))
    async with page(api, lambda: plain("x" * (9 << 20))) as traffic:
        status, said = await traffic()
    assert status == 404
    assert "more than 8388608 bytes" in said


async def test_an_account_that_may_not_ask_drivers_is_told_so() -> None:
    api = a_cluster()
    api.put(resources.PODS, driver_pod("node-0"))
    refusal = {"kind": "Status", "reason": "Forbidden", "message": 'pods "dranet-x1" is forbidden', "code": 403}
    async with page(api, lambda: json_response(refusal, 403)) as traffic:
        status, said = await traffic()
    assert status == 404
    assert "may not read the driver" in said and 'pods "dranet-x1" is forbidden' in said


async def test_a_driver_that_was_replaced_is_looked_for_again() -> None:
    api, gone = a_cluster(), [True]
    api.put(resources.PODS, driver_pod("node-0"))
    missing = {"kind": "Status", "reason": "NotFound", "message": 'pods "dranet-x1" not found', "code": 404}
    driver = Driver(("nic0", "nics"))
    async with page(api, lambda: json_response(missing, 404) if gone[0] else plain(driver.text())) as traffic:
        status, said = await traffic()
        assert status == 404 and "cannot read the metrics of the driver on node-0" in said
        gone[0] = False
        assert (await traffic())[0] == 200


async def test_only_nodes_that_are_shown_can_be_asked_for() -> None:
    async with serving(LiveSource("test", KubeClient(LocalTransport(a_cluster())))) as url:
        status, said = await ask(int(url.rstrip("/").rpartition(":")[2]), "/traffic?node=elsewhere,spec.x=y")
    assert status == 404 and "not a node" in said


def test_a_driver_without_nics_is_said_to_have_none() -> None:
    with pytest.raises(InvalidInput, match="no PCI or RDMA device"):
        parse_counters(DeviceCounters().text())


def test_a_driver_that_tells_no_time_of_its_look_gives_no_rates() -> None:
    with pytest.raises(InvalidInput, match="older than this page"):
        parse_counters("dranet_driver_nri_plugin_requests_total 1\n")


NODE = "nd-gb300-v6-0"
GB300 = ("4-aks-gb300/claims.yaml", "4-aks-gb300/unaligned.yaml", "4-aks-gb300/mpijob.yaml")


def two_machines(cluster: Lab) -> None:
    """With a pod of the driver on the first."""
    cluster.machines("nd-gb300-v6=2")
    cluster.api.put(resources.PODS, driver_pod(NODE))


def claimed_nics(cluster: Lab) -> list[tuple[str, str]]:
    """NICs that pods have on that node, and the claim of each."""
    return [
        (result["device"], claim["metadata"]["name"])
        for claim in cluster.api.objects(resources.RESOURCE_CLAIMS)
        for result in claim["status"]["allocation"]["devices"]["results"]
        if (result["driver"], result["pool"]) == ("dra.net", NODE)
    ]


def drivers_answer(cluster: Lab, driver: Driver) -> None:
    """From now on the lab's API server hands on what this driver tells."""
    through = cluster.line.open

    async def open_(request: Request) -> Response:
        return plain(driver.text()) if request.target == WAY.format(DEFAULT_PORT) else await through(request)

    cluster.line.open = open_  # type: ignore[method-assign]


def test_the_page_draws_throughput_and_errors_of_each_nic_as_they_come(window: Browser, cluster: Lab) -> None:
    cluster.call(lambda: two_machines(cluster))
    cluster.do(cluster.run(GB300, template="1nic-aligned"))
    nics = claimed_nics(cluster)
    cluster.call(lambda: drivers_answer(cluster, Driver(*nics)))
    window.open(cluster.url)
    window.wait("state.holders.size >= 2")
    window.run("pick({node: arguments[0]})", NODE)
    window.wait(f"document.querySelectorAll('#traffic .flow svg').length === {len(nics)}")
    assert nics and window.value("document.querySelector('#traffic .flow').dataset.device") in dict(nics)
    said = window.text("#traffic .flow")
    assert "in 8 Gbit/s + 40 Gbit/s RDMA · out 0 bit/s" in said
    assert "⚠ symbol_error +" in said and "link_downed" not in said, "what was there before is no news"


def test_where_the_driver_cannot_be_asked_the_page_says_why(window: Browser, cluster: Lab) -> None:
    cluster.call(lambda: cluster.machines("nd-gb300-v6=2"))
    window.open(cluster.url)
    window.wait("state.nodes.size === 2")
    window.run("pick({node: arguments[0]})", NODE)
    window.wait("document.querySelector('#traffic').innerText.includes('no running pod of a DaemonSet')")
