"""All features: every module of this folder that has a `FEATURE`. A new feature is one new file."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from dranet.node import features as folder
from dranet.node.features.base import Feature, LinkProvider
from dranet.node.records.plan import AttachMode, ClaimPlan, DevicePlan, UnreadablePlan

AnyFeature = Feature[Any]


class Features:
    """Features in ascending order."""

    def __init__(self, features: Sequence[AnyFeature]) -> None:
        self._features = sorted(features, key=lambda feature: feature.order)
        self._implementing: dict[str, list[AnyFeature]] = {}
        self._providers = {feature.mode: feature for feature in self._features if isinstance(feature, LinkProvider)}

    def __iter__(self) -> Iterator[AnyFeature]:
        return iter(self._features)

    def implementing(self, step: str) -> list[AnyFeature]:
        """The features that define a step. Cached, because hooks ask for every step of every pod."""
        if step not in self._implementing:
            default = getattr(Feature, step)
            self._implementing[step] = [f for f in self._features if getattr(type(f), step) is not default]
        return self._implementing[step]

    @property
    def in_detach_order(self) -> list[AnyFeature]:
        return self._features[::-1]

    def link_provider(self, device: DevicePlan) -> LinkProvider[Any] | None:
        """The feature that provides the device's interface; None for a device without one."""
        found = self._providers.get(device.mode)
        return found if found is not None and found.record_of(device) is not None else None

    def with_feature(self, feature: AnyFeature) -> Features:
        """These features and another one, which replaces the one with its tag."""
        return Features([*(known for known in self._features if known.tag != feature.tag), feature])

    def check(self, plan: ClaimPlan) -> None:
        """Raise UnreadablePlan for a plan with records of unknown features."""
        tags = {feature.tag for feature in self._features}
        for device in plan.devices:
            unknown = sorted(set(device.feature_records) - tags)
            if unknown:
                names = ", ".join(unknown)
                raise UnreadablePlan(f"this driver does not support its features {names}; run the newer driver again")
            if device.mode is AttachMode.SHARED and AttachMode.SHARED not in self._providers:
                raise UnreadablePlan(f"this driver cannot share {device.name}; run the newer driver again")
            for feature in self._features:
                feature.record_of(device)


def discover(package: ModuleType = folder) -> Features:
    """The features in a folder of modules."""
    names = [module.name for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    modules = [importlib.import_module(name) for name in names if name != __name__]
    return Features([module.FEATURE for module in modules if hasattr(module, "FEATURE")])


FEATURES = discover()
