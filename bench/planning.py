"""How many pods a second `dranet plan` places, and how that grows with the cluster.

One PCIe root for a GPU and a card each, and whole machines of eight and eight, on nodes of an a4-highgpu-8g. Includes
building the index over all slices; excludes reading files. kube-scheduler with the same pods on a machine like this one
places 67 and 41 pods a second.
"""

from __future__ import annotations

import gc
import resource
import time
from typing import Any

from dranet.manifests.claim_views import world_of
from dranet.manifests.reading import read_text
from dranet.predict.hardware import hardware_of_shapes
from dranet.predict.planning import plan
from dranet.topology.shape_devices import nodes_of

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
    """Pods a second for both kinds of pods on 10, 200 and 1,000 nodes, and resident memory afterwards."""
    rows = [_row(nodes, count) for nodes in (10, 200, 1000) for count in (1, 8)]
    return {"rows": rows, "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def _row(nodes: int, count: int) -> dict[str, Any]:
    hardware = hardware_of_shapes(nodes_of([f"{SHAPE}={nodes}"]))
    pods = nodes * 8 // count
    text = TEXT.format(count=count, pods=pods, constraint=CONSTRAINT if count == 1 else "")
    world = world_of(read_text(text, "bench.yaml")[0])
    gc.collect()  # or a row would pay for the garbage of those before it
    start = time.process_time()
    found = plan(world, hardware)
    seconds = time.process_time() - start
    assert len(found.pods) == pods, f"{len(found.unschedulable)} pods were refused"
    return {"nodes": nodes, "pods": pods, "devices_each": 2 * count, "pods_per_cpu_second": round(pods / seconds)}
