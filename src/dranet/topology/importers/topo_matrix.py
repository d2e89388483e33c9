"""A shape from a matrix: the plainest PCIe tree that gives the same cells.

A matrix tells distances and nothing else, so addresses are made up and the shape says so. Devices at most PIX apart get
one switch, switches at most PXB apart a switch above them, those at most PHB apart one root, and those at most NODE
apart one NUMA node. What such a tree cannot say (a card that is SYS from everything, NODE over two sockets) is written
down as told, so the matrix of the shape is always the one that was read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from dranet.topology.distance import Distance
from dranet.topology.importers.matrix_text import MatrixText
from dranet.topology.importers.pci_kinds import Numbers, gpu_kind, nic_kind
from dranet.topology.machine import cell, machine_of_shape
from dranet.topology.shape import Gpu, GpuLink, Nic, Numa, Shape

Pair = tuple[str, str]


def shape_of_matrix(matrix: MatrixText, name: str, *, nvlink_gbytes: float = 0) -> Shape:
    """The shape whose matrix is this one, cell by cell."""
    gpus = [label for label in matrix.labels if re.fullmatch(r"GPU\d+", label)]
    nics = [label for label in matrix.labels if label not in gpus]
    places = _places(matrix)
    numa = _numa_nodes(matrix, gpus)
    links, nvlinks = _links(matrix, gpus)
    addresses = {label: places[label].rpartition("/")[2] for label in matrix.labels}
    fabric = "xgmi" if "XGMI" in matrix.cells.values() else "nvlink"
    vendor = Numbers("030200", "1002" if fabric == "xgmi" else "10de")
    most = max(nvlinks.values(), default=0)
    shape = Shape(
        name=name,
        title=f"{len(gpus)} GPUs, {len(nics)} network cards",
        sources=["a matrix as nvidia-smi topo -m prints it"],
        unknown=_unknown(matrix, nics),
        numa=_cpus(matrix, numa),
        gpu_kinds={"gpu": gpu_kind(vendor, nvlinks=most, nvlink_gbytes=nvlink_gbytes, fabric=fabric)},
        nic_kinds={"nic": nic_kind(Numbers("020000"))} if nics else {},
        gpus=[
            Gpu(
                name=f"gpu-{i}",
                kind="gpu",
                path=places[label],
                numa=numa.get(label),
                nvlinks=nvlinks[label] if nvlinks[label] != most else None,
                links=[GpuLink(addresses[other], count) for other, count in links.get(label, {}).items()],
            )
            for i, label in enumerate(gpus)
        ],
        nics=[_nic(matrix, label, places[label], numa.get(label)) for label in nics],
    )
    return _told(shape, matrix, [*gpus, *nics])


def _nic(matrix: MatrixText, label: str, path: str, numa: int | None) -> Nic:
    name = matrix.names.get(label, label if not label.startswith("NIC") else label.lower())
    return Nic(kind="nic", path=path, numa=numa, rdma=name)


def _unknown(matrix: MatrixText, nics: Sequence[str]) -> list[str]:
    found = ["PCI addresses, PCIe roots and switches: made up, the plainest that give these distances"]
    found += ["kinds of GPUs and cards, their memory and their speed"]
    if not any(_first_number(value) is not None for value in matrix.numa.values()):
        found.append("numbers of the NUMA nodes: counted here")
    if any(label.startswith("NIC") and label not in matrix.names for label in nics):
        found.append("names of the RDMA devices: there was no NIC legend")
    missing = sum((a, b) not in matrix.cells for a, b in itertools.combinations(matrix.labels, 2))
    return [*found, f"{missing} distances that could not be read"] if missing else found


def _places(matrix: MatrixText) -> dict[str, str]:
    """A path for every device: root, switch, switch, function; made-up addresses, no two alike."""
    near = {name: _groups(matrix, Distance[name]) for name in ("PIX", "PXB", "PHB")}
    paths: dict[str, str] = {}
    for root, below in enumerate(near["PHB"]):
        functions = itertools.count()
        for upper, cluster in enumerate(group for group in near["PXB"] if group <= below):
            inner = [group for group in near["PIX"] if group <= cluster]
            above = [_address(root, 0, upper), _address(root, 1, upper)] if len(cluster) > 1 else []
            for lower, leaf in enumerate(inner):
                between = [_address(root, 2, lower), _address(root, 3, lower)] if len(inner) > 1 else []
                for label in sorted(leaf, key=matrix.labels.index):
                    steps = [f"pci{root:04x}:00", *above, *between, _address(root, 16, next(functions))]
                    paths[label] = "/".join(steps)
    return paths


def _address(root: int, bus: int, number: int) -> str:
    return f"{root:04x}:{bus:02x}:{number % 32:02x}.{number // 32:x}"


def _groups(matrix: MatrixText, reach: Distance) -> list[set[str]]:
    """Devices joined by cells up to ``reach``, in the order of the matrix."""
    return _joined(
        matrix.labels,
        lambda a, b: matrix.cells.get((a, b), "") in Distance.__members__ and Distance[matrix.cells[a, b]] <= reach,
    )


def _joined(labels: Iterable[str], near: Callable[[str, str], bool]) -> list[set[str]]:
    groups: list[set[str]] = []
    for label in labels:
        mine = [group for group in groups if any(near(label, other) for other in group)]
        groups = [group for group in groups if group not in mine] + [{label}.union(*mine)]
    order = {label: i for i, label in enumerate(labels)}
    return sorted(groups, key=lambda group: min(order[label] for label in group))


def _first_number(text: str) -> int | None:
    match = re.match(r"\d{1,6}", text)
    return int(match[0]) if match else None


def _numa_nodes(matrix: MatrixText, gpus: Sequence[str]) -> dict[str, int]:
    """As the rows say; cards sit where the GPUs do that they are at most NODE away from, if those agree."""
    written = {g: node for g in gpus if (node := _first_number(matrix.numa.get(g, ""))) is not None}
    groups = _groups(matrix, Distance.NODE)
    if not written:
        return {label: i for i, group in enumerate(groups) for label in group}
    found = dict(written)
    for group in groups:
        nodes = {written[label] for label in group if label in written}
        if len(nodes) == 1:
            found.update({label: min(nodes) for label in group})
    return found


def _cpus(matrix: MatrixText, numa: dict[str, int]) -> list[Numa]:
    cpus = {numa[label]: text for label, text in matrix.cpus.items() if label in numa and re.match(r"\d", text)}
    return [Numa(node=node, cpus=cpus.get(node, "")) for node in sorted(set(numa.values()))]


def _links(matrix: MatrixText, gpus: Sequence[str]) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Direct links by GPU, or, where all GPUs that have any meet at a switch, how many go there."""
    counts = {
        (a, b): int(value[2:] or 0) if value.startswith("NV") else 1
        for a, b in itertools.permutations(gpus, 2)
        if (value := matrix.cells.get((a, b), "")).startswith(("NV", "XGMI"))
    }
    joined = [gpu for gpu in gpus if any(gpu in pair for pair in counts)]
    pairs = [pair for pair in itertools.permutations(joined, 2) if pair in matrix.cells]
    if counts and all(pair in counts for pair in pairs) and len(set(counts.values())) == 1 and len(joined) > 2:
        (count,) = set(counts.values())
        return {}, {gpu: count if gpu in joined else 0 for gpu in gpus}
    links: dict[str, dict[str, int]] = {}
    for (a, b), count in counts.items():
        links.setdefault(a, {})[b] = count
    return links, dict.fromkeys(gpus, 0)


def _told(shape: Shape, matrix: MatrixText, order: Sequence[str]) -> Shape:
    """The shape with every known cell that its tree does not give."""
    machine = machine_of_shape(shape, "n")
    parts = dict(zip(order, (*machine.gpus, *machine.nics), strict=True))
    told: dict[str, list[Pair]] = {}
    for a, b in itertools.combinations(order, 2):
        known = matrix.cells.get((a, b), "")
        if known in Distance.__members__ and known != cell(parts[a], parts[b]):
            told.setdefault(known, []).append((parts[a].address, parts[b].address))
    return msgspec.structs.replace(shape, told=told)
