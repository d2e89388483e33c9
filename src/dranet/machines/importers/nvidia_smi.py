"""A shape from the matrix that `nvidia-smi topo -m` prints: the simplest PCIe tree with the same distances.

Real output is separated by tabs, underlined by escape codes, and has empty CPU columns in a container; pasted output
has spaces, bars and cut lines. Cells that cannot be read are ``?`` and stay unknown. Old drivers print SOC for SYS.

A matrix has distances only, so addresses are invented, and the shape says so. Devices at most PIX apart get one switch,
switches at most PXB apart a switch above them, those at most PHB apart one root, and those at most NODE apart one NUMA
node. Distances that such a tree cannot have (a NIC that is SYS from everything, NODE over two sockets) are recorded, so
that the shape always has the matrix that was read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from dranet.core.errors import InvalidInput
from dranet.machines.distance import Distance
from dranet.machines.importers.common import PciIdentity, gpu_kind, nic_kind
from dranet.machines.machine import machine_of_shape, matrix_cell
from dranet.machines.shape import Gpu, GpuLink, Nic, Numa, Shape

MAX_DEVICES = 256
CELL = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC|XGMI|C2C|\?|N/A")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU\d+")
_LEGEND = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*")
_AFFINITY = re.compile(r"(CPU|NUMA) Affinity|GPU NUMA ID", re.IGNORECASE)


class TopologyMatrix(msgspec.Struct):
    """Labels in order, the known cells of both halves, and the columns right of them."""

    labels: list[str]
    cells: dict[tuple[str, str], str] = msgspec.field(default_factory=dict)
    cpus: dict[str, str] = msgspec.field(default_factory=dict)
    numa: dict[str, str] = msgspec.field(default_factory=dict)
    names: dict[str, str] = msgspec.field(default_factory=dict)
    """Names in the NIC legend."""


def is_matrix(text: str) -> bool:
    """Whether a line is the header of such a table."""
    return any(_header(line) for line in _clean(text))


def parse_matrix(text: str) -> TopologyMatrix:
    """The first matrix in a text."""
    lines = _clean(text)
    start, head = next(((i, one) for i, line in enumerate(lines) if (one := _header(line))), (0, None))
    if head is None:
        raise InvalidInput("no header line that begins with GPU0; pass the whole output of nvidia-smi topo -m")
    labels, columns = head
    if len(labels) > MAX_DEVICES:
        raise InvalidInput(f"{len(labels)} columns, at most {MAX_DEVICES} are allowed")
    found = TopologyMatrix(labels)
    for line in lines[start + 1 :]:
        if legend := _LEGEND.fullmatch(line):
            found.names[legend[1]] = legend[2]
        elif line.split(None, 1)[:1] and line.split(None, 1)[0] in labels:
            _row(found, line, columns)
    if not any(row == one for row, one in found.cells if row.startswith("GPU")):
        raise InvalidInput("the matrix has no GPU rows after its header")
    return found


def _clean(text: str) -> list[str]:
    lines = _ESCAPES.sub("", text).replace("\r", "").splitlines()
    return [re.sub(r"^\s*(?:>\s?)+|[|│]", " ", line).rstrip() for line in lines]


def _header(line: str) -> tuple[list[str], list[str]] | None:
    """The labels and the columns right of them, if the line is the header of a matrix: names, no cells."""
    columns = [match[0].lower() for match in _AFFINITY.finditer(line)]
    labels = _AFFINITY.sub(" ", line).split()
    if not labels or not _GPU.fullmatch(labels[0]) or any(CELL.fullmatch(label) for label in labels):
        return None
    if len(set(labels)) != len(labels):
        raise InvalidInput(f"the header of the matrix has a device twice: {line.strip()[:80]}")
    return labels, columns


def _row(found: TopologyMatrix, line: str, columns: list[str]) -> None:
    label, *rest = line.split()
    count = len(found.labels)
    cells, affinity = rest[:count], rest[count:]
    for column, raw in zip(found.labels, cells, strict=False):
        if not CELL.fullmatch(raw):
            raise InvalidInput(
                f"row {label}, column {column}: {raw[:20]!r} is not one of X, NV#, PIX, PXB, PHB, NODE, SYS"
            )
        _cell(found, label, column, {"SOC": "SYS"}.get(raw, raw))
    for name, value in zip(columns, _affinities(line, affinity, columns, count), strict=False):
        if name == "cpu affinity":
            found.cpus[label] = value
        elif name == "numa affinity":
            found.numa[label] = value


def _affinities(line: str, affinity: list[str], columns: list[str], count: int) -> list[str]:
    """The values right of the cells. With tabs an empty CPU list has a column; with spaces it is missing."""
    if line.count("\t") > count:
        return [field.strip() for field in line.split("\t")[count + 1 :]]
    missing = len(columns) - len(affinity)
    return [""] * missing + affinity if affinity and missing > 0 else affinity


def _cell(found: TopologyMatrix, row: str, column: str, value: str) -> None:
    if value in {"?", "N/A"}:
        return
    if (value == "X") != (row == column):
        raise InvalidInput(f"row {row}, column {column}: X is valid only on the diagonal")
    known = found.cells.get((column, row), value)
    if known != value:
        raise InvalidInput(f"{row} to {column} is {value}, {column} to {row} is {known}: a matrix must be symmetric")
    found.cells[row, column] = found.cells[column, row] = value


_Pair = tuple[str, str]


def shape_of_matrix(matrix: TopologyMatrix, name: str, *, nvlink_gbytes: float = 0) -> Shape:
    """The shape with exactly this matrix."""
    gpus = [label for label in matrix.labels if re.fullmatch(r"GPU\d+", label)]
    nics = [label for label in matrix.labels if label not in gpus]
    paths_of = _paths(matrix)
    numa = _numa_nodes(matrix, gpus)
    links, nvlinks = _links(matrix, gpus)
    addresses = {label: paths_of[label].rpartition("/")[2] for label in matrix.labels}
    fabric = "xgmi" if "XGMI" in matrix.cells.values() else "nvlink"
    vendor = PciIdentity("030200", "1002" if fabric == "xgmi" else "10de")
    most = max(nvlinks.values(), default=0)
    shape = Shape(
        name=name,
        title=f"{len(gpus)} GPUs, {len(nics)} NICs",
        sources=["a matrix as nvidia-smi topo -m prints it"],
        unknown=_unknown(matrix, nics),
        numa=_cpus(matrix, numa),
        gpu_kinds={"gpu": gpu_kind(vendor, nvlinks=most, nvlink_gbytes=nvlink_gbytes, fabric=fabric)},
        nic_kinds={"nic": nic_kind(PciIdentity("020000"))} if nics else {},
        gpus=[
            Gpu(
                name=f"gpu-{i}",
                kind="gpu",
                path=paths_of[label],
                numa=numa.get(label),
                nvlinks=nvlinks[label] if nvlinks[label] != most else None,
                links=[GpuLink(addresses[other], count) for other, count in links.get(label, {}).items()],
            )
            for i, label in enumerate(gpus)
        ],
        nics=[_nic(matrix, label, paths_of[label], numa.get(label)) for label in nics],
    )
    return _with_recorded(shape, matrix, [*gpus, *nics])


def _nic(matrix: TopologyMatrix, label: str, path: str, numa: int | None) -> Nic:
    name = matrix.names.get(label, label if not label.startswith("NIC") else label.lower())
    return Nic(kind="nic", path=path, numa=numa, rdma=name)


def _unknown(matrix: TopologyMatrix, nics: Sequence[str]) -> list[str]:
    found = ["PCI addresses, PCIe roots and switches: invented, the simplest with these distances"]
    found += ["kinds of GPUs and NICs, their memory and their speed"]
    if not any(_first_number(value) is not None for value in matrix.numa.values()):
        found.append("numbers of the NUMA nodes: assigned in order")
    if any(label.startswith("NIC") and label not in matrix.names for label in nics):
        found.append("names of the RDMA devices: the output has no NIC legend")
    missing = sum((a, b) not in matrix.cells for a, b in itertools.combinations(matrix.labels, 2))
    return [*found, f"{missing} unreadable distances"] if missing else found


def _paths(matrix: TopologyMatrix) -> dict[str, str]:
    """A path for every device: root, switch, switch, function, with unique invented addresses."""
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


def _groups(matrix: TopologyMatrix, reach: Distance) -> list[set[str]]:
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


def _numa_nodes(matrix: TopologyMatrix, gpus: Sequence[str]) -> dict[str, int]:
    """From the rows; a NIC is on the node of the GPUs at most NODE away, if they are on one node."""
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


def _cpus(matrix: TopologyMatrix, numa: dict[str, int]) -> list[Numa]:
    cpus = {numa[label]: text for label, text in matrix.cpus.items() if label in numa and re.match(r"\d", text)}
    return [Numa(node=node, cpus=cpus.get(node, "")) for node in sorted(set(numa.values()))]


def _links(matrix: TopologyMatrix, gpus: Sequence[str]) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Direct links by GPU; or, if all GPUs with links have equally many to each other, the links to a switch."""
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


def _with_recorded(shape: Shape, matrix: TopologyMatrix, order: Sequence[str]) -> Shape:
    """The shape with every known distance that its tree does not have."""
    machine = machine_of_shape(shape, "n")
    parts = dict(zip(order, (*machine.gpus, *machine.nics), strict=True))
    recorded: dict[str, list[_Pair]] = {}
    for a, b in itertools.combinations(order, 2):
        known = matrix.cells.get((a, b), "")
        if known in Distance.__members__ and known != matrix_cell(parts[a], parts[b]):
            recorded.setdefault(known, []).append((parts[a].address, parts[b].address))
    return msgspec.structs.replace(shape, recorded_distances=recorded)
