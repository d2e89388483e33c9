"""Document 5's RayCluster for a bed: our image, small pods, gloo in place of NCCL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cluster.workloads.jobs import example
from tests.cluster.workloads.ray_image import RAY_VERSION, REFERENCE

Manifest = dict[str, Any]
SCRIPT = Path(__file__).with_name("ray_all_reduce.py")
SMALL = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "3Gi"}}


def ray_program() -> Manifest:
    """The all-reduce, for pods to mount at /job."""
    data = {SCRIPT.name: SCRIPT.read_text("utf-8")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ray-job"}, "data": data}


def ray_cluster() -> Manifest:
    """The example's cluster; which links its workers' collectives take is said by their claims."""
    cluster = example("5-gke-ray/raycluster.yaml", "RayCluster")
    spec = cluster["spec"]
    spec["rayVersion"] = RAY_VERSION
    head, (group,) = spec["headGroupSpec"], spec["workerGroupSpecs"]
    head["rayStartParams"]["num-cpus"] = "0"  # Actors belong on the workers.
    group["rayStartParams"] = {"num-cpus": "1"}
    _small(head["template"]["spec"])
    _small(group["template"]["spec"])
    return cluster


def _small(spec: Manifest) -> None:
    spec["volumes"] = [{"name": "job", "configMap": {"name": "ray-job"}}]
    spec["terminationGracePeriodSeconds"] = 1
    (container,) = spec["containers"]
    claims = (container.get("resources") or {}).get("claims")
    container.update(image=REFERENCE, imagePullPolicy="Never", resources=SMALL | ({"claims": claims} if claims else {}))
    container["volumeMounts"] = [{"name": "job", "mountPath": "/job"}]
    container.pop("env", None)  # Settings for GPUs.
