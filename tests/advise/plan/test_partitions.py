"""A NIC that is offered whole or in parts: plans count as the scheduler does."""

from __future__ import annotations

import yaml

from dranet.advise.plan.hardware import hardware_of_slices
from dranet.advise.plan.planning import Plan, plan
from dranet.core.device import Device
from dranet.core.slices import resource_slices
from tests.inputs import claim, manifests, workers

PF = "pci-0000-c1-00-0"


def a_class(name: str, virtual: str) -> str:
    selector = f'device.driver == "dra.net" && device.attributes["dra.net"].isSriovVf == {virtual}'
    made = {
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": selector}}]},
    }
    return yaml.safe_dump({"apiVersion": "resource.k8s.io/v1", **made}) + "---\n"


def planned(first: str, second: str, of_first: int = 1) -> Plan:
    devices = [Device(name=PF, attributes={"dra.net/isSriovVf": False}, consumes={PF: 4})]
    devices += [Device(name=f"{PF}-vf{n}", attributes={"dra.net/isSriovVf": True}, consumes={PF: 1}) for n in range(4)]
    slices = "---\n".join(map(yaml.safe_dump, resource_slices(devices, node="n1")))
    classes = a_class("whole", "false") + a_class("part", "true")
    jobs = [
        claim(f"nic: {first}", name="a") + workers(of_first, "a", name="a"),
        claim(f"nic: {second}", name="b") + workers(1, "b", name="b"),
    ]
    return plan(manifests(classes, *jobs), hardware_of_slices(manifests(slices).checked_slices()))


def test_a_claim_for_the_whole_nic_waits_while_one_virtual_function_is_out() -> None:
    found = planned("part", "whole")
    assert [refusal.pod.name for refusal in found.unschedulable] == ["b-0"]


def test_a_claim_for_a_virtual_function_waits_while_the_whole_nic_is_out() -> None:
    found = planned("whole", "part")
    assert [refusal.pod.name for refusal in found.unschedulable] == ["b-0"]


def test_there_are_as_many_virtual_functions_as_the_nic_has() -> None:
    found = planned("part", "part", of_first=4)
    assert [one.pod.name for one in found.pods] == ["a-0", "a-1", "a-2", "a-3"]
    assert [refusal.pod.name for refusal in found.unschedulable] == ["b-0"]
