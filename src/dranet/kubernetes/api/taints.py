"""From faults of a device to its taints.

A device with a fault stays published, so that a running claim keeps it and people can see it; the taint keeps new
claims away. Servers before 1.36 drop taints unless a feature gate is on, which the publisher accepts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dranet.core.device import Device, FaultKind, Taint
from dranet.core.errors import InvalidInput
from dranet.core.names import DRIVER_NAME
from dranet.core.slices import TAINT_EFFECTS

OFF = "off"


class TaintPolicy(msgspec.Struct, frozen=True):
    """Which effect each fault has; None means no taint at all."""

    default: str | None = "NoSchedule"
    overrides: Mapping[FaultKind, str | None] = msgspec.field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> TaintPolicy:
        """``NoSchedule``, or ``off``, or one effect for all and others by fault: ``NoSchedule,link-down=None``."""
        default: str | None = "NoSchedule"
        overrides: dict[FaultKind, str | None] = {}
        for part in text.split(","):
            name, equals, effect = (piece.strip() for piece in part.rpartition("="))
            if equals:
                overrides[_fault(name, text)] = _effect(effect, text)
            else:
                default = _effect(effect, text)
        return cls(default, overrides)

    def effect(self, fault: FaultKind) -> str | None:
        """The effect of one fault."""
        return self.overrides.get(fault, self.default)

    def taints(self, faults: Iterable[FaultKind]) -> tuple[Taint, ...]:
        """Taints for these faults, in a fixed order."""
        found = [(fault, self.effect(fault)) for fault in sorted(set(faults))]
        return tuple(Taint(key=f"{DRIVER_NAME}/{fault}", effect=effect) for fault, effect in found if effect)

    def tainted(self, device: Device, faults: Iterable[FaultKind]) -> Device:
        """The device with its taints; the same object where it has none."""
        taints = self.taints(faults)
        return msgspec.structs.replace(device, taints=taints) if taints else device


def _fault(name: str, text: str) -> FaultKind:
    try:
        return FaultKind(name)
    except ValueError:
        raise InvalidInput(f"{text!r}: unknown fault {name!r}; use one of {', '.join(FaultKind)}") from None


def _effect(effect: str, text: str) -> str | None:
    if effect == OFF:
        return None
    if effect not in TAINT_EFFECTS:
        raise InvalidInput(f"{text!r}: unknown effect {effect!r}; use one of {', '.join(TAINT_EFFECTS)} or {OFF}")
    return effect
