"""What differs between Kubernetes releases and their feature gates, as data.

Only 1.36 and later search in a defined order, and only with the incubating or experimental allocator. Otherwise pools
and slices come in random order, so a prediction for more than one pool or slice is one of several possible answers;
`defined_order` says which case it is.
"""

from __future__ import annotations

import msgspec

from dranet.scheduler.releases import Gate, Release, Version, as_release

_EXPERIMENTAL = {
    Gate.COMPATIBILITY_GROUPS,
    Gate.DERIVED_ATTRIBUTES,
    Gate.LIST_ATTRIBUTES,
    Gate.OPTIONAL_NODE_OPERATIONS,
}
"""kube-scheduler runs the experimental allocator if one of these is enabled."""
_INCUBATING = {Gate.BINDING_CONDITIONS, Gate.CONSUMABLE_CAPACITY}
"""It runs the incubating allocator if one of these is enabled, otherwise the stable one."""


class Rules(msgspec.Struct, frozen=True):
    """How one release allocates with its feature gates."""

    version: Version
    prioritized_list: bool
    admin_access: bool
    partitionable: bool
    taints: bool
    binding_conditions: bool
    consumable_capacity: bool
    fractional_capacity: bool
    list_attributes: bool
    """Whether constraints compare lists as sets."""
    derived_attributes: bool
    compatibility_groups: bool
    optional_node_operations: bool
    rejects_capacity: bool
    distinct_supported: bool
    skips_permutations: bool
    defined_order: bool
    distinct_remembers_all: bool
    uses_incomplete_pools: bool
    counters_always_relevant: bool
    config_once: bool
    errors_name_device: bool
    capacity_errors_fatal: bool
    step_keeps_format: bool
    shares_draw_once: bool
    limits_each_request: bool
    hides_compatibility_groups: bool
    rejects_derived_attributes: bool
    checks_node_operations: bool


def rules_for(version: str | Version | Release) -> Rules:
    """The rules of a release; raises UnknownVersion."""
    release = as_release(version)
    gates, found = release.gates, release.modelled
    since_36, since_37 = found >= (1, 36), found >= (1, 37)
    experimental = since_37 and bool(gates & _EXPERIMENTAL)
    ordered = experimental or (since_36 and bool(gates & _INCUBATING))
    return Rules(
        version=found,
        prioritized_list=Gate.PRIORITIZED_LIST in gates,
        admin_access=Gate.ADMIN_ACCESS in gates,
        partitionable=Gate.PARTITIONABLE_DEVICES in gates,
        taints=Gate.DEVICE_TAINTS in gates,
        binding_conditions=Gate.BINDING_CONDITIONS in gates,
        consumable_capacity=Gate.CONSUMABLE_CAPACITY in gates,
        fractional_capacity=Gate.FRACTIONAL_CAPACITY in gates,
        # In 1.36 the gate reaches selectors, but not the allocator.
        list_attributes=since_37 and Gate.LIST_ATTRIBUTES in gates,
        derived_attributes=Gate.DERIVED_ATTRIBUTES in gates,
        compatibility_groups=Gate.COMPATIBILITY_GROUPS in gates,
        optional_node_operations=Gate.OPTIONAL_NODE_OPERATIONS in gates,
        # The stable allocator does not look at capacity requests.
        rejects_capacity=Gate.CONSUMABLE_CAPACITY not in gates and (ordered or not since_36),
        distinct_supported=ordered,
        skips_permutations=ordered,
        defined_order=ordered,
        distinct_remembers_all=since_37,
        uses_incomplete_pools=found <= (1, 34),
        counters_always_relevant=not since_37,
        config_once=since_37,
        errors_name_device=since_37,
        capacity_errors_fatal=since_37,
        step_keeps_format=since_37,
        shares_draw_once=since_37,
        limits_each_request=since_37,
        hides_compatibility_groups=since_37 and Gate.COMPATIBILITY_GROUPS not in gates,
        rejects_derived_attributes=since_37 and Gate.DERIVED_ATTRIBUTES not in gates,
        checks_node_operations=experimental,
    )
