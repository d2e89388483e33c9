"""Our idea of the API's limits, and the sandbox's, against the real server's verdict on the same slices.

A limit we miss costs a node all its NICs; one we imagine costs a NIC. So every case is sent to the real API server
as a dry run, and all three must agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dranet.core.device import Device, Taint, Version
from dranet.core.slices import resource_slices, slice_problems
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.config import from_kubeconfig
from dranet.kubernetes.api.errors import Invalid
from dranet.kubernetes.api.resources import RESOURCE_SLICES
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.faults import LocalTransport
from tests.cluster.kubebed import Cluster

TAINT = Taint(key="dra.net/link-down")


def many(count: int, **fields: Any) -> list[Device]:
    return [Device(name=f"d{i}", **fields) for i in range(count)]


def one(name: str = "a", **fields: Any) -> list[Device]:
    return [Device(name=name, **fields)]


def attribute(value: Any, name: str = "dra.net/x") -> list[Device]:
    return one(attributes={name: value})


CASES: dict[str, list[Device]] = {
    "no device": [],
    "one device": one(),
    "128 devices": many(128),
    "129 devices": many(129),
    "64 devices with taints": many(64, taints=(TAINT,)),
    "65 devices, one with a taint": [*many(64), Device(name="x", taints=(TAINT,))],
    "two devices of one name": [*one(), *one()],
    "name in capitals": one("A"),
    "name of 63": one("a" * 63),
    "name of 64": one("a" * 64),
    "name with a dot": one("a.b"),
    "empty name": one(""),
    "32 attributes": one(attributes={f"dra.net/x{i}": i for i in range(32)}),
    "33 attributes": one(attributes={f"dra.net/x{i}": i for i in range(33)}),
    "31 attributes and 2 capacities": one(
        attributes={f"dra.net/x{i}": i for i in range(31)}, capacity={"dra.net/a": "1", "dra.net/b": "2"}
    ),
    "string of 64 bytes": attribute("x" * 64),
    "string of 65 bytes": attribute("x" * 65),
    "33 letters of two bytes": attribute("é" * 33),
    "empty string": attribute(""),
    "largest integer": attribute(2**63 - 1),
    "semantic version": attribute(Version("1.2.3-rc.1+build")),
    "version of two numbers": attribute(Version("1.2")),
    "version with a leading zero": attribute(Version("1.02.3")),
    "identifier of 32": attribute(1, "dra.net/" + "x" * 32),
    "identifier of 33": attribute(1, "dra.net/" + "x" * 33),
    "identifier with a dash": attribute(1, "dra.net/a-b"),
    "identifier that starts with a digit": attribute(1, "dra.net/1a"),
    "no domain": attribute(1, "plain"),
    "domain of 63": attribute(1, "a" * 63 + "/x"),
    "domain of 64": attribute(1, "a" * 32 + "." + "b" * 31 + "/x"),
    "domain with capitals": attribute(1, "Dra.Net/x"),
    "domain with an underscore": attribute(1, "dra_net/x"),
    "empty domain": attribute(1, "/x"),
    "capacity 400G": one(capacity={"dra.net/linkSpeed": "400G"}),
    "capacity 1.5Gi": one(capacity={"dra.net/linkSpeed": "1.5Gi"}),
    "capacity 2e3": one(capacity={"dra.net/linkSpeed": "2e3"}),
    "taint with a value": one(taints=(Taint(key="dra.net/x", value="y", effect="NoExecute"),)),
    "taint of effect None": one(taints=(Taint(key="x", effect="None"),)),
    "taint of unknown effect": one(taints=(Taint(key="x", effect="Sometimes"),)),
    "taint with a space": one(taints=(Taint(key="a b"),)),
    "taint with an empty name": one(taints=(Taint(key="dra.net/"),)),
    "taint value of 64": one(taints=(Taint(key="x", value="y" * 64),)),
    "16 taints": one(taints=tuple(Taint(key=f"k{i}") for i in range(16))),
    "17 taints": one(taints=tuple(Taint(key=f"k{i}") for i in range(17))),
}


@pytest.fixture(scope="module")
def newest(bed: Cluster) -> Cluster:
    """Limits grew over the versions; ours are those of 1.36 and later, the smallest."""
    if tuple(map(int, bed.options.version.removeprefix("v").split(".")[:2])) < (1, 36):
        pytest.skip("older servers have other limits for slices with taints")
    return bed


def verdict(client: Callable[[], KubeClient], item: dict[str, Any]) -> tuple[bool, str]:
    async def ask() -> tuple[bool, str]:
        async with client() as connected:
            try:
                await connected.request("POST", RESOURCE_SLICES.path("v1"), query={"dryRun": "All"}, body=item)
            except Invalid as error:
                return False, str(error)
            return True, "accepted"

    return asyncio.run(ask())


@pytest.mark.parametrize("case", CASES)
def test_all_three_agree(newest: Cluster, case: str) -> None:
    [item, *_] = resource_slices([], node="limits")
    item["spec"]["devices"] = [device.to_api() for device in CASES[case]]
    real, why = verdict(lambda: KubeClient.from_config(from_kubeconfig(newest.layout.kubeconfig)), item)
    sandbox, _ = verdict(lambda: KubeClient(LocalTransport(SandboxApiServer())), item)
    ours = not slice_problems(CASES[case])
    assert (ours, sandbox) == (real, real), why
