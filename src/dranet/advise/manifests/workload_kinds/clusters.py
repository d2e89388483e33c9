"""Clusters and machines inside pods: Slinky's Slurm nodes, Argo's steps, and KubeVirt's virtual machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.workload_kinds.base import FindObject, Made, PodSet, count_of, numbered, spec_of, workload
from dranet.advise.manifests.yaml_nodes import FieldPath
from dranet.core.untyped import as_dict, as_list, get_path

_SLURM_NODE = "nodeset.slinky.slurm.net/name"
_PLACEMENT = ("nodeSelector", "affinity", "tolerations")


def _part(value: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value[key] for key in keys if key in value}


@workload("slinky.slurm.net", "NodeSet")
def slurm_nodes(obj: Object, find: FindObject) -> Iterator[Made]:
    """``set-0`` and on, one a node: the container of ``spec.slurmd`` in the pod of ``spec.template``."""
    spec, path = spec_of(obj), ("spec", "template", "spec")
    template = as_dict(get_path(obj.data, *path))
    slurmd = {"name": "slurmd", **as_dict(spec.get("slurmd"))}
    pod = {**template, "containers": [slurmd, *as_list(template.get("containers"))]}
    labels = {_SLURM_NODE: obj.name}
    if spec.get("oversubscribeNode") is not True:
        pod = _one_per_node(pod, _SLURM_NODE)
    daemon = spec.get("scalingMode") == "DaemonSet"
    names = numbered(obj.name, 1 if daemon else count_of(spec.get("replicas"), 1))
    yield PodSet(obj, obj, path, names, pod, per_node=daemon, added_labels=labels)


def _one_per_node(pod: dict[str, Any], label: str) -> dict[str, Any]:
    term = {
        "labelSelector": {"matchExpressions": [{"key": label, "operator": "Exists"}]},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = as_dict(pod.get("affinity"))
    apart = as_dict(affinity.get("podAntiAffinity"))
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    apart = {**apart, key: [*as_list(apart.get(key)), term]}
    return {**pod, "affinity": {**affinity, "podAntiAffinity": apart}}


@workload("argoproj.io", "Workflow", "WorkflowTemplate", "CronWorkflow")
def argo_workflow(obj: Object, find: FindObject) -> Iterator[Made]:
    """One pod for each template with containers. Its own claims replace those of the workflow."""
    base: FieldPath = ("spec", "workflowSpec") if obj.kind == "CronWorkflow" else ("spec",)
    spec = as_dict(get_path(obj.data, *base))
    note = "each template is planned once; the order and number of steps are not considered"
    for i, one in enumerate(map(as_dict, as_list(spec.get("templates")))):
        containers = _argo_containers(one)
        if containers:
            claims = one.get("resourceClaims") or spec.get("resourceClaims") or []
            pod = {**_part(spec, _PLACEMENT), **_part(one, (*_PLACEMENT, "initContainers"))}
            pod |= {"resourceClaims": claims, "containers": containers}
            name = str(one.get("name") or i)
            yield PodSet(
                obj, obj, (*base, "templates", i), (f"{obj.name}-{name}",), pod, name, note=note, job=name, built=True
            )


def _argo_containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    many = as_list(as_dict(template.get("containerSet")).get("containers"))
    one = as_dict(template.get("container")) or as_dict(template.get("script"))
    main = [{"name": "main", **one}] if one else [as_dict(raw) for raw in many]
    return [*main, *map(as_dict, as_list(template.get("sidecars")))] if main else []


@workload("kubevirt.io", "VirtualMachineInstance", "VirtualMachine")
def virtual_machine(obj: Object, find: FindObject) -> Iterator[Made]:
    """One virt-launcher pod, whose container names the claims of the machine's devices."""
    base: FieldPath = ("spec",) if obj.kind == "VirtualMachineInstance" else ("spec", "template", "spec")
    spec = as_dict(get_path(obj.data, *base))
    devices = as_dict(get_path(spec, "domain", "devices"))
    named = [as_dict(raw) for key in ("gpus", "hostDevices") for raw in as_list(devices.get(key))]
    claims = [
        {"name": one["claimName"], **({"request": one["requestName"]} if "requestName" in one else {})}
        for one in named
        if one.get("claimName")
    ]
    compute = {"name": "compute", "resources": {"claims": claims}}
    pod = _part(spec, (*_PLACEMENT, "resourceClaims")) | {"containers": [compute]}
    yield PodSet(obj, obj, base, (f"virt-launcher-{obj.name}",), pod, built=True)
