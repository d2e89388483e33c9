"""Explanations: what rules devices out, the smallest change that helps, and better devices that were free."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dranet.manifests.explain_text import to_json, to_text
from dranet.manifests.explaining import Explanation, explain, explain_held
from dranet.manifests.planning import plan
from dranet.manifests.views import World
from dranet.model.errors import InvalidInput

from .conftest import claim, shapes, workers, world  # type: ignore[import-not-found]

DOCUMENTS = Path(__file__).parent.parent / "data" / "documents"
ROOT = "resource.kubernetes.io/pcieRoot"


def one(found: World, *specs: str) -> Explanation:
    (explained,) = explain(found, shapes(*specs))
    return explained


def test_an_attribute_one_driver_lacks_is_the_reason() -> None:
    found = one(world(claim("gpu: gpu.nvidia.com\nnic: dranet", f"gpu, nic: {ROOT}")), "nd-gb300-v6")
    (node,) = found.nodes
    assert node.summary == f"request nic needs 1, 0 fit: 4 ruled out by constraint (has no attribute {ROOT})"


def test_the_smallest_change_comes_first_and_really_fits() -> None:
    text = claim("gpu: gpu.nvidia.com 3\nnic: dranet", f"gpu, nic: {ROOT}")
    found = one(world(text), "a4-highgpu-8g")
    assert [change.text for change in found.changes] == [
        f"take out the constraint on {ROOT}",
        "lower the count of request gpu to 2",
    ]
    assert len(plan(world(text.replace("count: 3", "count: 2")), shapes("a4-highgpu-8g")).pods) == 1


def test_two_changes_are_found_where_one_is_not_enough() -> None:
    found = one(world(claim("gpu: gpu.nvidia.com 9\nnic: dranet 9")), "a4-highgpu-8g")
    assert [change.text for change in found.changes] == [
        "lower the count of request gpu to 8 and lower the count of request nic to 8"
    ]


def test_devices_in_use_are_a_reason_and_waiting_is_a_change() -> None:
    sources = claim("nic: dranet 8"), workers(2)
    first, second = explain(world(*sources), shapes("a4-highgpu-8g"))
    assert first.placed is not None
    assert "8 ruled out by in use" in second.nodes[0].summary
    assert "wait until devices in use are free again" in [change.text for change in second.changes]


def test_a_selector_is_quoted_with_what_it_said() -> None:
    text = "'device.attributes[\"dra.net\"].numaNode == 7'"
    own = claim("nic: dranet").replace("dranet}", f"dranet, selectors: [{{cel: {{expression: {text}}}}}]}}")
    found = one(world(own), "a4-highgpu-8g")
    ruled_out = [device for device in found.nodes[0].requests[0].devices if device.rule == "selector #0"]
    assert len(ruled_out) == 8
    assert ruled_out[0].detail == 'device.attributes["dra.net"].numaNode == 7: is false'


def test_a_tainted_device_is_named_and_a_toleration_offered() -> None:
    hardware = shapes("a4-highgpu-8g")
    for device in hardware.slices[0]["spec"]["devices"]:
        device["taints"] = [{"key": "dra.net/link-down", "effect": "NoSchedule"}]
    (found,) = explain(world(claim("nic: dranet")), hardware)
    assert "taint (dra.net/link-down:NoSchedule)" in found.nodes[0].summary
    assert [change.text for change in found.changes] == ["tolerate the devices' taints"]


def test_alike_nodes_are_reported_once() -> None:
    found = one(world(claim("gpu: gpu.nvidia.com 9")), "a4-highgpu-8g=50")
    assert [len(node.nodes) for node in found.nodes] == [50]


def test_too_few_gpus_of_a_device_plugin_are_counted() -> None:
    (found,) = explain(world(claim("nic: dranet"), workers(1, limits="nvidia.com/gpu: 9")), shapes("a4-highgpu-8g"))
    assert found.nodes[0].summary == "Insufficient nvidia.com/gpu: 9 wanted, 8 free"


def test_a_broken_claim_has_its_syntax_error_as_reason() -> None:
    (found,) = explain(world(DOCUMENTS / "2-template-nic.yaml"), shapes("a4-highgpu-8g"))
    assert "Syntax error: missing ')'" in found.reason
    assert (found.nodes, found.changes) == ((), ())


def test_better_devices_that_were_free_are_named() -> None:
    found = one(world(DOCUMENTS / "4-1nic-unaligned.yaml"), "nd-gb300-v6")
    assert found.better is not None
    names, quality = found.better
    assert (names, str(quality.alignment.worst)) == (("gpu-0", "pci-0101-00-00-0"), "NODE")


def test_the_best_devices_have_no_better() -> None:
    assert one(world(DOCUMENTS / "4-1nic-aligned.yaml"), "nd-gb300-v6").better is None


def test_devices_passed_over_are_those_before_the_pick() -> None:
    found = one(world(DOCUMENTS / "4-1nic-unaligned.yaml"), "nd-gb300-v6")
    passed = {
        device.device for report in found.passed_over for device in report.devices if device.rule == "selector #0"
    }
    assert passed == {"dra.net/pci-0101-00-00-0", "dra.net/pci-0102-00-00-0"}


HELD = claim("gpu: gpu.nvidia.com\nnic: dranet", kind="ResourceClaim", name="held").removesuffix("---\n") + (
    "status: {allocation: {devices: {results: ["
    "{request: gpu, driver: gpu.nvidia.com, pool: nd-gb300-v6-0, device: gpu-0},"
    "{request: nic, driver: dra.net, pool: nd-gb300-v6-0, device: pci-0104-00-00-0}]}}}\n"
)


def test_a_claim_of_a_cluster_is_explained_with_what_is_free_now() -> None:
    found = explain_held(world(HELD), shapes("nd-gb300-v6"), "", "held")
    assert found.placed is not None and str(found.placed.quality.alignment.worst) == "SYS"
    assert found.better is not None and found.better[0][1] == "pci-0101-00-00-0"


@pytest.mark.parametrize(("name", "message"), [("nobody", "no ResourceClaim"), ("idle", "not allocated")])
def test_a_claim_that_cannot_be_explained_is_refused(name: str, message: str) -> None:
    idle = claim("nic: dranet", kind="ResourceClaim", name="idle")
    with pytest.raises(InvalidInput, match=message):
        explain_held(world(idle), shapes("nd-gb300-v6"), "default", name)


def test_text_and_json_tell_of_every_pod() -> None:
    found = explain(world(claim("nic: dranet 8"), workers(2)), shapes("a4-highgpu-8g"))
    made = to_json(found)
    assert [pod["verdict"] for pod in made["pods"]] == ["allocated", "impossible"]
    assert json.dumps(made)
    assert "w-0: on a4-highgpu-8g-0" in to_text(found) and "w-1: cannot be placed" in to_text(found)
