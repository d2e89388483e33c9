"""Five published recipes for RDMA jobs (`examples/`) as stories: their machines, manifests, and what each promises.

Pure data. A story is played in acts, one set of manifests after another on the same machines; what an act expects is
checked while it is played.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import dranet
from dranet.model.errors import NotFound


@dataclass(frozen=True, slots=True)
class Act:
    """One set of manifests, and what must come of it."""

    title: str
    files: tuple[str, ...]
    cards: int
    """Cards that every worker gets."""
    alignment: str
    """The farthest pair of GPU and card in every worker."""
    pairs: int = 1
    """Pairs of workers on different machines that can send packets to each other over their cards."""
    template: str | None = None
    """The claim template to use instead of the one the workload names."""
    interfaces: tuple[str, ...] = ()
    """Names every worker's interfaces must have, where the document promises names."""
    char_devices: tuple[str, ...] = ()
    """Below /dev/infiniband, all that every worker sees, where the document promises it."""


@dataclass(frozen=True, slots=True)
class Story:
    """One document."""

    name: str
    title: str
    shape: str
    nodes: int
    acts: tuple[Act, ...]


STORIES = (
    Story(
        "gke-rdma",
        "GPUDirect RDMA on GKE: whole machines, then halves",
        "a4-highgpu-8g",
        2,
        (
            Act(
                "two workers with 8 GPUs and 8 cards each",
                ("1-gke-rdma/claims.yaml", "1-gke-rdma/workers-8x8.yaml"),
                cards=8,
                alignment="PIX",
            ),
            Act(
                "four workers with 4 GPUs and 4 cards each",
                ("1-gke-rdma/claims.yaml", "1-gke-rdma/workers-4x4.yaml"),
                cards=4,
                alignment="PIX",
                pairs=2,
            ),
        ),
    ),
    Story(
        "nvidia-dra",
        "GPUs and cards in one claim, aligned by PCIe root",
        "a4-highgpu-8g",
        2,
        (
            Act(
                "two workers with 2 GPUs and 2 cards each",
                ("2-gke-nvidia-dra/claims.yaml", "2-gke-nvidia-dra/workers.yaml"),
                cards=2,
                alignment="PIX",
            ),
        ),
    ),
    Story(
        "mpi",
        "An MPIJob whose card is called dranet0",
        "a3-ultragpu-8g",
        2,
        (
            Act(
                "a launcher, and two workers with 1 GPU and 1 card each",
                ("3-gke-mpi/claims.yaml", "3-gke-mpi/mpijob.yaml"),
                cards=1,
                alignment="PIX",
                interfaces=("dranet0",),
            ),
        ),
    ),
    Story(
        "aks-gb300",
        "GB300 with InfiniBand: cards without an interface, aligned and not",
        "nd-gb300-v6",
        2,
        (
            Act(
                "one card next to the GPU",
                ("4-aks-gb300/claims.yaml", "4-aks-gb300/mpijob.yaml"),
                cards=1,
                alignment="NODE",
                pairs=0,
                template="1nic-aligned",
                char_devices=("rdma_cm", "umad0", "uverbs0"),
            ),
            Act(
                "two cards next to the GPU",
                ("4-aks-gb300/claims.yaml", "4-aks-gb300/mpijob.yaml"),
                cards=2,
                alignment="NODE",
                pairs=0,
                template="2nic-aligned",
                char_devices=("rdma_cm", "umad0", "umad1", "uverbs0", "uverbs1"),
            ),
            Act(
                "one card on the other side of the machine",
                ("4-aks-gb300/claims.yaml", "4-aks-gb300/unaligned.yaml", "4-aks-gb300/mpijob.yaml"),
                cards=1,
                alignment="SYS",
                pairs=0,
                template="1nic-unaligned",
                char_devices=("rdma_cm", "umad2", "uverbs2"),
            ),
        ),
    ),
    Story(
        "ray",
        "A RayCluster over whole machines",
        "a4-highgpu-8g",
        2,
        (
            Act(
                "a head, and two workers with 8 GPUs and 8 cards each",
                ("5-gke-ray/claims.yaml", "5-gke-ray/raycluster.yaml"),
                cards=8,
                alignment="PIX",
            ),
        ),
    ),
)


def chosen(names: tuple[str, ...]) -> tuple[Story, ...]:
    """Stories by name, in the order asked; all of them where none is named."""
    known = {story.name: story for story in STORIES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise NotFound(f"no scenario {', '.join(unknown)}; there are {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(names)) or STORIES


def example_files(act: Act) -> list[Path]:
    """The act's manifests on this disk."""
    return [examples() / file for file in act.files]


def examples() -> Path:
    """Beside the package where it was installed, else in the source tree."""
    package = Path(dranet.__file__).parent
    for folder in (package / "examples", package.parents[1] / "examples"):
        if folder.is_dir():
            return folder
    raise NotFound(f"the example manifests are neither in {package} nor in the source tree above it")
