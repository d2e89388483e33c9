"""The users' manifests, from `examples/`, changed only where a bed differs: images, commands, no files of GPU nodes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.kubebed.debian import MPI

Manifest = dict[str, Any]
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SCRIPT = Path(__file__).with_name("all_reduce.py")
MPIRUN = "mpirun --allow-run-as-root -bind-to none -mca btl tcp,self"


def example(path: str, kind: str, name: str | None = None) -> Manifest:
    """One object of an example."""
    objects = list(yaml.safe_load_all((EXAMPLES / path).read_text("utf-8")))
    (found,) = [obj for obj in objects if obj["kind"] == kind and (name is None or obj["metadata"]["name"] == name)]
    return copy.deepcopy(found)


def program() -> Manifest:
    """The all-reduce, for pods to mount at /job."""
    data = {SCRIPT.name: SCRIPT.read_text("utf-8")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "job"}, "data": data}


def on_the_bed(pod_spec: Manifest, command: list[str] | None = None) -> None:
    """Our image, our program, and nothing that only GPU nodes have."""
    pod_spec["volumes"] = [{"name": "job", "configMap": {"name": "job"}}]
    pod_spec["terminationGracePeriodSeconds"] = 1
    for container in pod_spec["containers"]:
        container.pop("args", None)
        container.pop("command", None)
        container["image"], container["imagePullPolicy"] = MPI.reference, "Never"
        container["volumeMounts"] = [{"name": "job", "mountPath": "/job"}]
        if command:
            container["command"] = command


def without_gpus(template: Manifest) -> Manifest:
    """For beds without GPUs: the same claim with its NICs only."""
    devices = template["spec"]["spec"]["devices"]
    devices["requests"] = [one for one in devices["requests"] if not one["name"].startswith("gpu")]
    devices.pop("constraints", None)
    return template


def mpi_job(job: Manifest, namespace: str, sweep: str = "1024 8388608 10", links: str = "") -> Manifest:
    """The example's job: its launcher waits for the names of the workers and starts the all-reduce.

    Which links it takes is said by the workers' claims, unless ``links`` are named here.
    """
    name, replicas = job["metadata"]["name"], job["spec"]["mpiReplicaSpecs"]
    workers = replicas["Worker"]["replicas"]
    names = [f"{name}-worker-{n}.{name}.{namespace}.svc" for n in range(workers)]
    wait = "".join(f"until getent hosts {one}; do sleep 0.2; done; " for one in names)
    over = f"-mca btl_tcp_if_include {links} " if links else ""
    start = f"{MPIRUN} -np {workers} {over}python3 /job/all_reduce.py {sweep}"
    on_the_bed(replicas["Launcher"]["template"]["spec"], ["sh", "-c", wait + start])
    on_the_bed(replicas["Worker"]["template"]["spec"])
    job["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}  # Workers stay until their counters were read.
    return job


def stateful_set(path: str, template: str) -> tuple[Manifest, Manifest]:
    """The example's service and its workers, which wait for ssh; they use a claim template of this name."""
    service, workers = example(path, "Service"), example(path, "StatefulSet")
    spec = workers["spec"]["template"]["spec"]
    on_the_bed(spec)
    spec["resourceClaims"][0]["resourceClaimTemplateName"] = template
    return service, workers


def nics_of_the_bed(template: Manifest, links: list[str]) -> Manifest:
    """NICs of a bed have no RDMA: what asks for that asks for a NIC of one of these names instead."""
    names = ", ".join(f'"{link}"' for link in links)
    for request in without_gpus(template)["spec"]["spec"]["devices"]["requests"]:
        request["exactly"]["selectors"] = [{"cel": {"expression": f'device.attributes["dra.net"].ifName in [{names}]'}}]
    return template
