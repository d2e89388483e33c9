"""What jobs need on a bed: names for pods, the operators, images with MPI and Ray, and our driver."""

from __future__ import annotations

from tests.cluster import release
from tests.cluster.kubebed import Cluster
from tests.cluster.kubebed.cache import say
from tests.cluster.kubebed.debian import MPI, debian_image
from tests.cluster.kubebed.operators import start_kuberay, start_mpi_operator
from tests.cluster.workloads.ray_image import REFERENCE as RAY
from tests.cluster.workloads.ray_image import ray_image


def ready_for_mpi(bed: Cluster) -> None:
    """MPIJobs, and StatefulSets that use MPI."""
    bed.start_dns()
    if not bed.has_image(MPI.reference):
        bed.load_image(debian_image(MPI))
    start_mpi_operator(bed)


def ready_for_ray(bed: Cluster) -> None:
    """RayClusters; the image is large, and loading it takes a minute."""
    bed.start_dns()
    if not bed.has_image(RAY):
        bed.load_image(ray_image())
    start_kuberay(bed)


def ready_for_jobs(bed: Cluster) -> None:
    """Everything, for a developer."""
    ready_for_mpi(bed)
    ready_for_ray(bed)
    release.install(bed)
    say(f"names, MPI Operator, KubeRay and the driver are there; images: {MPI.reference}, {RAY}")
