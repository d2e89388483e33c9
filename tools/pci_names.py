"""Renew the short list of PCI names that comes with the package, from a full one.

python -m tools.pci_names /usr/share/misc/pci.ids
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from dranet.core.pciids import SHORT_LIST, read_list

# What the short list keeps: everything of NIC vendors, and of others what sounds like a NIC.
_NETWORK_VENDORS = re.compile("15b3|1d0f|1ae0|1414|1ded|1af4|1425|1137|19e5|1924|18f4|1077|1dd8|8088|1e1f|1f3f")
_MIXED_VENDORS = re.compile("8086|14e4|177d|11ab|1002|1022|10de|10ec|1d6a|1fc9|17cb|10b5|1344")
_NETWORK_WORDS = re.compile(
    rb"ethernet|network|gigabit|gbe|\b\d{1,3}g\b|nic\b|connectx|infiniband|omni-?path|hfi|bluefield"
    rb"|virtual function|nitro|iavf",
    re.IGNORECASE,
)
_NOT_NETWORK = re.compile(rb"thunderbolt|wireless|wi-?fi|802\.11|audio|sata|usb|bridge|graphics", re.IGNORECASE)


def short_list(path: Path) -> Iterator[bytes]:
    """The lines of a full list that concern NICs."""
    vendor = ""
    for line in read_list(path).splitlines():
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
    head = b"# Network devices of the PCI ID list, https://pci-ids.ucw.cz; see network.ids.LICENSE.\n"
    SHORT_LIST.write_bytes(head + b"\n".join(short_list(Path(sys.argv[1]))) + b"\n")
