"""Five published recipes for RDMA jobs (`examples/`) as scenarios: machines, manifests, and expected results.

Pure data. A scenario has stages: sets of manifests that run one after another on the same machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import dranet
from dranet.core.errors import NotFound


@dataclass(frozen=True, slots=True)
class Stage:
    """One set of manifests, and the expected result."""

    title: str
    files: tuple[str, ...]
    nics: int
    """The number of NICs of every worker."""
    alignment: str
    """The worst distance between a GPU and its NIC in every worker."""
    pairs: int = 1
    """Pairs of workers on different machines that can send packets to each other through their NICs."""
    template: str | None = None
    """The claim template to use instead of the workload's."""
    interfaces: tuple[str, ...] = ()
    """Expected interface names of every worker, if the recipe specifies them."""
    char_devices: tuple[str, ...] = ()
    """Expected content of /dev/infiniband in every worker, if the recipe specifies it."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One recipe."""

    name: str
    title: str
    shape: str
    nodes: int
    stages: tuple[Stage, ...]


SCENARIOS = (
    Scenario(
        "gke-rdma",
        "GPUDirect RDMA on GKE: whole machines, then halves",
        "a4-highgpu-8g",
        2,
        (
            Stage(
                "two workers with 8 GPUs and 8 NICs each",
                ("1-gke-rdma/claims.yaml", "1-gke-rdma/workers-8x8.yaml"),
                nics=8,
                alignment="PIX",
            ),
            Stage(
                "four workers with 4 GPUs and 4 NICs each",
                ("1-gke-rdma/claims.yaml", "1-gke-rdma/workers-4x4.yaml"),
                nics=4,
                alignment="PIX",
                pairs=2,
            ),
        ),
    ),
    Scenario(
        "nvidia-dra",
        "GPUs and NICs in one claim, aligned by PCIe root",
        "a4-highgpu-8g",
        2,
        (
            Stage(
                "two workers with 2 GPUs and 2 NICs each",
                ("2-gke-nvidia-dra/claims.yaml", "2-gke-nvidia-dra/workers.yaml"),
                nics=2,
                alignment="PIX",
            ),
        ),
    ),
    Scenario(
        "mpi",
        "An MPIJob whose NIC is named dranet0",
        "a3-ultragpu-8g",
        2,
        (
            Stage(
                "a launcher, and two workers with 1 GPU and 1 NIC each",
                ("3-gke-mpi/claims.yaml", "3-gke-mpi/mpijob.yaml"),
                nics=1,
                alignment="PIX",
                interfaces=("dranet0",),
            ),
        ),
    ),
    Scenario(
        "aks-gb300",
        "GB300 with InfiniBand: NICs without an interface, aligned and not",
        "nd-gb300-v6",
        2,
        (
            Stage(
                "one NIC next to the GPU",
                ("4-aks-gb300/claims.yaml", "4-aks-gb300/mpijob.yaml"),
                nics=1,
                alignment="NODE",
                pairs=0,
                template="1nic-aligned",
                char_devices=("rdma_cm", "umad0", "uverbs0"),
            ),
            Stage(
                "two NICs next to the GPU",
                ("4-aks-gb300/claims.yaml", "4-aks-gb300/mpijob.yaml"),
                nics=2,
                alignment="NODE",
                pairs=0,
                template="2nic-aligned",
                char_devices=("rdma_cm", "umad0", "umad1", "uverbs0", "uverbs1"),
            ),
            Stage(
                "one NIC on the other side of the machine",
                ("4-aks-gb300/claims.yaml", "4-aks-gb300/unaligned.yaml", "4-aks-gb300/mpijob.yaml"),
                nics=1,
                alignment="SYS",
                pairs=0,
                template="1nic-unaligned",
                char_devices=("rdma_cm", "umad2", "uverbs2"),
            ),
        ),
    ),
    Scenario(
        "ray",
        "A RayCluster over whole machines",
        "a4-highgpu-8g",
        2,
        (
            Stage(
                "a head, and two workers with 8 GPUs and 8 NICs each",
                ("5-gke-ray/claims.yaml", "5-gke-ray/raycluster.yaml"),
                nics=8,
                alignment="PIX",
            ),
        ),
    ),
)


def select_scenarios(names: tuple[str, ...]) -> tuple[Scenario, ...]:
    """Scenarios by name, in the given order; all if no name is given."""
    known = {scenario.name: scenario for scenario in SCENARIOS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise NotFound(f"no scenario {', '.join(unknown)}; choose from {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(names)) or SCENARIOS


def example_files(stage: Stage) -> list[Path]:
    """The paths of the stage's manifests."""
    return [examples_folder() / file for file in stage.files]


def examples_folder() -> Path:
    """The folder `examples`: in the installed package, or in the source tree."""
    package = Path(dranet.__file__).parent
    for folder in (package / "examples", package.parents[1] / "examples"):
        if folder.is_dir():
            return folder
    raise NotFound(f"no example manifests in {package} or the source tree above it; reinstall the package")
