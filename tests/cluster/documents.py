"""The five documents on a bed: their machines, their manifests made runnable here, and what their pods really have.

What each document promises is data of the product (`dranet.testing.scenarios`); here it is held against a real cluster.
Only what this machine lacks is replaced in a manifest: images, programs, host folders and the sizes of big machines.
Workers are spread over the nodes, as the documents assume, so that traffic between them has to use their NICs.
"""

from __future__ import annotations

import copy
import ipaddress
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dranet.advise.manifests import must_read, pod_sets
from dranet.core.names import pci_device_name
from dranet.machines.alignment import align
from dranet.machines.machine import machine_of_shape
from dranet.machines.shape import Shape
from dranet.machines.shape_devices import ShapeLink, nic_devices, shape_links
from dranet.testing.fabric import rail_subnet
from dranet.testing.gpu_driver import DRIVER as GPU_DRIVER
from dranet.testing.scenarios import Stage, examples_folder
from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.inside import addresses, ip, link
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.manifests import IDLE, POD_IMAGE
from tests.cluster.kubebed.node import Node
from tests.cluster.machines import dress, undress

Manifest = dict[str, Any]
RDMA_CM = (10, 121)
CONTROLLED = ("StatefulSet", "Deployment", "Job")
"""Workloads whose controllers run here; pods of the others are made from their templates."""
SYSFS = {
    "extraVolumes": [{"name": "machine", "hostPath": {"path": "/run/bed/sysfs"}}],
    "extraVolumeMounts": [{"name": "machine", "mountPath": "/sys"}],
}
"""The machine's sysfs in place of the node's: values for the chart."""
WORKER = {"documents": "worker"}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": WORKER},
}


class Machines:
    """Every node as a machine of one shape, its GPUs served by the stand-in driver."""

    def __init__(self, bed: Cluster, shape: str) -> None:
        self.bed = bed
        self.shape = dress(bed, shape)
        for index, node in enumerate(bed.nodes):
            _lay_rails(bed, index, shape_links(self.shape, index))
            _make_rdma_cm(node)
            node.start("gpu-driver", self._gpu_driver(index, node.name))
            _nudge(node)
        bed.kubectl.apply(release.device_class(GPU_DRIVER, f'device.driver == "{GPU_DRIVER}"'))

    def ready(self) -> None:
        """Wait until every NIC and GPU is offered, and no NIC has a taint for a carrier that is just coming."""
        nics = {str(device.name) for device in nic_devices(self.shape)}
        names = self.bed.node_names()
        wait_until(lambda: all(nics <= self._offered(name) for name in names), f"the NICs of {self.shape.name}")

    def remove(self) -> None:
        for node in self.bed.nodes:
            node.stop("gpu-driver")
        self.bed.kubectl.run(
            "delete", "resourceslices", "--ignore-not-found", "--field-selector", f"spec.driver={GPU_DRIVER}"
        )
        undress(self.bed, self.shape)

    def _gpu_driver(self, index: int, node: str) -> list[str | Path]:
        what = ["--shape", self.shape.name, "--index", str(index), "--node", node]
        return [sys.executable, "-m", "dranet.testing.gpu_driver", *what, "--kubeconfig", self.bed.layout.kubeconfig]

    def _offered(self, node: str) -> set[str]:
        slices = [s["spec"] for s in self.bed.kubectl.items("resourceslices") if s["spec"].get("nodeName") == node]
        if len({spec["driver"] for spec in slices} & {"dra.net", GPU_DRIVER}) < 2:
            return set()
        devices = [device for spec in slices for device in spec.get("devices") or []]
        return {device["name"] for device in devices if not device.get("taints")}


def _nudge(node: Node) -> None:
    """Real machines do not change their sysfs under a driver: a link that comes and goes makes it look again."""
    node.run("ip", "link", "add", "nudge", "type", "veth", "peer", "name", "nudged")
    node.run("ip", "link", "del", "nudge")


def _make_rdma_cm(node: Node) -> None:
    path = node.root / "dev/infiniband/rdma_cm"
    if not path.exists():
        os.mknod(path, 0o020666, os.makedev(*RDMA_CM))


def _lay_rails(bed: Cluster, index: int, nics: list[ShapeLink]) -> None:
    """The lone addresses of these machines reach their neighbours by a route, which clouds hand out by DHCP."""
    for nic in nics:
        for cidr in nic.addresses:
            if subnet := rail_subnet(cidr):
                source = cidr.partition("/")[0]
                bed.nodes[index].run("ip", "route", "add", subnet, "dev", nic.name, "src", source)


def manifests(stage: Stage, *, beta: bool = False) -> list[Manifest]:
    """The stage's objects, to be applied on a bed."""
    files = [_beta(name) if beta else name for name in stage.files]
    made: list[Manifest] = []
    for obj in must_read(examples_folder() / name for name in files):
        specs = pod_sets([obj])
        if not specs:
            made.append(obj.data)
        elif obj.kind in CONTROLLED:
            made.append(_runnable_workload(obj.data, stage))
        else:
            made += [
                _pod(name, spec.spec, stage, WORKER if spec.claims else {}) for spec in specs for name in spec.names
            ]
    return made


def _beta(file: str) -> str:
    """Claims come in both versions; workloads have nothing to do with them."""
    other = file.replace(".yaml", ".v1beta1.yaml")
    return other if (examples_folder() / other).exists() else file


def _runnable_workload(workload: Manifest, stage: Stage) -> Manifest:
    made = copy.deepcopy(workload)
    template = made["spec"]["template"]
    template["metadata"]["labels"].update(WORKER)
    template["spec"] = _runnable(template["spec"], stage)
    return made


def _pod(name: str, spec: Manifest, stage: Stage, labels: Manifest) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": _runnable(spec, stage),
    }


def _runnable(spec: Manifest, stage: Stage) -> Manifest:
    made = copy.deepcopy(spec)
    made["terminationGracePeriodSeconds"] = 1
    made["topologySpreadConstraints"] = [SPREAD]
    for entry in made.get("resourceClaims") or []:
        entry["resourceClaimTemplateName"] = stage.template or entry["resourceClaimTemplateName"]
    for volume in made.get("volumes") or []:
        volume.update({"hostPath": None, "emptyDir": {}} if "hostPath" in volume else {"emptyDir": {}})
    for container in made["containers"]:
        container.update(image=POD_IMAGE, imagePullPolicy="Never", command=list(IDLE), args=[])
        claims = (container.get("resources") or {}).get("claims")
        container["resources"] = {"claims": claims} if claims else {}
    return made


@dataclass(frozen=True)
class Worker:
    """A running pod with what it was given."""

    name: str
    node: str
    process: int
    results: tuple[Manifest, ...]
    status: tuple[Manifest, ...]

    def given(self, driver: str) -> list[str]:
        return [result["device"] for result in self.results if result["driver"] == driver]


def workers(bed: Cluster, kubectl: Kubectl) -> list[Worker]:
    """The pods with claims, by name."""
    return sorted(_workers(bed, kubectl), key=lambda worker: worker.name)


def _workers(bed: Cluster, kubectl: Kubectl) -> Iterator[Worker]:
    claims = {item["metadata"]["name"]: item["status"] for item in kubectl.items("resourceclaims")}
    for pod in kubectl.items("pods"):
        used = [entry["resourceClaimName"] for entry in pod["status"].get("resourceClaimStatuses") or []]
        if used:
            results = [result for name in used for result in claims[name]["allocation"]["devices"]["results"]]
            status = [entry for name in used for entry in claims[name].get("devices") or []]
            node = bed.node(pod["spec"]["nodeName"])
            process = node.pod_processes(pod["metadata"]["uid"])[0]
            yield Worker(pod["metadata"]["name"], node.name, process, tuple(results), tuple(status))


def nics_of(shape: Shape, bed: Cluster, worker: Worker) -> list[ShapeLink]:
    """The interfaces its NICs had on their machine; NICs without interface have none."""
    index = bed.node_names().index(worker.node)
    made = {str(pci_device_name(nic.pci)): nic for nic in shape_links(shape, index)}
    return [made[device] for device in worker.given("dra.net") if device in made]


def seen(worker: Worker) -> list[tuple[str, int, tuple[str, ...]]]:
    """What the pod has besides its way to other pods: MAC, MTU and addresses of each interface."""
    names = [entry["ifname"] for entry in ip(worker.process, "link", "show") if entry["ifname"] not in ("lo", "eth0")]
    found = [(link(worker.process, name), addresses(worker.process, name)) for name in names]
    return sorted((nic["address"], nic["mtu"], tuple(own)) for nic, own in found)


def names_in(worker: Worker) -> set[str]:
    return {entry["ifname"] for entry in ip(worker.process, "link", "show")} - {"lo", "eth0"}


def worst_pair(shape: Shape, worker: Worker) -> str:
    """The farthest pair of GPU and NIC."""
    machine = machine_of_shape(shape, worker.node)
    gpus = [part for part in machine.gpus if part.device in worker.given(GPU_DRIVER)]
    nics = [part for part in machine.nics if part.device in worker.given("dra.net")]
    return str(align(gpus, nics).worst)


def rails(worker: Worker) -> dict[str, tuple[str, str]]:
    """By subnet, the interface and the address the worker has on it."""
    found = {}
    for name in names_in(worker):
        for cidr in addresses(worker.process, name):
            address = ipaddress.ip_interface(cidr).ip
            found[str(ipaddress.ip_network(f"{address}/24", strict=False))] = (name, str(address))
    return found
