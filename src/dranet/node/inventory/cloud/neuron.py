"""Which EFA device belongs to which Neuron device, on the AWS instance types that have both.

The PCI topology does not show the pairing, so it is a table: for each instance type, in order of the Neuron device's
index, the address of its EFA device. AWS publishes the figures for its device plugins
(github.com/aws-neuron/connected-device-maps-over-efa-for-neuron). The group names must equal those of the Neuron
driver, because constraints compare them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache

PREFIX = "resource.aws.com/devicegroup"
GROUP_SIZES = (4, 8, 16)


def _slots(buses: str, slot: str = "00") -> tuple[str, ...]:
    """``"c9 b4"`` becomes the addresses 0000:c9:00.0 and 0000:b4:00.0; ``"10:1a"`` names the slot as well."""
    return tuple(f"0000:{bus if ':' in bus else f'{bus}:{slot}'}.0" for bus in buses.split())


_TRN1_PAIRS = _slots("10:1a a0:1a 20:19 90:19 20:1a 90:1a 10:19 a0:19")
_TABLES: Mapping[str, tuple[str, ...]] = {
    # Two Neuron devices share each EFA device.
    "trn1": tuple(efa for efa in _TRN1_PAIRS for _ in range(2)),
    "trn1n": _slots("10:17 10:1a a0:17 a0:1a 20:19 20:18 90:19 90:18 20:17 20:1a 90:17 90:1a 10:19 10:18 a0:19 a0:18"),
    "trn2": _slots("c9 b4 b3 ca 6c 57 56 6d 98 83 82 99 f5 e0 df f6"),
    "trn3": _slots("be a9 a8 bf 61 4c 4b 62 8d 78 77 8e ea d5 d4 eb"),
    "trn3pds": _slots("a9 a8 bf be d5 d4 eb ea 4c 4b 62 61 78 77 8e 8d"),
}
_MACHINES: Mapping[str, str] = {
    "trn1.32xlarge": "trn1",
    "trn1n.32xlarge": "trn1n",
    **dict.fromkeys(("trn2.48xlarge", "trn2e.48xlarge", "trn2u.48xlarge"), "trn2"),
    **dict.fromkeys(("trn3.48xlarge", "trn3p.48xlarge", "trn3pd98.48xlarge", "trn3s.48xlarge"), "trn3"),
    **dict.fromkeys(("trn3-dev0.48xlarge", "trn3-dev1.48xlarge"), "trn3pds"),
}


@cache
def device_groups(instance_type: str) -> Mapping[str, Mapping[str, str]]:
    """The group attributes of each EFA address of this instance type; empty for other types."""
    addresses = _TABLES.get(_MACHINES.get(instance_type, ""), ())
    return {efa: _groups(addresses, efa) for efa in sorted(set(addresses))}


def _groups(addresses: tuple[str, ...], efa: str) -> dict[str, str]:
    neuron = addresses.index(efa)
    groups = {f"{PREFIX}1_id": efa}
    for size in GROUP_SIZES:
        start = neuron // size * size
        members = ",".join(sorted(set(addresses[start : start + size])))
        groups[f"{PREFIX}{size}_id"] = hashlib.sha256(members.encode()).hexdigest()[:16]
    return groups
