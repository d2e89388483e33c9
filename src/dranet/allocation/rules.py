"""What changed between Kubernetes releases, as data.

Only 1.36 and 1.37 search in a defined order. Before that pools and slices came in random order, so a prediction for
more than one pool or slice is one of several possible answers; `defined_order` says which case it is.
"""

from __future__ import annotations

import msgspec

from dranet.allocation.kubernetes_cel import CelFeatures, parse_version


class Rules(msgspec.Struct, frozen=True):
    """How one release allocates, with the feature gates it has on by default."""

    version: tuple[int, int]
    prioritized_list: bool = True
    admin_access: bool = True
    partitionable: bool = True
    taints: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    distinct_supported: bool = True
    distinct_remembers_all: bool = True
    skips_permutations: bool = True
    uses_incomplete_pools: bool = False
    defined_order: bool = True
    counters_always_relevant: bool = False
    config_once: bool = True
    errors_name_device: bool = True
    fractional_capacity: bool = True
    capacity_errors_fatal: bool = True
    step_keeps_format: bool = True
    shares_draw_once: bool = True

    @property
    def cel_features(self) -> CelFeatures:
        return CelFeatures(consumable_capacity=self.consumable_capacity)

    @property
    def text(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"


def rules_for(version: str) -> Rules:
    """The rules of a release such as "1.36"; raises UnknownVersion."""
    found = parse_version(version)
    if found >= (1, 37):
        return Rules(found)
    since_36 = found >= (1, 36)
    return Rules(
        found,
        prioritized_list=found >= (1, 34),
        admin_access=found >= (1, 34),
        partitionable=since_36,
        taints=since_36,
        binding_conditions=since_36,
        consumable_capacity=since_36,
        distinct_supported=since_36,
        distinct_remembers_all=False,
        skips_permutations=since_36,
        uses_incomplete_pools=found <= (1, 34),
        defined_order=since_36,
        counters_always_relevant=True,
        config_once=False,
        errors_name_device=False,
        fractional_capacity=False,
        capacity_errors_fatal=False,
        step_keeps_format=False,
        shares_draw_once=False,
    )
