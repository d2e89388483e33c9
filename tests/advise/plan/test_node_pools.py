"""Clusters that may grow: how many nodes of which kind."""

from __future__ import annotations

import pytest
import yaml
from click.testing import CliRunner

from dranet.advise.plan.node_pools import PoolSizes, parse_pools, size_pools
from dranet.cli.plan import plan as plan_command
from dranet.cli.shape import shape as shape_command
from dranet.core import attributes as attr
from dranet.core.errors import InvalidInput
from dranet.machines.node_templates import node_template
from dranet.machines.shape import load_shape, shape_names
from dranet.scheduler.allocation.allocator import ClusterDevices
from dranet.scheduler.allocation.outcome import Allocation
from tests.inputs import claim, manifests, shapes, workers

WHOLE = claim("gpu: gpu.nvidia.com 8\nnic: dranet 8")
FOUR = claim("gpu: gpu.nvidia.com 4\nnic: dranet 4")


def grown(text: str, *specs: str, here: str = "") -> PoolSizes:
    _, pools = parse_pools(specs)
    return size_pools(manifests(text), shapes(here) if here else None, pools)[1]


def test_a_job_gets_as_many_nodes_as_it_has_whole_machines() -> None:
    assert grown(WHOLE + workers(5), "a4-highgpu-8g=0..16").nodes == {"a4-highgpu-8g": 5}


def test_two_pods_share_a_node_where_both_fit() -> None:
    assert grown(FOUR + workers(5), "a4-highgpu-8g=0..16").nodes == {"a4-highgpu-8g": 3}


def test_nodes_that_are_there_count() -> None:
    assert grown(WHOLE + workers(3), "a4-highgpu-8g=0..9", here="a4-highgpu-8g=2").nodes == {"a4-highgpu-8g": 1}


def test_a_pool_never_goes_below_its_least() -> None:
    assert grown(WHOLE + workers(1), "a4-highgpu-8g=3..9").nodes == {"a4-highgpu-8g": 3}


def test_every_pool_has_its_size_alone_or_a_reason() -> None:
    found = grown(WHOLE + workers(2), "nd-gb300-v6=0..9", "a3-ultragpu-8g=0..9")
    assert [(one.pool.name, one.nodes) for one in found.alone] == [("nd-gb300-v6", None), ("a3-ultragpu-8g", 2)]
    assert "cannot allocate all claims" in found.alone[0].why_not
    assert found.nodes == {"nd-gb300-v6": 0, "a3-ultragpu-8g": 2}


def test_the_pool_that_needs_fewest_nodes_is_taken() -> None:
    found = grown(FOUR + workers(4), "nd-gb300-v6=0..9", "a4-highgpu-8g=0..9")
    assert found.nodes == {"nd-gb300-v6": 0, "a4-highgpu-8g": 2}


def test_pools_grow_together_where_none_is_enough() -> None:
    found = grown(FOUR + workers(4), "a4-highgpu-8g=0..1", "nd-gb300-v6=0..9")
    assert found.nodes == {"a4-highgpu-8g": 0, "nd-gb300-v6": 4}
    together = grown(FOUR + workers(4), "a4-highgpu-8g=0..1", "nd-gb300-v6=0..2")
    assert (together.nodes, together.waiting) == ({"a4-highgpu-8g": 1, "nd-gb300-v6": 2}, 0)


def test_pods_that_still_wait_at_the_most_are_counted() -> None:
    assert grown(WHOLE + workers(5), "a4-highgpu-8g=0..3").waiting == 2


def test_the_command_prints_the_nodes_needed(tmp_path: object) -> None:
    done = CliRunner().invoke(plan_command, ["-f", "-", "--shape", "a4-highgpu-8g=0..8"], input=WHOLE + workers(3))
    assert done.exit_code == 0 and "nodes needed:\n  a4-highgpu-8g: 3 nodes (0 to 8)" in done.output


@pytest.mark.parametrize("spec", ["a4-highgpu-8g=4..2", "a4-highgpu-8g=0..0", "a4-highgpu-8g=0..999999"])
def test_a_range_that_is_none_is_refused(spec: str) -> None:
    with pytest.raises(InvalidInput, match=r"write NAME=MIN\.\.MAX"):
        parse_pools([spec])


def test_slices_of_a_node_to_come_serve_the_same_claim() -> None:
    """What an autoscaler simulates with must say yes where the node will."""
    done = CliRunner().invoke(shape_command, ["slices", "a4-highgpu-8g", "--node", "n"])
    slices = list(yaml.safe_load_all(done.output))
    spec = {"devices": {"requests": [
        {"name": "gpu", "exactly": {"deviceClassName": "g"}}, {"name": "nic", "exactly": {"deviceClassName": "n"}}],
        "constraints": [{"requests": ["gpu", "nic"], "matchAttribute": attr.PCIE_ROOT}]}}  # fmt: skip
    classes = [
        {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}}
        for name, driver in (("g", "gpu.nvidia.com"), ("n", "dra.net"))
    ]
    wanted = {"metadata": {"namespace": "d", "name": "c"}, "spec": spec}
    assert isinstance(ClusterDevices(slices, classes).allocate({"name": "n", "labels": {}}, [wanted]), Allocation)


@pytest.mark.parametrize("shape", shape_names())
def test_nothing_of_one_boot_is_in_a_template(shape: str) -> None:
    text = yaml.safe_dump_all(node_template(load_shape(shape), "slices"))
    assert not any(name in text for name in ("dra.net/mac:", "dra.net/ipv4", "uuid", "placementGroupId", "subBlock"))


def test_bindings_join_a_gpu_and_the_nics_of_its_root() -> None:
    (made,) = node_template(load_shape("p5.48xlarge"), "karpenter")
    roots = [
        {one["device"] for one in binding["devices"]}
        for binding in made["dynamicResources"]["attributeBindings"]
        if binding["attribute"] == "resource.kubernetes.io/pcieRoot"
    ]
    assert len(roots) == 8 and all(len(devices) == 5 for devices in roots)


def test_a_draconfig_has_one_driver_and_its_devices() -> None:
    made = node_template(load_shape("a4-highgpu-8g"), "draconfig")
    assert {one["spec"]["driver"] for one in made} == {"dra.net", "gpu.nvidia.com"}
    assert all(len(one["spec"]["pools"][0]["resourceSlices"][0]["devices"]) == 8 for one in made)
