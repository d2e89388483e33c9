"""Names of PCI vendors and products.

Read from the system's PCI ID list (``PCIDB_PATH``, or where distributions keep it), else from the short list that comes
with this package: network cards only. The big list is a megabyte and a half, so it is searched only for IDs not asked
before; a look at an unchanged node reads nothing.

To renew the short list: ``python -m dranet.inventory.pciids /usr/share/misc/pci.ids > network.ids``
"""

from __future__ import annotations

import gzip
import os
import re
import sys
from collections.abc import Iterator
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
            text = _read(self.path)
        except OSError:
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


def _read(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def _clean(name: bytes) -> str:
    return name.decode("utf-8", "replace").strip()


# What the short list keeps: for makers of network cards everything, for the others what sounds like a network card.
_NETWORK_VENDORS = re.compile("15b3|1d0f|1ae0|1414|1ded|1af4|1425|1137|19e5|1924|18f4|1077|1dd8|8088|1e1f|1f3f")
_MIXED_VENDORS = re.compile("8086|14e4|177d|11ab|1002|1022|10de|10ec|1d6a|1fc9|17cb|10b5|1344")
_NETWORK_WORDS = re.compile(
    rb"ethernet|network|gigabit|gbe|\d+g\b|nic\b|connectx|infiniband|omni-?path|hfi|bluefield"
    rb"|virtual function|nitro|iavf",
    re.IGNORECASE,
)
_NOT_NETWORK = re.compile(rb"thunderbolt|wireless|wi-?fi|802\.11|audio|sata|usb|bridge|graphics", re.IGNORECASE)


def short_list(path: Path) -> Iterator[bytes]:
    """The lines of a full list that concern network cards."""
    vendor = ""
    for line in _read(path).splitlines():
        if line[:1] not in b"\t#" and len(line) > 6:
            vendor = line[:4].decode("ascii", "replace")
            if _NETWORK_VENDORS.fullmatch(vendor) or _MIXED_VENDORS.fullmatch(vendor):
                yield line
        elif line[:1] == b"\t" and line[:2] != b"\t\t" and _is_network(vendor, line):
            yield line


def _is_network(vendor: str, line: bytes) -> bool:
    if _NETWORK_VENDORS.fullmatch(vendor):
        return True
    if not _MIXED_VENDORS.fullmatch(vendor):
        return False
    return _NETWORK_WORDS.search(line) is not None and _NOT_NETWORK.search(line) is None


if __name__ == "__main__":
    head = b"# Network cards of the PCI ID list, https://pci-ids.ucw.cz (3-clause BSD licence).\n"
    sys.stdout.buffer.write(head + b"\n".join(short_list(Path(sys.argv[1]))) + b"\n")
