"""The parameters of the bandwidth model, from `bandwidth.toml`, and the links of each GPU product.

The links of a GPU that is not listed are unknown, which is not the same as none: no figure is given for its machine.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

import msgspec

from dranet.machines.machine import MachineDevice

Bounds = tuple[float, float]
"""The lowest and the highest result to expect, as factors of the figure."""


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far results are from the model, by what limits them."""

    network: Bounds
    inside: Bounds
    staged: Bounds


class Protocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of NCCL's protocols: the less time its steps take, the less of the rate it reaches."""

    share: float
    base: float
    network_step: tuple[float, float]
    """Seconds of one step over the network: in a ring, and in a tree."""
    inside_step: float


class NvlsLatency(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds of a reduction in the switch, and of each network step of NVLSTree."""

    base: float
    step: float


class Fabric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a fabric differs from the others."""

    several_gpus: float = 1.0
    """Factor of the network efficiency for a pod with several GPUs."""
    step: float | None = None
    """Seconds of every step, measured, in place of `Protocol`."""
    algorithms: tuple[str, ...] = ()
    """The algorithms that its plugin is used with; empty where NCCL chooses."""


@cache
def _words(product: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in re.split(r"[\s_-]+", product))


class GpuLinks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How GPUs of one product reach each other and their NICs."""

    words: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    architecture: str = ""
    nvlink: float = 0.0
    nvswitch: bool = False
    xgmi: float = 0.0
    pcie: int = 5
    """Generation of the GPU's own slot."""
    lanes: int = 16
    c2c: bool = False
    """Whether the GPU is on its CPU's memory bus: NICs reach it from any host bridge of the socket."""

    def matches(self, product: str) -> bool:
        """By whole words: GH200 is not H200, and a MIG slice of a GPU has none of its links."""
        found = _words(product)
        absent = {"mig", *(word.casefold() for word in self.without)}
        return all(word.casefold() in found for word in self.words) and not absent & found


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """NCCL's own figures of a generation of GPUs."""

    tree_channel: tuple[float, float, float]
    """GB/s of one channel of Tree at one, two and more nodes."""
    nvls_efficiency: float = 0.0
    """0 where the generation has no NVLS."""
    pair_share: float | None = None
    """Share of the NVLinks that two GPUs alone reach; None if it is that of many."""


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See `bandwidth.toml` for what each one means and where it comes from."""

    network_efficiency: float
    pcie_gbytes: float
    staged_gbytes: float
    staged_c2c_share: float
    ring_share: float
    nvls_share: float
    nvls_gpus: int
    tree_share: float
    pat_share: float
    xgmi_share: float
    pcie_exchange_gbytes: float
    domain_gbytes: float
    spread: Spread
    protocols: dict[str, Protocol]
    nvls: NvlsLatency
    fabrics: dict[str, Fabric]
    gpus: tuple[GpuLinks, ...]
    architectures: dict[str, Architecture]

    def fabric(self, name: str) -> Fabric:
        """The parameters of a fabric; the defaults for most."""
        return self.fabrics.get(name, _DEFAULT_FABRIC)

    def links(self, gpu: MachineDevice) -> GpuLinks | None:
        """The links of a GPU; None if neither its product is listed nor its shape has them."""
        listed = next((row for row in self.gpus if row.matches(gpu.product)), None)
        if listed is None and gpu.nvlink_gbytes:
            return GpuLinks(architecture=gpu.architecture, nvlink=gpu.nvlink_gbytes)
        return listed


_DEFAULT_FABRIC = Fabric()


@cache
def parameters() -> Parameters:
    """The parameters that ship with the package."""
    text = (resources.files(__package__) / "bandwidth.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), Parameters)
