"""Workloads become the pods their controllers would make."""

from __future__ import annotations

from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dranet.advise.manifests import gpu_limits, pod_sets, read_files, read_text, to_v1

DOCUMENTS = Path(__file__).parents[2] / "data" / "documents"


def test_gpus_of_all_containers_add_up() -> None:
    spec = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "4", "cpu": "1"}}}] * 2}
    assert gpu_limits(spec) == {"nvidia.com/gpu": 8}


def test_init_containers_run_before_and_sidecars_run_with_the_others() -> None:
    def container(gpus: int, **more: str) -> dict[str, object]:
        return {"resources": {"limits": {"nvidia.com/gpu": gpus}}, **more}

    assert gpu_limits({"initContainers": [container(1), container(3)], "containers": [container(2)]}) == {
        "nvidia.com/gpu": 3
    }
    sidecar = {"initContainers": [container(1, restartPolicy="Always")], "containers": [container(2)]}
    assert gpu_limits(sidecar) == {"nvidia.com/gpu": 3}


def test_the_documents_workers_have_claims_and_gpu_limits() -> None:
    objects, _ = read_files([DOCUMENTS / "5-raycluster.yaml"])
    worker = pod_sets(objects)[1]
    assert ([claim.template for claim in worker.claims], worker.gpu_limits) == (["all-nic"], {"nvidia.com/gpu": 8})


def test_a_v1beta1_template_becomes_v1() -> None:
    (obj,), _ = read_files([DOCUMENTS / "1-template.yaml"])
    (request,) = to_v1(obj.data)["spec"]["spec"]["devices"]["requests"]
    assert request == {
        "name": "rdma-net-interface",
        "exactly": {
            "deviceClassName": "dranet",
            "count": 8,
            "allocationMode": "ExactCount",
            "selectors": [{"cel": {"expression": 'device.attributes["dra.net"].rdma == true'}}],
        },
    }


def test_a_misplaced_config_is_dropped_as_a_lenient_server_does() -> None:
    (obj,), _ = read_files([DOCUMENTS / "3-template.yaml"])
    assert "config" not in to_v1(obj.data)["spec"]["spec"]["devices"]


def test_a_v1beta1_slice_becomes_v1() -> None:
    device = {"name": "a", "basic": {"attributes": {"x": {"int": 1}}}}
    made = to_v1({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSlice", "spec": {"devices": [device]}})
    assert made["spec"]["devices"] == [{"name": "a", "attributes": {"x": {"int": 1}}}]


FIELDS = [
    *("spec", "devices", "requests", "exactly", "firstAvailable", "name", "count", "selectors", "cel", "expression"),
    *("template", "containers", "resources", "limits", "nvidia.com/gpu", "resourceClaims", "basic", "attributes"),
    *("constraints", "config", "opaque", "parameters", "metadata", "replicas", "mpiReplicaSpecs", "workerGroupSpecs"),
]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 50) | st.text("ab/.-", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=20,
)
KINDS = ["Pod", "Job", "MPIJob", "RayCluster", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice"]


@settings(deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from(["v1", "v1beta1", "v9"]), values)
def test_objects_of_any_shape_are_read_without_a_crash(kind: str, version: str, spec: object) -> None:
    raw = {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    objects, _ = read_text(yaml.safe_dump(raw), "f")
    assert [to_v1(obj.data)["kind"] for obj in objects] == [kind]
    assert all(isinstance(spec.names, tuple) for spec in pod_sets(objects))
