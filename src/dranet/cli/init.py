"""``dranet init``: the commands that create a cluster in a cloud and install this driver.

It only prints them, unless `--no-dry-run` is given. It calls the command-line tools of the clouds, which have the
credentials, and covers only what NICs need; sizes, disks and permissions are up to the owner of the cluster. Commands
are lists of arguments and never pass through a shell.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click

from dranet import __version__
from dranet.core.errors import DranetError

_REGIONS = {"gke": "us-central1", "aks": "eastus", "eks": "us-east-1", "oke": "us-ashburn-1"}


@click.command()
@click.option("--cloud", required=True, type=click.Choice(list(_REGIONS)), help="Cloud.")
@click.option("--cluster", default="dranet", show_default=True, help="Name of the cluster; its OCID on oke.")
@click.option("--pool", default="gpu", show_default=True, help="Name of the node pool.")
@click.option(
    "--project", help="Project on gke (default: my-project), resource group on aks (default: the cluster's name)."
)
@click.option("--region", help="Region; by default a common one of the cloud.")
@click.option("--zone", help="Zone of the nodes on gke and eks; by default the first of the region.")
@click.option("--machine-type", help="Machine type; by default the one of the walkthrough for the cloud.")
@click.option("--nodes", default=2, show_default=True, type=click.IntRange(1), help="Number of nodes.")
@click.option("--kubernetes", default="1.36", show_default=True, help="Kubernetes version of the cluster.")
@click.option(
    "--registry", default="registry.example.com/team", show_default=True, help="Registry of the image and the chart."
)
@click.option(
    "--dry-run/--no-dry-run",
    default=True,
    show_default=True,
    help="Print the commands, or run them one after the other.",
)
def init(
    cloud: str,
    cluster: str,
    pool: str,
    project: str | None,
    region: str | None,
    zone: str | None,
    machine_type: str | None,
    nodes: int,
    kubernetes: str,
    registry: str,
    dry_run: bool,
) -> None:
    """Print the commands that create a cluster with NICs in a cloud and install this driver."""
    region = region or _REGIONS[cloud]
    zone = zone or (f"{region}-a" if cloud == "gke" else f"{region}a")
    machine = machine_type or _DEFAULT_MACHINES[cloud]
    known = _machine_types(cloud)
    if known and machine not in known:
        raise DranetError(f"--machine-type {machine}: unknown networks; known on {cloud}: {', '.join(known)}")
    project = project or ("my-project" if cloud == "gke" else cluster)
    settings = _Settings(cluster, pool, machine, nodes, kubernetes, registry, project, region, zone)
    for step in _steps(cloud, settings):
        click.echo(_format(step))
        if not dry_run:
            _run(step)


def _format(step: _Step) -> str:
    lines = [shlex.join(command) for command in step.commands]
    if step.input:
        lines[-1] += f" <<'EOF'\n{step.input}EOF"
    return "\n".join([f"# {step.why}", *lines, ""])


def _run(step: _Step) -> None:
    for command in step.commands:
        given = step.input if command is step.commands[-1] and step.input else None
        try:
            status = subprocess.run(command, input=given, text=True).returncode
        except FileNotFoundError as error:
            raise DranetError(f"{command[0]} is not installed; it is needed for: {shlex.join(command)}") from error
        if status:
            raise DranetError(
                f"{shlex.join(command)} exited with {status}; earlier commands are done, later ones were not run"
            )


_Command = tuple[str, ...]

GKE_NICS = {
    "a3-highgpu-8g": ("nvidia-h100-80gb", 4, False),
    "a3-megagpu-8g": ("nvidia-h100-mega-80gb", 8, False),
    "a3-ultragpu-8g": ("nvidia-h200-141gb", 8, True),
    "a4-highgpu-8g": ("nvidia-b200", 8, True),
}
"""By machine type: name of the GPU at Google, number of NICs besides the first, and whether they have RDMA."""
_MTU = 8244
"""Of networks without RDMA; a network with RDMA gets its _MTU from its profile."""


@dataclass(frozen=True)
class _Settings:
    """Values of the options."""

    cluster: str
    pool: str
    machine_type: str
    nodes: int
    version: str
    registry: str
    project: str
    region: str
    zone: str


@dataclass(frozen=True)
class _Step:
    """Commands of one purpose."""

    why: str
    commands: tuple[_Command, ...]
    input: str = ""
    """Standard input of the last command."""


def _steps(cloud: str, settings: _Settings) -> Iterator[_Step]:
    yield from CLOUDS[cloud](settings)
    yield from _gpu_driver(cloud, settings)
    yield _Step("the driver, with a hint for its cloud", (_install(cloud, settings),))
    yield _Step("check that devices are published and every pool is complete", (("helm", "test", "dranet", *_SYSTEM),))


def _machine_types(cloud: str) -> tuple[str, ...]:
    """Supported machine types, the default first; empty for any."""
    return ("a4-highgpu-8g", *(name for name in GKE_NICS if name != "a4-highgpu-8g")) if cloud == "gke" else ()


_SYSTEM = ("--namespace", "kube-system")
_HINTS = {"gke": "GCE", "aks": "AZURE", "eks": "AWS", "oke": "OKE"}
_DEFAULT_MACHINES = {
    "gke": "a4-highgpu-8g",
    "aks": "Standard_ND128isr_GB300_v6",
    "eks": "p5.48xlarge",
    "oke": "BM.GPU.H100.8",
}


def _install(cloud: str, settings: _Settings) -> _Command:
    chart = f"oci://{settings.registry}/charts/dranet"
    hint = f"args.cloudProviderHint={_HINTS[cloud]}"
    return ("helm", "install", "dranet", chart, "--version", __version__, *_SYSTEM, "--set", hint, "--wait")


NVIDIA_DRA = "25.12.0"
"""Version of NVIDIA's DRA driver, which publishes GPUs and creates the class gpu.nvidia.com."""
_NVIDIA_CHARTS = "https://helm.ngc.nvidia.com/nvidia"
_NVIDIA_NAMESPACE = "nvidia-dra-driver-gpu"
_RDMA_INSTALLER = (
    "https://raw.githubusercontent.com/GoogleCloudPlatform/container-engine-accelerators/"
    "refs/heads/master/gpudirect-rdma/nccl-rdma-installer.yaml"
)


def _gpu_driver(cloud: str, settings: _Settings) -> Iterator[_Step]:
    """Claims for GPUs need the GPU vendor's DRA driver; this driver publishes NICs only."""
    if cloud == "gke" and GKE_NICS[settings.machine_type][2]:
        yield _Step("RDMA libraries and NCCL for the nodes", (("kubectl", "apply", "-f", _RDMA_INSTALLER),))
    chosen = ("kubectl", "label", "nodes", "--overwrite", "-l", _pool_label(cloud, settings))
    yield _Step("mark the nodes with GPUs for NVIDIA's driver", ((*chosen, "nvidia.com/gpu.present=true"),))
    chart = ("nvidia-dra-driver-gpu", "--repo", _NVIDIA_CHARTS, "--version", NVIDIA_DRA)
    place = ("--namespace", _NVIDIA_NAMESPACE, "--create-namespace")
    values = [word for value in _gpu_driver_values(cloud) for word in ("--set", value)]
    install = ("helm", "upgrade", "--install", _NVIDIA_NAMESPACE, *chart, *place, *values, "--wait")
    yield _Step("NVIDIA's DRA driver, which publishes the GPUs", (install,))
    yield _Step("check that claims can name GPUs", (("kubectl", "get", "deviceclass", "gpu.nvidia.com"),))


def _gpu_driver_values(cloud: str) -> Iterator[str]:
    # The chart asks for this, because it cannot tell whether a device plugin also manages these GPUs.
    yield "gpuResourcesEnabledOverride=true"
    yield f"nvidiaDriverRoot={'/home/kubernetes/bin/nvidia' if cloud == 'gke' else '/'}"
    yield "kubeletPlugin.tolerations[0].operator=Exists"
    yield "controller.affinity=null"  # managed control planes have no nodes
    if cloud == "gke":  # which refuses system-node-critical outside kube-system
        yield "controller.priorityClassName="
        yield "kubeletPlugin.priorityClassName="


def _pool_label(cloud: str, settings: _Settings) -> str:
    """The label that the cloud puts on the nodes of a pool."""
    return {
        "gke": f"cloud.google.com/gke-nodepool={settings.pool}",
        "aks": f"kubernetes.azure.com/agentpool={settings.pool}",
        "eks": f"eks.amazonaws.com/nodegroup={settings.pool}",
        "oke": f"node.kubernetes.io/instance-type={settings.machine_type}",
    }[cloud]


def _gke(settings: _Settings) -> Iterator[_Step]:
    gpu, nics, rdma = GKE_NICS[settings.machine_type]
    place = ("--project", settings.project, "--zone", settings.zone)
    create = ("gcloud", "container", "clusters", "create", settings.cluster, *place)
    cluster = (*create, "--cluster-version", settings.version, "--enable-dataplane-v2", "--enable-multi-networking")
    yield _Step("a cluster whose nodes can have several networks", (cluster,))
    networks = list(_rdma_networks(settings, nics) if rdma else _plain_networks(settings, nics))
    for network in networks:
        yield network.step
    accelerator = f"type={gpu},count=8,gpu-driver-version=default"
    pool = ("gcloud", "container", "node-pools", "create", settings.pool, *place, "--cluster", settings.cluster)
    size = ("--machine-type", settings.machine_type, "--accelerator", accelerator, "--num-nodes", str(settings.nodes))
    attached = [word for network in networks for word in network.attached]
    yield _Step("nodes with a NIC in each network", ((*pool, *size, *attached),))
    yield _Step(
        "credentials for kubectl and helm",
        (("gcloud", "container", "clusters", "get-credentials", settings.cluster, *place),),
    )


@dataclass(frozen=True)
class _Network:
    step: _Step
    attached: tuple[str, ...]


def _rdma_networks(settings: _Settings, nics: int) -> Iterator[_Network]:
    """A network for the second Ethernet NIC, and one with RDMA and a subnet for each NIC: the rails."""
    yield _plain_network(settings, f"{settings.cluster}-gvnic", "192.168.0.0/24", "the second Ethernet NIC")
    name = f"{settings.cluster}-rdma"
    profile = ("--network-profile", f"{settings.zone}-vpc-roce")
    subnets = tuple(_subnet(settings, f"{name}-{n}", name, f"192.168.{n + 1}.0/24") for n in range(nics))
    step = _Step("the network of the RDMA NICs, with one subnet each", (_network(settings, name, *profile), *subnets))
    yield _Network(step, tuple(word for n in range(nics) for word in _attached(name, f"{name}-{n}")))


def _plain_networks(settings: _Settings, nics: int) -> Iterator[_Network]:
    for n in range(nics):
        yield _plain_network(
            settings, f"{settings.cluster}-net-{n}", f"192.168.{n + 1}.0/24", f"NIC {n + 1} of the machine"
        )


def _plain_network(settings: _Settings, name: str, addresses: str, why: str) -> _Network:
    firewall = ("gcloud", "compute", "firewall-rules", "create", f"{name}-internal", "--project", settings.project)
    opened = ("--network", name, "--action", "ALLOW", "--rules", "tcp,udp,icmp", "--source-ranges", "192.168.0.0/16")
    made = (
        _network(settings, name, "--mtu", str(_MTU)),
        _subnet(settings, name, name, addresses),
        (*firewall, *opened),
    )
    return _Network(_Step(f"the network of {why}", made), _attached(name, name))


def _network(settings: _Settings, name: str, *more: str) -> _Command:
    project = ("--project", settings.project)
    return ("gcloud", "compute", "networks", "create", name, *project, "--subnet-mode", "custom", *more)


def _subnet(settings: _Settings, name: str, network: str, addresses: str) -> _Command:
    place = ("--project", settings.project, "--region", settings.region)
    return (
        "gcloud",
        "compute",
        "networks",
        "subnets",
        "create",
        name,
        *place,
        "--network",
        network,
        "--range",
        addresses,
    )


def _attached(network: str, subnet: str) -> tuple[str, str]:
    return "--additional-node-network", f"network={network},subnetwork={subnet}"


def _aks(settings: _Settings) -> Iterator[_Step]:
    group = ("--resource-group", settings.project)
    create_group = ("az", "group", "create", "--name", settings.project, "--location", settings.region)
    yield _Step("a resource group", (create_group,))
    feature = ("--namespace", "Microsoft.ContainerService", "--name", "AKSInfinibandSupport")
    yield _Step(
        "put the nodes of a pool on one InfiniBand fabric; takes minutes", (("az", "feature", "register", *feature),)
    )
    create = ("az", "aks", "create", *group, "--name", settings.cluster, "--kubernetes-version", settings.version)
    yield _Step("a cluster", ((*create, "--location", settings.region, "--node-count", "1"),))
    pool = ("az", "aks", "nodepool", "add", *group, "--cluster-name", settings.cluster, "--name", settings.pool)
    size = ("--node-vm-size", settings.machine_type, "--node-count", str(settings.nodes), "--os-sku", "Ubuntu")
    yield _Step("nodes with InfiniBand", ((*pool, *size),))
    yield _Step(
        "credentials for kubectl and helm", (("az", "aks", "get-credentials", *group, "--name", settings.cluster),)
    )


def _eks(settings: _Settings) -> Iterator[_Step]:
    config = f"""apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata:
  name: {settings.cluster}
  region: {settings.region}
  version: "{settings.version}"
availabilityZones: [{settings.zone}, {settings.region}{"b" if settings.zone.endswith("a") else "a"}]
managedNodeGroups:
  - name: {settings.pool}
    instanceType: {settings.machine_type}
    desiredCapacity: {settings.nodes}
    availabilityZones: [{settings.zone}]
    privateNetworking: true
    efaEnabled: true
"""
    yield _Step(
        "a cluster, and nodes with all their EFA NICs",
        (("eksctl", "create", "cluster", "-f", "-"),),
        config,
    )


def _oke(settings: _Settings) -> Iterator[_Step]:
    """Nodes with RDMA need a cluster network, which needs identifiers of a tenancy that are not known here."""
    to = ("oci", "ce", "cluster", "create-kubeconfig", "--cluster-id", settings.cluster, "--region", settings.region)
    yield _Step("credentials for kubectl and helm", ((*to, "--token-version", "2.0.0"),))
    nodes = ("kubectl", "get", "nodes", "-l", f"node.kubernetes.io/instance-type={settings.machine_type}")
    yield _Step(f"check that the {settings.nodes} nodes of the cluster network exist", (nodes,))


CLOUDS: dict[str, Callable[[_Settings], Iterator[_Step]]] = {"gke": _gke, "aks": _aks, "eks": _eks, "oke": _oke}
