"""How much of a shared device a request consumes.

The request is rounded to what the device's policy allows; what cannot be rounded is rejected. Amounts are compared
exactly, but steps are computed in whole units (or thousandths, from 1.37), rounding every figure up first.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import msgspec

from dranet.core.quantity import BINARY, Quantity, parse_quantity
from dranet.scheduler.allocation.rules import Rules

_MAX_INT = (1 << 63) - 1
_MILLI = -3
_UNREPRESENTABLE = "capacity request cannot be represented in the device's range arithmetic"


class Policy(msgspec.Struct, frozen=True):
    """Which amounts of a capacity may be asked for (`requestPolicy`): listed values, or a range with a step."""

    default: Quantity | None
    minimum: Quantity | None
    maximum: Quantity | None
    step: Quantity | None
    has_range: bool
    values: tuple[Quantity, ...]


class Capacity(msgspec.Struct, frozen=True):
    """One capacity of a device: how much there is, and what may be taken of it at once."""

    value: Quantity
    policy: Policy | None


class Consumption(msgspec.Struct, frozen=True):
    """What a request takes of each capacity of a device; without `fits_policy` the device cannot serve it at all."""

    amounts: dict[str, Quantity] = msgspec.field(default_factory=dict)
    fits_policy: bool = True
    error: str | None = None


class CapacityError(ValueError):
    """An amount the arithmetic of the allocator cannot express."""


def _quantity(value: Any) -> Quantity | None:
    return None if value is None else parse_quantity(str(value))


@lru_cache
def _all_of(amount: str) -> Capacity:
    """Thousands of devices have the same."""
    return Capacity(parse_quantity(amount), None)


def read_capacity(entry: Any) -> Capacity:
    """A capacity of v1 JSON."""
    if not isinstance(entry, Mapping):
        return _all_of(str(entry))
    whole, policy = _all_of(str(entry.get("value", "0"))), entry.get("requestPolicy")
    return whole if policy is None else Capacity(whole.value, _read_policy(policy))


def _read_policy(policy: Mapping[str, Any]) -> Policy:
    span = policy.get("validRange")
    bounds = span or {}
    return Policy(
        default=_quantity(policy.get("default")),
        minimum=_quantity(bounds.get("min")),
        maximum=_quantity(bounds.get("max")),
        step=_quantity(bounds.get("step")),
        has_range=span is not None,
        values=tuple(parse_quantity(str(value)) for value in policy.get("validValues") or ()),
    )


def consumption(requested: Mapping[str, Quantity], capacity: Mapping[str, Capacity], rules: Rules) -> Consumption:
    """What the request would consume of a device with these capacities."""
    if any(name not in capacity for name in requested):
        return Consumption(fits_policy=False)
    amounts: dict[str, Quantity] = {}
    for name, offered in sorted(capacity.items()):
        try:
            amounts[name] = _consumed(requested.get(name), offered, rules)
            if rules.capacity_errors_fatal and amounts[name].unscaled < 0:
                raise CapacityError("capacity value is negative")
        except CapacityError as error:
            return Consumption(fits_policy=False, error=f'capacity "{name}": {error}')
    allowed = all(not _violates(amounts[name], offered.policy, rules) for name, offered in capacity.items())
    return Consumption(amounts, allowed)


def _consumed(requested: Quantity | None, offered: Capacity, rules: Rules) -> Quantity:
    policy = offered.policy
    if requested is None:
        return policy.default if policy is not None and policy.default is not None else offered.value
    if policy is None:
        return requested
    if policy.has_range and policy.minimum is not None:
        return _round_up(requested, policy, rules)
    return next((value for value in policy.values if requested.compare(value) <= 0), requested)


def _round_up(requested: Quantity, policy: Policy, rules: Rules) -> Quantity:
    assert policy.minimum is not None
    if requested.compare(policy.minimum) < 0:
        return policy.minimum
    if policy.step is None:
        return requested
    unit = _unit(policy, rules)
    if rules.capacity_errors_fatal:
        _check_representable(requested, unit)
    low, step = policy.minimum.rounded_up(unit), _positive(policy.step.rounded_up(unit))
    count = -(-(requested.rounded_up(unit) - low) // step)
    total = low + step * count
    if rules.capacity_errors_fatal and total > _MAX_INT:
        limit = "the milli-value range" if unit else "MaxInt64"
        raise CapacityError(f"{_UNREPRESENTABLE}: rounding request {requested} up to the next step passes {limit}")
    if unit and total % 1000 == 0:
        total, unit = total // 1000, 0
    return Quantity(total, unit, policy.step.format if rules.step_keeps_format else BINARY)


def _check_representable(requested: Quantity, unit: int) -> None:
    if unit and not _exact(requested):
        raise CapacityError(f"{_UNREPRESENTABLE}: request {requested} is not a representable milli value")
    if not unit and requested.value > _MAX_INT:
        raise CapacityError(f"{_UNREPRESENTABLE}: request {requested} exceeds MaxInt64")


def _positive(step: int) -> int:
    if step <= 0:
        raise CapacityError("the step of a valid range must be positive")
    return step


def _unit(policy: Policy, rules: Rules) -> int:
    """0 for whole units, -3 where all of the range can be written in thousandths."""
    parts = (policy.minimum, policy.maximum, policy.step)
    exact = all(part is None or _exact(part) for part in parts)
    return (
        _MILLI if rules.fractional_capacity and exact and policy.step and policy.step.value >= Fraction(1, 1000) else 0
    )


def _exact(quantity: Quantity) -> bool:
    milli = quantity.value * 1000
    return milli.denominator == 1 and abs(milli) <= _MAX_INT


def _violates(amount: Quantity, policy: Policy | None, rules: Rules) -> bool:
    if policy is None or _identical(amount, policy.default):
        return False
    if not policy.has_range:
        return bool(policy.values) and all(amount.compare(value) != 0 for value in policy.values)
    if policy.maximum is not None and amount.compare(policy.maximum) > 0:
        return True
    if policy.step is None:
        return False
    unit = _unit(policy, rules)
    if unit and not _exact(amount):
        return True
    low = policy.minimum.rounded_up(unit) if policy.minimum else 0
    return (amount.rounded_up(unit) - low) % max(policy.step.rounded_up(unit), 1) != 0


def _identical(amount: Quantity, default: Quantity | None) -> bool:
    """The same notation, not just the same value: only then is the policy not checked again."""
    if default is None or amount is default:
        return default is not None
    parts = (amount.unscaled, amount.scale, amount.format, amount.text)
    return not amount.slow and parts == (default.unscaled, default.scale, default.format, default.text)
