"""Which format a file is in, told by its content: people name such files as they like."""

from __future__ import annotations

from dranet.model.errors import InvalidInput
from dranet.topology.importers.hwloc_xml import shape_of_hwloc
from dranet.topology.importers.matrix_text import looks_like_matrix, read_matrix
from dranet.topology.importers.nccl_xml import shape_of_nccl
from dranet.topology.importers.rocm_smi import looks_like_rocm, shape_of_rocm
from dranet.topology.importers.topo_matrix import shape_of_matrix
from dranet.topology.importers.xml_reading import read_xml
from dranet.topology.shape import Shape

MOST_BYTES = 16 << 20


def shape_of_text(text: str, name: str, *, nvlinks: int = 0, nvlink_gbytes: float = 0) -> Shape | None:
    """The shape of an XML file or a printed table; None where it is neither, and may be YAML."""
    if len(text) > MOST_BYTES:
        raise InvalidInput(f"{len(text)} characters; at most {MOST_BYTES} are read")
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return _of_xml(text.lstrip("\ufeff \t\r\n"), name, nvlinks, nvlink_gbytes)
    if looks_like_rocm(text):
        return shape_of_rocm(text, name)
    if looks_like_matrix(text):
        return shape_of_matrix(read_matrix(text), name, nvlink_gbytes=nvlink_gbytes)
    return None


def _of_xml(text: str, name: str, nvlinks: int, nvlink_gbytes: float) -> Shape:
    root = read_xml(text)
    if root.tag == "system":
        return shape_of_nccl(root, text, name)
    if root.tag == "topology":
        return shape_of_hwloc(root, name, nvlinks=nvlinks, nvlink_gbytes=nvlink_gbytes)
    hint = ": that is NCCL's graph of channels; NCCL_TOPO_DUMP_FILE writes the topology" if root.tag == "graphs" else ""
    raise InvalidInput(f"XML of <{root.tag}>, neither NCCL's <system> nor hwloc's <topology>{hint}")
