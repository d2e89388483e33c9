"""Detects the format of a file by its content and imports it: users name such files as they like."""

from __future__ import annotations

from dranet.core.errors import InvalidInput
from dranet.machines.importers.common import parse_xml
from dranet.machines.importers.hwloc_xml import shape_of_hwloc
from dranet.machines.importers.nccl_xml import shape_of_nccl
from dranet.machines.importers.nvidia_smi import is_matrix, parse_matrix, shape_of_matrix
from dranet.machines.importers.rocm_smi import is_rocm_output, shape_of_rocm
from dranet.machines.shape import Shape

MAX_BYTES = 16 << 20


def shape_of_text(text: str, name: str, *, nvlinks: int = 0, nvlink_gbytes: float = 0) -> Shape | None:
    """The shape in an XML file or a printed table; None if it is neither and may be YAML."""
    if len(text) > MAX_BYTES:
        raise InvalidInput(f"the file has {len(text)} characters, at most {MAX_BYTES} are allowed")
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return _shape_of_xml(text.lstrip("\ufeff \t\r\n"), name, nvlinks, nvlink_gbytes)
    if is_rocm_output(text):
        return shape_of_rocm(text, name)
    if is_matrix(text):
        return shape_of_matrix(parse_matrix(text), name, nvlink_gbytes=nvlink_gbytes)
    return None


def _shape_of_xml(text: str, name: str, nvlinks: int, nvlink_gbytes: float) -> Shape:
    root = parse_xml(text)
    if root.tag == "system":
        return shape_of_nccl(root, text, name)
    if root.tag == "topology":
        return shape_of_hwloc(root, name, nvlinks=nvlinks, nvlink_gbytes=nvlink_gbytes)
    hint = (
        "; this is NCCL's channel graph, use the file that NCCL_TOPO_DUMP_FILE writes" if root.tag == "graphs" else ""
    )
    raise InvalidInput(f"unknown XML root <{root.tag}>; expected NCCL's <system> or hwloc's <topology>{hint}")
