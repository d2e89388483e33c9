"""GB200 and GB300: what a job needs beside its claims to use NVLink between nodes.

Their NVLink reaches over a whole rack, but memory is shared between nodes only inside a ComputeDomain of NVIDIA's
driver. It makes a claim template of its own, for a channel, that every pod of the job names beside its claim for GPUs
and cards. Whether the nodes are in one NVLink domain is told by their label nvidia.com/gpu.clique, not by slices.
"""

from __future__ import annotations

from dranet.predict.hardware import RACK_WIDE, Hardware


def compute_domain(hardware: Hardware, gpus: int, nics: int) -> str:
    """A ComputeDomain with words about it, where some machine has such GPUs; else nothing."""
    if gpus == 0 or not any(product in name for name in _product_names(hardware) for product in RACK_WIDE):
        return ""
    name = f"{gpus}gpu-{nics}nic" if nics else f"{gpus}gpu"
    return (
        "---\n"
        "# For jobs over several nodes of one NVLink domain (equal label nvidia.com/gpu.clique) on GB200 or GB300:\n"
        "# one ComputeDomain a job. Every pod names two claims: the one above, and the channel, whose template\n"
        "# NVIDIA's driver makes. It is not part of what was planned.\n"
        "apiVersion: resource.nvidia.com/v1beta1\n"
        "kind: ComputeDomain\n"
        "metadata:\n"
        f"  name: {name}\n"
        "spec:\n"
        "  numNodes: 0\n"
        "  channel:\n"
        "    resourceClaimTemplate:\n"
        f"      name: {name}-channel\n"
    )


def _product_names(hardware: Hardware) -> set[str]:
    attributes = (unit.raw.get("attributes") or {} for unit in hardware.units)
    return {str(values.get("productName", {}).get("string", "")) for values in attributes}
