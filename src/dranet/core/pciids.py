"""Names of PCI vendors and products.

The source is the system's PCI ID list (``PCIDB_PATH``, or the usual paths), else the short list in this package, which
has network devices only. The full list has 1.5 MB, so it is searched only for new IDs: a scan of an unchanged node
reads nothing. ``python -m tools.pci_names`` generates the short list from a full one.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from pathlib import Path
from typing import NamedTuple

_UNKNOWN = "unknown"
PATH_VARIABLE = "PCIDB_PATH"
_SYSTEM_PATHS = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids.gz")
SHORT_LIST = Path(__file__).with_name("network.ids")


class PciNames(NamedTuple):
    """The names of a vendor and its product."""

    vendor: str = _UNKNOWN
    product: str = _UNKNOWN


class PciIds:
    """Looks up names in one list, each pair of IDs once."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or find_list()
        self.problem = ""
        """Why names cannot be read; empty if they can."""
        self._known: dict[tuple[str, str], PciNames] = {}

    def names(self, vendor: str, product: str) -> PciNames:
        """Names for two IDs of four hex digits each."""
        key = (vendor.lower(), product.lower())
        if key not in self._known:
            self._known[key] = self._search(*key)
        return self._known[key]

    def _search(self, vendor: str, product: str) -> PciNames:
        """A vendor's line starts with its ID; its products follow, indented by one tab."""
        try:
            text = read_list(self.path)
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            self.problem = f"cannot read the PCI ID list {self.path}: {reason}; vendor and product names are unknown"
            return PciNames()
        start = re.search(rb"^%s  (.*)$" % vendor.encode(), text, re.MULTILINE)
        if start is None:
            return PciNames()
        end = re.compile(rb"^[^\t#\n]", re.MULTILINE).search(text, start.end())
        block = text[start.end() : end.start() if end else len(text)]
        found = re.search(rb"^\t%s  (.*)$" % product.encode(), block, re.MULTILINE)
        return PciNames(_clean(start[1]), _clean(found[1]) if found else _UNKNOWN)


def find_list() -> Path:
    """The list from the environment, else the system's, else ours."""
    named = os.environ.get(PATH_VARIABLE)
    if named:
        return Path(named)
    return next((Path(path) for path in _SYSTEM_PATHS if os.path.exists(path)), SHORT_LIST)


def read_list(path: Path) -> bytes:
    """The whole list, compressed or not."""
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def _clean(name: bytes) -> str:
    return name.decode("utf-8", "replace").strip()
