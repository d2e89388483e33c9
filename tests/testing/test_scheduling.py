"""Controllers and scheduler of the sandbox: the objects that they write to the API server."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dranet.advise.manifests import must_read, read_text
from dranet.core.errors import NotFound
from dranet.kubernetes.api import resources
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.http import Transport
from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import shape_slices
from dranet.testing import controllers
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.faults import LocalTransport
from dranet.testing.running import allocated_devices
from dranet.testing.scenarios import SCENARIOS, example_files, select_scenarios
from dranet.testing.scheduler import Scheduler, Unschedulable

TOO_MANY = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: nine}
spec: {spec: {devices: {requests: [{name: nic, exactly: {deviceClassName: dranet, count: 9}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  containers: [{name: main, image: x}]
  resourceClaims: [{name: nics, resourceClaimTemplateName: nine}]
"""


class World:
    """An API server with the objects of two machines."""

    def __init__(self, shape: str = "a4-highgpu-8g") -> None:
        self.api = SandboxApiServer()
        self.client = KubeClient(cast(Transport, LocalTransport(self.api)))
        self.scheduler = Scheduler(self.client)
        for index in range(2):
            self.api.put(resources.NODES, {"metadata": {"name": f"node-{index}"}})
            for made in shape_slices(load_shape(shape), f"node-{index}", index):
                self.api.put(resources.RESOURCE_SLICES, made)

    async def schedule(self, scenario: str, stage: int = 0) -> list[dict[str, Any]]:
        found = select_scenarios((scenario,))[0].stages[stage]
        pods = await controllers.apply(self.client, must_read(example_files(found)), template=found.template)
        return [await self.scheduler.schedule(pod) for pod in pods]

    def claim(self, pod: dict[str, Any]) -> dict[str, Any]:
        (name,) = controllers.claim_names(pod).values()
        found = self.api.find(resources.RESOURCE_CLAIMS, name, "default")
        assert found is not None
        return found


async def test_a_claim_from_a_template_belongs_to_its_pod() -> None:
    world = World()
    pod, _ = await world.schedule("nvidia-dra")
    claim = world.claim(pod)["metadata"]
    assert claim["name"].startswith("nccl-gib-test-0-devices-")
    assert claim["annotations"] == {"resource.kubernetes.io/pod-claim-name": "devices"}
    assert [(o["kind"], o["uid"]) for o in claim["ownerReferences"]] == [("Pod", pod["metadata"]["uid"])]


async def test_the_choice_is_written_into_claim_and_pod() -> None:
    world = World()
    pod, _ = await world.schedule("nvidia-dra")
    claim = world.claim(pod)
    assert [item.device for item in allocated_devices(claim)] == [
        "gpu-0",
        "gpu-1",
        "pci-0000-91-00-0",
        "pci-0000-92-00-0",
    ]
    assert claim["status"]["reservedFor"] == [
        {"resource": "pods", "name": "nccl-gib-test-0", "uid": pod["metadata"]["uid"]}
    ]
    assert pod["spec"]["nodeName"] == claim["status"]["allocation"]["devices"]["results"][0]["pool"] == "node-0"


async def test_parameters_of_the_claim_reach_the_driver() -> None:
    world = World("a3-ultragpu-8g")
    _, worker, _ = await world.schedule("mpi")
    (config,) = world.claim(worker)["status"]["allocation"]["devices"]["config"]
    asked = {"environment": ["mpi"], "interface": {"name": "dranet0"}}
    assert (config["source"], config["opaque"]["parameters"]) == ("FromClaim", asked)


async def test_pods_of_a_workload_spread_and_no_device_is_given_twice() -> None:
    world = World()
    pods = await world.schedule("gke-rdma", stage=1)
    assert [pod["spec"]["nodeName"] for pod in pods] == ["node-0", "node-1", "node-0", "node-1"]
    held = [(item.pool, item.device) for pod in pods for item in allocated_devices(world.claim(pod))]
    assert len(held) == len(set(held)) == 32


async def test_a_pod_that_fits_nowhere_shows_why_for_every_machine() -> None:
    world = World()
    objects, problems = read_text(TOO_MANY, "greedy.yaml")
    assert not problems
    (pod,) = await controllers.apply(world.client, objects)
    with pytest.raises(Unschedulable, match=r"greedy does not fit on any machine: 0/2 nodes are available: 2 cannot"):
        await world.scheduler.schedule(pod)


async def test_missing_template_is_an_error() -> None:
    world = World()
    objects, _ = read_text(TOO_MANY, "greedy.yaml")
    with pytest.raises(NotFound, match="no ResourceClaimTemplate ten; known: nine"):
        await controllers.apply(world.client, objects, template="ten")


async def test_withdraw_deletes_all_objects_of_the_scenario() -> None:
    world = World()
    pods = await world.schedule("ray")
    await controllers.withdraw(world.client, pods)
    kinds = (
        resources.PODS,
        resources.RESOURCE_CLAIMS,
        resources.RESOURCE_CLAIM_TEMPLATES,
        resources.DEVICE_CLASSES,
    )
    assert [world.api.objects(kind) for kind in kinds] == [[], [], [], []]


@pytest.mark.parametrize("scenario", [scenario.name for scenario in SCENARIOS])
async def test_every_scenario_fits_on_its_machines(scenario: str) -> None:
    selected = select_scenarios((scenario,))[0]
    for stage in range(len(selected.stages)):
        world = World(selected.shape)
        pods = await world.schedule(scenario, stage)
        workers = [pod for pod in pods if controllers.claim_names(pod)]
        nics = [[i for i in allocated_devices(world.claim(pod)) if i.driver == "dra.net"] for pod in workers]
        assert {len(found) for found in nics} == {selected.stages[stage].nics}


def test_unknown_scenario_lists_the_known_ones() -> None:
    with pytest.raises(NotFound, match="no scenario nosuch; choose from gke-rdma, nvidia-dra, mpi, aks-gb300, ray"):
        select_scenarios(("nosuch",))


def test_scenarios_keep_the_given_order_without_duplicates() -> None:
    assert [scenario.name for scenario in select_scenarios(("ray", "mpi", "ray"))] == ["ray", "mpi"]
