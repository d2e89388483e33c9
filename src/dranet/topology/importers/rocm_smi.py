"""A shape from ``rocm-smi --showtopo`` or ``amd-smi topology``: AMD GPUs, links, NUMA nodes. Neither shows cards.

Both print several tables; the one that says link types counts, and the lines that name NUMA nodes. rocm-smi calls GPUs
GPU0, amd-smi by their PCI addresses.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

import msgspec

from dranet.model.errors import InvalidInput
from dranet.model.pci import PciAddress
from dranet.topology.importers.matrix_text import MOST_DEVICES, MatrixText
from dranet.topology.importers.topo_matrix import shape_of_matrix
from dranet.topology.shape import Gpu, GpuLink, Shape

_TABLE = re.compile(r"link type(?: between two GPUs| table)", re.IGNORECASE)
_NODE = re.compile(r"GPU\[(\d+)\]\s*:\s*\(Topology\) Numa (?:Node|Affinity):\s*(-?\d+)")
_LABEL = re.compile(r"GPU\d+|[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]")
_LINKS = {"XGMI": "XGMI", "PCIE": "", "0": "X", "SELF": "X"}


def looks_like_rocm(text: str) -> bool:
    """Whether there is a table of link types."""
    return _TABLE.search(text) is not None


def shape_of_rocm(text: str, name: str) -> Shape:
    """The machine; distances over PCIe that the table does not tell stay as the NUMA nodes give them."""
    table = _TABLE.search(text)
    if table is None:
        raise InvalidInput("no table of link types: give the whole output of rocm-smi --showtopo or amd-smi topology")
    lines = [line.split() for line in text[table.end() :].splitlines()[1:]]
    addresses, matrix = _read(lines)
    for number, node in _NODE.findall(text):
        if int(node) >= 0:
            matrix.numa[f"GPU{int(number)}"] = node
    shape = shape_of_matrix(matrix, name)
    sources = ["a table of link types as rocm-smi or amd-smi prints it"]
    unknown = [*shape.unknown, "network cards: the table has none"]
    if addresses:
        true = dict(zip((str(gpu.pci) for gpu in shape.gpus), addresses, strict=True))
        shape = msgspec.structs.replace(shape, gpus=[_at(gpu, true) for gpu in shape.gpus])
        unknown[0] = "PCIe roots and switches: made up"
    return msgspec.structs.replace(shape, sources=sources, unknown=unknown)


def _at(gpu: Gpu, true: Mapping[str, str]) -> Gpu:
    """The same GPU and its links at their true addresses, on a root of its own."""
    pci = PciAddress.parse(true[str(gpu.pci)])
    links = [GpuLink(true[link.to], link.count) for link in gpu.links]
    return msgspec.structs.replace(gpu, path=f"pci{pci.domain:04x}:{pci.bus:02x}/{pci}", links=links)


def _read(lines: list[list[str]]) -> tuple[list[str], MatrixText]:
    head = next((i for i, words in enumerate(lines) if words and all(map(_LABEL.fullmatch, words))), None)
    if head is None or not 0 < len(lines[head]) <= MOST_DEVICES:
        raise InvalidInput(f"the table of link types has no line of GPU names, or more than {MOST_DEVICES}")
    labels = lines[head]
    names = {label: f"GPU{i}" for i, label in enumerate(labels)}
    matrix = MatrixText(list(names.values()))
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
