"""Names of PCI vendors and products.

Read from the system's PCI ID list (``PCIDB_PATH``, or where distributions keep it), else from the short list that comes
with this package: network cards only. The big list is a megabyte and a half, so it is searched only for IDs not asked
before; a look at an unchanged node reads nothing.

The short list is made from a full one by ``python -m tools.pci_names``.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from pathlib import Path
from typing import NamedTuple

UNKNOWN = "unknown"
PATH_VARIABLE = "PCIDB_PATH"
SYSTEM_PATHS = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids.gz")
SHORT_LIST = Path(__file__).with_name("network.ids")


class PciNames(NamedTuple):
    """What people call a vendor and its product."""

    vendor: str = UNKNOWN
    product: str = UNKNOWN


class PciIds:
    """Looks names up in one list, each pair of IDs once."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or find_list()
        self.problem = ""
        """Why no names are known, where that is so."""
        self._known: dict[tuple[str, str], PciNames] = {}

    def names(self, vendor: str, product: str) -> PciNames:
        """Names for two IDs of four hex digits each."""
        key = (vendor.lower(), product.lower())
        if key not in self._known:
            self._known[key] = self._search(*key)
        return self._known[key]

    def _search(self, vendor: str, product: str) -> PciNames:
        """Vendors start a line with their ID; their products follow, each indented by one tab."""
        try:
            text = read_list(self.path)
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            self.problem = f"names of PCI vendors and products are not known: cannot read {self.path}: {reason}"
            return PciNames()
        start = re.search(rb"^%s  (.*)$" % vendor.encode(), text, re.MULTILINE)
        if start is None:
            return PciNames()
        end = re.compile(rb"^[^\t#\n]", re.MULTILINE).search(text, start.end())
        block = text[start.end() : end.start() if end else len(text)]
        found = re.search(rb"^\t%s  (.*)$" % product.encode(), block, re.MULTILINE)
        return PciNames(_clean(start[1]), _clean(found[1]) if found else UNKNOWN)


def find_list() -> Path:
    """The list to use: the one the environment names, the system's, or ours."""
    named = os.environ.get(PATH_VARIABLE)
    if named:
        return Path(named)
    return next((Path(path) for path in SYSTEM_PATHS if os.path.exists(path)), SHORT_LIST)


def read_list(path: Path) -> bytes:
    """The whole list, compressed or not."""
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def _clean(name: bytes) -> str:
    return name.decode("utf-8", "replace").strip()
