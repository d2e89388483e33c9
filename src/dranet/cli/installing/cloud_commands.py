"""What a cloud needs before this driver can work there, as commands: cluster, networks, node pool, chart.

Only what is particular to cards is here; sizes, disks and access rights of a real cluster are its owner's. A command is
a list of words, so that a name with a space stays one word, and nothing here is ever handed to a shell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dranet import __version__

Command = tuple[str, ...]

GKE_CARDS = {
    "a3-highgpu-8g": ("nvidia-h100-80gb", 4, False),
    "a3-megagpu-8g": ("nvidia-h100-mega-80gb", 8, False),
    "a3-ultragpu-8g": ("nvidia-h200-141gb", 8, True),
    "a4-highgpu-8g": ("nvidia-b200", 8, True),
}
"""By machine type: the GPU's name at Google, how many cards besides the first, and whether they do RDMA."""
MTU = 8244
"""Of networks for cards without RDMA; those with RDMA get theirs from their profile."""


@dataclass(frozen=True)
class Wanted:
    """The names to fill in."""

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
class Step:
    """Commands that belong together, and why they are there."""

    why: str
    commands: tuple[Command, ...]
    input: str = ""
    """What the last of them reads from its standard input."""


def steps(cloud: str, wanted: Wanted) -> Iterator[Step]:
    """In the order in which they are to be run."""
    yield from CLOUDS[cloud](wanted)
    yield Step("the driver; its pods find the cloud by the hint", (_install(cloud, wanted),))
    yield Step("is something published, and is every pool complete", (("helm", "test", "dranet", *_SYSTEM),))


def machine_types(cloud: str) -> tuple[str, ...]:
    """Those the commands are known for, the default first; empty: any."""
    return ("a4-highgpu-8g", *(name for name in GKE_CARDS if name != "a4-highgpu-8g")) if cloud == "gke" else ()


def default_machine_type(cloud: str) -> str:
    return _DEFAULT_MACHINES[cloud]


_SYSTEM = ("--namespace", "kube-system")
_HINTS = {"gke": "GCE", "aks": "AZURE", "eks": "AWS", "oke": "OKE"}
_DEFAULT_MACHINES = {
    "gke": "a4-highgpu-8g",
    "aks": "Standard_ND128isr_GB300_v6",
    "eks": "p5.48xlarge",
    "oke": "BM.GPU.H100.8",
}


def _install(cloud: str, wanted: Wanted) -> Command:
    chart = f"oci://{wanted.registry}/charts/dranet"
    hint = f"args.cloudProviderHint={_HINTS[cloud]}"
    return ("helm", "install", "dranet", chart, "--version", __version__, *_SYSTEM, "--set", hint, "--wait")


def _gke(wanted: Wanted) -> Iterator[Step]:
    gpu, cards, rdma = GKE_CARDS[wanted.machine_type]
    place = ("--project", wanted.project, "--zone", wanted.zone)
    create = ("gcloud", "container", "clusters", "create", wanted.cluster, *place)
    cluster = (*create, "--cluster-version", wanted.version, "--enable-dataplane-v2", "--enable-multi-networking")
    yield Step("a cluster whose nodes may have several networks", (cluster,))
    networks = list(_rdma_networks(wanted, cards) if rdma else _plain_networks(wanted, cards))
    for network in networks:
        yield network.step
    accelerator = f"type={gpu},count=8,gpu-driver-version=default"
    pool = ("gcloud", "container", "node-pools", "create", wanted.pool, *place, "--cluster", wanted.cluster)
    size = ("--machine-type", wanted.machine_type, "--accelerator", accelerator, "--num-nodes", str(wanted.nodes))
    attached = [word for network in networks for word in network.attached]
    yield Step("nodes with a card in each of them", ((*pool, *size, *attached),))
    yield Step(
        "kubectl and helm work with it",
        (("gcloud", "container", "clusters", "get-credentials", wanted.cluster, *place),),
    )


@dataclass(frozen=True)
class _Network:
    step: Step
    attached: tuple[str, ...]


def _rdma_networks(wanted: Wanted, cards: int) -> Iterator[_Network]:
    """One for the second Ethernet card; one with RDMA and a subnet for each card, which is what makes the rails."""
    yield _plain_network(wanted, f"{wanted.cluster}-gvnic", "192.168.0.0/24", "the machine's second Ethernet card")
    name = f"{wanted.cluster}-rdma"
    profile = ("--network-profile", f"{wanted.zone}-vpc-roce")
    subnets = tuple(_subnet(wanted, f"{name}-{n}", name, f"192.168.{n + 1}.0/24") for n in range(cards))
    step = Step("the network of the RDMA cards, a subnet for each", (_network(wanted, name, *profile), *subnets))
    yield _Network(step, tuple(word for n in range(cards) for word in _attached(name, f"{name}-{n}")))


def _plain_networks(wanted: Wanted, cards: int) -> Iterator[_Network]:
    for n in range(cards):
        yield _plain_network(
            wanted, f"{wanted.cluster}-net-{n}", f"192.168.{n + 1}.0/24", f"card {n + 1} of the machine"
        )


def _plain_network(wanted: Wanted, name: str, addresses: str, why: str) -> _Network:
    firewall = ("gcloud", "compute", "firewall-rules", "create", f"{name}-internal", "--project", wanted.project)
    opened = ("--network", name, "--action", "ALLOW", "--rules", "tcp,udp,icmp", "--source-ranges", "192.168.0.0/16")
    made = (_network(wanted, name, "--mtu", str(MTU)), _subnet(wanted, name, name, addresses), (*firewall, *opened))
    return _Network(Step(f"the network of {why}", made), _attached(name, name))


def _network(wanted: Wanted, name: str, *more: str) -> Command:
    project = ("--project", wanted.project)
    return ("gcloud", "compute", "networks", "create", name, *project, "--subnet-mode", "custom", *more)


def _subnet(wanted: Wanted, name: str, network: str, addresses: str) -> Command:
    place = ("--project", wanted.project, "--region", wanted.region)
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


def _aks(wanted: Wanted) -> Iterator[Step]:
    group = ("--resource-group", wanted.project)
    feature = ("--namespace", "Microsoft.ContainerService", "--name", "AKSInfinibandSupport")
    yield Step("nodes of a pool on one InfiniBand fabric; takes minutes", (("az", "feature", "register", *feature),))
    create = ("az", "aks", "create", *group, "--name", wanted.cluster, "--kubernetes-version", wanted.version)
    yield Step("a cluster", ((*create, "--location", wanted.region, "--node-count", "1"),))
    pool = ("az", "aks", "nodepool", "add", *group, "--cluster-name", wanted.cluster, "--name", wanted.pool)
    size = ("--node-vm-size", wanted.machine_type, "--node-count", str(wanted.nodes), "--os-sku", "Ubuntu")
    yield Step("nodes with InfiniBand", ((*pool, *size),))
    yield Step("kubectl and helm work with it", (("az", "aks", "get-credentials", *group, "--name", wanted.cluster),))


def _eks(wanted: Wanted) -> Iterator[Step]:
    config = f"""apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata:
  name: {wanted.cluster}
  region: {wanted.region}
  version: "{wanted.version}"
availabilityZones: [{wanted.zone}, {wanted.region}{"b" if wanted.zone.endswith("a") else "a"}]
managedNodeGroups:
  - name: {wanted.pool}
    instanceType: {wanted.machine_type}
    desiredCapacity: {wanted.nodes}
    availabilityZones: [{wanted.zone}]
    privateNetworking: true
    efaEnabled: true
"""
    yield Step(
        "a cluster and nodes with all their EFA cards, side by side",
        (("eksctl", "create", "cluster", "-f", "-"),),
        config,
    )


def _oke(wanted: Wanted) -> Iterator[Step]:
    """Nodes with RDMA come from a cluster network, which takes a dozen identifiers of a tenancy: not guessed here."""
    to = ("oci", "ce", "cluster", "create-kubeconfig", "--cluster-id", wanted.cluster, "--region", wanted.region)
    yield Step("kubectl and helm work with it", ((*to, "--token-version", "2.0.0"),))
    nodes = ("kubectl", "get", "nodes", "-l", f"node.kubernetes.io/instance-type={wanted.machine_type}")
    yield Step(f"the {wanted.nodes} nodes in the cluster network must be here already", (nodes,))


CLOUDS: dict[str, Callable[[Wanted], Iterator[Step]]] = {"gke": _gke, "aks": _aks, "eks": _eks, "oke": _oke}
