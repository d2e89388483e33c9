"""The MPI Operator and KubeRay, from their own modules: CRDs applied, the operator a process on the first node.

On a node rather than on the machine, because both listen on every address they find. They need cluster DNS for the jobs
they run (`Cluster.start_dns`), and images that are built elsewhere.
"""

from __future__ import annotations

from . import parts
from .build import GoProgram
from .cluster import Cluster
from .kubectl import Manifest
from .processes import Record, wait_until


def start_mpi_operator(cluster: Cluster) -> Record:
    """Its CRD has to be there before it starts."""
    apply_crds(cluster, parts.MPI_OPERATOR, "manifests/base/kubeflow.org_mpijobs.yaml")
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mpi-operator"}})
    return _start(cluster, parts.MPI_OPERATOR, "-kubeConfig")


def start_kuberay(cluster: Cluster) -> Record:
    apply_crds(cluster, parts.KUBERAY, "config/crd/bases")
    # Its metrics would take the port of the MPI Operator.
    quiet = ("-enable-leader-election=false", "-metrics-addr=0", "-health-probe-bind-address=127.0.0.1:8082")
    return _start(cluster, parts.KUBERAY, "-kubeconfig", *quiet)


def apply_crds(cluster: Cluster, program: GoProgram, path: str) -> None:
    """Apply CRDs of a program's source and wait until they are served.

    Server-side: the Ray ones are too long for the annotation that client-side apply leaves on every object.
    """
    kubectl, location = cluster.kubectl, parts.source_of(program) / path
    names = kubectl.run("apply", "--server-side", "-f", str(location), "-o", "name").split()
    wait_until(lambda: all(_established(kubectl.get(name)) for name in names), f"{', '.join(names)} to be served", 60)


def _established(crd: Manifest) -> bool:
    conditions = crd.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def _start(cluster: Cluster, program: GoProgram, kubeconfig_flag: str, *arguments: str) -> Record:
    node = cluster.nodes[0]
    if running := cluster.processes.running(f"{node.name}-{program.name}"):
        return running
    return node.start(
        program.name, [parts.add_on(program), kubeconfig_flag, str(cluster.layout.kubeconfig), *arguments]
    )
