"""A shape from ``rocm-smi --showtopo`` or ``amd-smi topology``: AMD GPUs, links, NUMA nodes. Neither shows NICs.

Both print several tables; the one with link types counts, and the lines with NUMA nodes. rocm-smi names GPUs GPU0,
amd-smi by their PCI addresses.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

import msgspec

from dranet.core.errors import InvalidInput
from dranet.core.pci import PciAddress
from dranet.machines.importers.nvidia_smi import MAX_DEVICES, TopologyMatrix, shape_of_matrix
from dranet.machines.shape import Gpu, GpuLink, Shape

_TABLE = re.compile(r"link type(?: between two GPUs| table)", re.IGNORECASE)
_NODE = re.compile(r"GPU\[(\d+)\]\s*:\s*\(Topology\) Numa (?:Node|Affinity):\s*(-?\d+)")
_LABEL = re.compile(r"GPU\d+|[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]")
_LINKS = {"XGMI": "XGMI", "PCIE": "", "0": "X", "SELF": "X"}


def is_rocm_output(text: str) -> bool:
    """Whether there is a table of link types."""
    return _TABLE.search(text) is not None


def shape_of_rocm(text: str, name: str) -> Shape:
    """The machine; PCIe distances follow from the NUMA nodes."""
    table = _TABLE.search(text)
    if table is None:
        raise InvalidInput("no table of link types; pass the whole output of rocm-smi --showtopo or amd-smi topology")
    lines = [line.split() for line in text[table.end() :].splitlines()[1:]]
    addresses, matrix = _read(lines)
    for number, node in _NODE.findall(text):
        if int(node) >= 0:
            matrix.numa[f"GPU{int(number)}"] = node
    shape = shape_of_matrix(matrix, name)
    sources = ["a table of link types as rocm-smi or amd-smi prints it"]
    unknown = [*shape.unknown, "NICs: the table has none"]
    if addresses:
        true = dict(zip((str(gpu.pci) for gpu in shape.gpus), addresses, strict=True))
        shape = msgspec.structs.replace(shape, gpus=[_at(gpu, true) for gpu in shape.gpus])
        unknown[0] = "PCIe roots and switches: invented"
    return msgspec.structs.replace(shape, sources=sources, unknown=unknown)


def _at(gpu: Gpu, true: Mapping[str, str]) -> Gpu:
    """The same GPU and its links with their real addresses, on its own root."""
    pci = PciAddress.parse(true[str(gpu.pci)])
    links = [GpuLink(true[link.to], link.count) for link in gpu.links]
    return msgspec.structs.replace(gpu, path=f"pci{pci.domain:04x}:{pci.bus:02x}/{pci}", links=links)


def _read(lines: list[list[str]]) -> tuple[list[str], TopologyMatrix]:
    head = next((i for i, words in enumerate(lines) if words and all(map(_LABEL.fullmatch, words))), None)
    if head is None or not 0 < len(lines[head]) <= MAX_DEVICES:
        raise InvalidInput(f"the table of link types has no header, or more than {MAX_DEVICES} GPUs")
    labels = lines[head]
    names = {label: f"GPU{i}" for i, label in enumerate(labels)}
    matrix = TopologyMatrix(list(names.values()))
    rows = itertools.takewhile(lambda words: bool(words) and words[0] in names, lines[head + 1 :])
    for label, *cells in rows:
        for column, raw in zip(labels, cells, strict=False):
            value = _LINKS.get(raw.upper())
            if value is None:
                raise InvalidInput(f"row {label}, column {column}: {raw[:20]!r} is neither XGMI nor PCIE")
            if value:
                matrix.cells[names[label], names[column]] = value
    if not matrix.cells:
        raise InvalidInput("the table of link types has no rows")
    return [label for label in labels if PciAddress.find(label)], matrix
