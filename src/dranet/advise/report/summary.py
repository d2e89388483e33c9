"""Hand-written results: a Markdown table with one run a row and a column for bus bandwidth.

The figures are rounded and for large messages; other columns may name GPUs, NICs, distance and GPUDirect.
"""

from __future__ import annotations

import re

from dranet.advise.report.runs import Evidence, Run

_NODES = re.compile(r"\b(\d+)[- ](?:nodes?|workers?|pods?)\b", re.IGNORECASE)
_FIGURE = re.compile(r"[~≈]?\s*([\d.]+)\s*(GB/s|Gb/s|Gbps|GBps)?")
_NIC = re.compile(r"\b(mlx5_\d+|gpu\d+rdma\d+|(?:ib|rdma|bnxt_re|rocep\w*|efa_)\d+)\b")
_GPU = re.compile(r"\bgpu-?\d+\b", re.IGNORECASE)
_DISTANCE = re.compile(r"\b(PIX|PXB|PHB|NODE|SYS)\b")
_NO = ("✗", "✘", "no", "off", "false")


def cells(line: str) -> list[str] | None:
    """The cells of a table line, without emphasis and quotes."""
    text = line.strip()
    if not (text.startswith("|") and text.endswith("|") and len(text) > 2):
        return None
    return [re.sub(r"[*`]", "", cell).strip() for cell in text[1:-1].split("|")]


def is_header(row: list[str]) -> bool:
    """Whether a column is for bus bandwidth."""
    return any("busbw" in cell.lower() or "bus bandwidth" in cell.lower() for cell in row)


def is_rule(row: list[str]) -> bool:
    """The line of dashes below a header."""
    return all(re.fullmatch(r":?-+:?", cell) for cell in row)


def nodes_named(line: str) -> int | None:
    """The number of nodes in the text around the table."""
    found = _NODES.search(line)
    return int(found[1]) if found else None


def read_run(header: list[str], row: list[str], collective: str, nodes: int | None) -> Run | None:
    """One row of the table; None without a readable figure."""
    by_name = dict(zip((cell.lower() for cell in header), row, strict=False))
    figure = next((_figure(cell) for name, cell in by_name.items() if "busbw" in name or "bus bandwidth" in name), None)
    if figure is None:
        return None
    text = " | ".join(row)
    gpus = tuple(dict.fromkeys(_GPU.findall(text)))
    return Run(
        collective,
        world=nodes * max(1, len(gpus)) if nodes else None,
        printed_average=figure,
        title=row[0],
        large_messages=True,
        evidence=_evidence(by_name, text, gpus),
    )


def _evidence(by_name: dict[str, str], text: str, gpus: tuple[str, ...]) -> Evidence:
    nics = tuple(dict.fromkeys(_NIC.findall(text)))
    distance = _DISTANCE.search(text)
    direct = next((cell for name, cell in by_name.items() if "gdr" in name or "gpudirect" in name), "")
    off = direct.lower() in _NO
    return Evidence(
        nics={"": nics} if nics else {},
        gpus=gpus,
        distance=distance[0] if distance else "",
        direct=(f"GDR {direct}",) if direct and not off else (),
        staged=(f"GDR {direct}",) if off else (),
    )


def _figure(cell: str) -> float | None:
    found = _FIGURE.fullmatch(cell.strip())
    if found is None:
        return None
    bits = (found[2] or "GB/s") in {"Gb/s", "Gbps"}
    return float(found[1]) / (8 if bits else 1)
