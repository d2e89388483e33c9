"""Every part there is: each module of this folder that has a `PART`. A new part is a new file and nothing else."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from dranet.driver import parts as folder
from dranet.driver.parts.base import Carrier, Part
from dranet.driver.records.plan import ClaimPlan, DevicePlan, UnreadablePlan, Use

AnyPart = Part[Any]


class Parts:
    """Parts in the order of the way in."""

    def __init__(self, parts: Sequence[AnyPart]) -> None:
        self._parts = sorted(parts, key=lambda part: part.place)
        self._doing: dict[str, list[AnyPart]] = {}
        self._carriers = {part.use: part for part in self._parts if isinstance(part, Carrier)}

    def __iter__(self) -> Iterator[AnyPart]:
        return iter(self._parts)

    def doing(self, step: str) -> list[AnyPart]:
        """The parts that have something to do at this step: asking each of them for each card takes time in a hook."""
        if step not in self._doing:
            self._doing[step] = [p for p in self._parts if getattr(type(p), step) is not getattr(Part, step)]
        return self._doing[step]

    @property
    def homewards(self) -> list[AnyPart]:
        return self._parts[::-1]

    def carrier(self, device: DevicePlan) -> Carrier[Any] | None:
        """The part that brings the device's interface; None for a device without one."""
        found = self._carriers.get(device.use)
        return found if found is not None and found.of(device) is not None else None

    def with_part(self, part: AnyPart) -> Parts:
        """These parts and another, in the place of the one with its tag if there is one."""
        return Parts([*(known for known in self._parts if known.tag != part.tag), part])

    def check(self, plan: ClaimPlan) -> None:
        """Raise UnreadablePlan for a plan with records that no part here understands."""
        tags = {part.tag for part in self._parts}
        for device in plan.devices:
            unknown = sorted(set(device.parts) - tags)
            if unknown:
                what = ", ".join(unknown)
                raise UnreadablePlan(f"it has parts this driver does not know ({what}): run the newer driver again")
            if device.use is Use.SHARED and Use.SHARED not in self._carriers:
                raise UnreadablePlan(f"{device.name} is shared, which this driver cannot do: run the newer one again")
            for part in self._parts:
                part.of(device)


def discover(package: ModuleType = folder) -> Parts:
    """The parts in a folder of modules."""
    names = [module.name for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    modules = [importlib.import_module(name) for name in names if name != __name__]
    return Parts([module.PART for module in modules if hasattr(module, "PART")])


PARTS = discover()
