"""How many pods a second `dranet plan` places, and how that grows with the cluster.

One PCIe root for a GPU and a NIC each, and whole machines of eight and eight, on nodes of an a4-highgpu-8g. Includes
building the index over all slices; excludes reading files. kube-scheduler with the same pods on a machine like this one
places 67 and 41 pods a second. The dumps are whole: from the text to the JSON, each pod with a claim of its own.
"""

from __future__ import annotations

import gc
import json
import resource
import time
from typing import Any

import msgspec
import yaml

from dranet.advise.lint import ERROR, WARNING, lint_manifests
from dranet.advise.manifests import Manifests, read_text
from dranet.advise.plan.hardware import hardware_of_shapes, hardware_of_slices
from dranet.advise.plan.planning import plan
from dranet.advise.plan.render import plan_json
from dranet.machines.shape_devices import expand_shape_specs, shape_slices

SHAPE = "a4-highgpu-8g"
CONSTRAINT = "      constraints: [{requests: [gpu, nic], matchAttribute: resource.kubernetes.io/pcieRoot}]\n"
TEXT = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: t}}
spec:
  spec:
    devices:
      requests:
      - {{name: gpu, exactly: {{deviceClassName: gpu.nvidia.com, count: {count}}}}}
      - {{name: nic, exactly: {{deviceClassName: dranet, count: {count}}}}}
{constraint}---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: s}}
spec:
  replicas: {pods}
  template: {{spec: {{resourceClaims: [{{name: d, resourceClaimTemplateName: t}}]}}}}
"""


def measure() -> dict[str, Any]:
    """Pods a second for both kinds of pods on 10, 200 and 1,000 nodes, and resident memory afterwards; then whole
    dumps, from the file to the JSON."""
    rows = [_row(nodes, count) for nodes in (10, 200, 1000) for count in (1, 8)]
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    dumps = [_dump_row(nodes, same) for same in (True, False) for nodes in (50, 100, 200, 400)]
    return {"rows": rows, "resident_mb": resident, "dumps": dumps, "lint": _lint_row()}


def dump(nodes: int, pods: int, same: bool) -> str:
    """What `kubectl get -o json` would print: slices and nodes, and pods each with a claim of its own. The claims ask
    for the same, or each in other words."""
    items: list[dict[str, Any]] = []
    for name, shape, index in expand_shape_specs([f"{SHAPE}={nodes}"]):
        items += [*shape_slices(shape, name, index), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}]
    for i in range(pods):
        items += [_own_claim(i, same), _pod(i)]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _own_claim(i: int, same: bool) -> dict[str, Any]:
    more = "" if same else f' && device.attributes["dra.net"].mtu > -{i}'
    text = 'device.attributes["dra.net"].rdma == true' + more
    exact = {"deviceClassName": "dranet", "selectors": [{"cel": {"expression": text}}]}
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}, {"name": "nic", "exactly": exact}]
    together = {"requests": ["gpu", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"c-{i}", "namespace": "default"},
        "spec": {"devices": {"requests": requests, "constraints": [together]}},
    }


def _pod(i: int) -> dict[str, Any]:
    security = {"capabilities": {"add": ["IPC_LOCK"]}}
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "d"}]}, "securityContext": security}
    spec = {"containers": [container], "resourceClaims": [{"name": "d", "resourceClaimName": f"c-{i}"}]}
    metadata = {"name": f"p-{i}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _dump_row(nodes: int, same: bool) -> dict[str, Any]:
    """End to end as `dranet plan -o json` does it: reading, lint of what it shows, planning, JSON."""
    pods = nodes * 8
    text = dump(nodes, pods, same)
    gc.collect()
    start = time.process_time()
    manifests = Manifests(read_text(text, "dump.json")[0])
    hardware = hardware_of_slices(manifests.checked_slices())
    lint_manifests(manifests, (), hardware, severities=(ERROR, WARNING))
    found = plan(manifests, hardware)
    msgspec.json.format(msgspec.json.encode(plan_json(found)), indent=2)
    seconds = time.process_time() - start
    assert len(found.pods) == pods, f"{len(found.unschedulable)} pods were refused"
    claims = "equal" if same else "each in other words"
    return {"nodes": nodes, "pods": pods, "own_claims": claims, "pods_per_cpu_second": round(pods / seconds)}


def _lint_row() -> dict[str, Any]:
    """A manifest of 5 MB, as YAML."""
    pairs = (f"{yaml.safe_dump(_own_claim(i, True))}---\n{yaml.safe_dump(_pod(i))}---\n" for i in range(6300))
    text = "".join(pairs)
    hardware = hardware_of_shapes(expand_shape_specs([SHAPE]))
    gc.collect()
    start = time.process_time()
    objects, problems = read_text(text, "large.yaml")
    lint_manifests(Manifests(objects), problems, hardware)
    seconds = time.process_time() - start
    return {"mb": round(len(text) / 1e6, 1), "objects": len(objects), "cpu_seconds": round(seconds, 2)}


def _row(nodes: int, count: int) -> dict[str, Any]:
    hardware = hardware_of_shapes(expand_shape_specs([f"{SHAPE}={nodes}"]))
    pods = nodes * 8 // count
    text = TEXT.format(count=count, pods=pods, constraint=CONSTRAINT if count == 1 else "")
    manifests = Manifests(read_text(text, "bench.yaml")[0])
    gc.collect()  # or a row would pay for the garbage of those before it
    start = time.process_time()
    found = plan(manifests, hardware)
    seconds = time.process_time() - start
    assert len(found.pods) == pods, f"{len(found.unschedulable)} pods were refused"
    return {"nodes": nodes, "pods": pods, "devices_each": 2 * count, "pods_per_cpu_second": round(pods / seconds)}
