"""Which programs the bed is made of, and their versions: the one place to change when a part moves on.

Every path asked for here is fetched or built on first use and comes from the cache after that.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from .build import GoProgram, binary, kubernetes_program, module_dir
from .cache import BedError, cached
from .fetch import Package, unpacked

KUBERNETES_VERSIONS = {
    "1.33": "v1.33.13",
    "1.34": "v1.34.4",
    "1.35": "v1.35.4",
    "1.36": "v1.36.4",
    "1.37": "v1.37.1",
}
DEFAULT_KUBERNETES = "1.36"
KUBERNETES_PROGRAMS = ("kube-apiserver", "kubelet", "kube-controller-manager", "kube-scheduler")

ETCD = Package("etcd-server", "forky")
CONTAINERD = Package("containerd", "forky")
CONTAINERD_17 = Package("containerd", "trixie")
"""Not for the bed: tests/containerd runs the driver's scenarios with it (`make containerd-1.7`)."""
CNI_PLUGINS = Package("containernetworking-plugins", "forky")
KUBECTL = Package("kubectl", "forky")
RUNC = Package("runc", "bookworm")  # the one of forky needs a newer libc
CONMON = Package("conmon", "bookworm")
BUSYBOX = Package("busybox-static", "bookworm")
REGISTRY = Package("docker-registry", "bookworm")
PACKAGES = (ETCD, CONTAINERD, CNI_PLUGINS, KUBECTL, RUNC, CONMON, BUSYBOX, REGISTRY)

HELM = GoProgram(
    "helm",
    "helm.sh/helm/v3",
    "v3.22.0",
    "cmd/helm",
    # Without a server to ask, helm takes the Kubernetes version from these; unset it is 1.20, too old for most charts.
    (
        "helm.sh/helm/v3/internal/version.version=v3.22.0",
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1",
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36",
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1",
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=36",
    ),
)
EXAMPLE_DRIVER = GoProgram(
    "dra-example-kubeletplugin", "sigs.k8s.io/dra-example-driver", "v0.2.1", "cmd/dra-example-kubeletplugin"
)
COREDNS = GoProgram("coredns", "github.com/coredns/coredns", "v1.14.0", "")
MPI_OPERATOR = GoProgram("mpi-operator", "github.com/kubeflow/mpi-operator", "v0.8.0", "cmd/mpi-operator")
KUBERAY = GoProgram("ray-operator", "github.com/ray-project/kuberay/ray-operator", "v1.6.0", "")
ACTIONLINT = GoProgram("actionlint", "github.com/rhysd/actionlint", "v1.7.12", "cmd/actionlint")
"""Not for the bed: checks the workflow of a release."""
CRIO = GoProgram(
    "crio",
    "github.com/cri-o/cri-o",
    "v1.34.0",
    "cmd/crio",
    # Without them the build needs the headers of gpgme and btrfs.
    tags="containers_image_openpgp exclude_graphdriver_btrfs btrfs_noversion",
    cgo=True,
)
"""Not for the bed: tests/containerd runs the driver's scenarios with it (`make crio`)."""
_PROMETHEUS = "github.com/prometheus-operator/prometheus-operator"
PROMETHEUS_OPERATOR = GoProgram("operator", _PROMETHEUS, "v0.85.0", "cmd/operator")
"""Only its CRDs are used, from its source: for what the chart gives Prometheus."""
_READER = Path(__file__).parents[1] / "metadata_reader"
_DRA = "k8s.io/dynamic-resource-allocation"
METADATA_READERS = (
    GoProgram("metadata-reader-0.36", _DRA, "v0.36.4", "", source=_READER),
    GoProgram("metadata-reader-0.37", _DRA, "v0.37.2", "", source=_READER, tags="validation"),
)
"""Our program with the library of each release that can read device metadata."""
ADD_ONS = {
    program.name: program
    for program in (HELM, EXAMPLE_DRIVER, COREDNS, MPI_OPERATOR, KUBERAY, ACTIONLINT, *METADATA_READERS)
}
ON_DEMAND = {CRIO.name: CRIO}
"""Built when named; "all" leaves them out."""


def kubernetes_version(wanted: str) -> str:
    """`1.34` to `v1.34.4`; a full version such as `v1.34.2` is taken as it is."""
    if wanted in KUBERNETES_VERSIONS:
        return KUBERNETES_VERSIONS[wanted]
    if wanted.count(".") == 2:
        return "v" + wanted.removeprefix("v")
    known = ", ".join(KUBERNETES_VERSIONS)
    raise BedError(f"Kubernetes {wanted!r} was asked for; known are {known}, or give a full version such as 1.36.4")


def minor(version: str) -> int:
    return int(version.split(".")[1])


def resource_api(version: str) -> str:
    """The newest API of claims and slices a server has; v1beta2 is v1 by another name."""
    return "resource.k8s.io/v1" if minor(version) >= 34 else "resource.k8s.io/v1beta2"


def kubernetes(name: str, version: str) -> Path:
    return binary(kubernetes_program(name, version))


def etcd() -> Path:
    return unpacked(ETCD) / "usr/bin/etcd"


def containerd_dir() -> Path:
    """Where containerd, its shim and ctr are; containerd finds its shim through PATH."""
    return unpacked(CONTAINERD) / "usr/bin"


def containerd_17_dir() -> Path:
    return unpacked(CONTAINERD_17) / "usr/bin"


def cni_dir() -> Path:
    return unpacked(CNI_PLUGINS) / "usr/lib/cni"


def kubectl() -> Path:
    return unpacked(KUBECTL) / "usr/bin/kubectl"


def runc() -> Path:
    return unpacked(RUNC) / "usr/sbin/runc"


def busybox() -> Path:
    return unpacked(BUSYBOX) / "bin/busybox"


def registry() -> Path:
    return unpacked(REGISTRY) / "usr/bin/docker-registry"


def crio_dir() -> Path:
    return binary(CRIO).parent


def pinns() -> Path:
    """CRI-O's helper that pins namespaces: a C program in its source."""
    return cached(f"go/pinns-{CRIO.version}", _compile_pinns) / "pinns"


def _compile_pinns(folder: Path) -> None:
    sources = sorted(map(str, (source_of(CRIO) / "pinns/src").glob("*.c")))
    subprocess.run(["cc", "-std=c99", "-Os", "-static", "-o", str(folder / "pinns"), *sources], check=True)


def conmon() -> Path:
    return unpacked(CONMON) / "usr/bin/conmon"


def add_on(program: GoProgram) -> Path:
    return binary(program)


def source_of(program: GoProgram) -> Path:
    """The module's own files: the example driver's chart and the operators' CRDs are taken from there."""
    return module_dir(program.module, program.version)


def build_all(version: str, add_ons: tuple[GoProgram, ...]) -> None:
    """Everything `up` needs, so that a test never waits for a compiler."""
    for package in PACKAGES:
        unpacked(package)
    for name in KUBERNETES_PROGRAMS:
        kubernetes(name, version)
    for program in add_ons:
        binary(program)
