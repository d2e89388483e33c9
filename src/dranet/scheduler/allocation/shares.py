"""Texts about shares of devices: the capacity that a claim consumes and the capacity that is left.

Kubernetes 1.36 writes rounded quantities in binary notation: 30G becomes 29296875Ki. The texts use the shorter one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from dranet.core.quantity import BINARY, DECIMAL, Quantity, parse_quantity


def share_text(result: Mapping[str, Any]) -> str:
    """What a device of a claim consumes, such as ``10G bandwidth``; empty for a device that is not shared."""
    if not result.get("shareID"):
        return ""
    consumed = {name: parse_quantity(str(amount)).value for name, amount in _consumed(result)}
    return ", ".join(f"{_amount(amount)} {_short(name)}" for name, amount in sorted(consumed.items()) if amount)


def _consumed(result: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    return (result.get("consumedCapacity") or {}).items()


def shortest(amount: str) -> str:
    """A quantity in the shorter notation."""
    return _amount(parse_quantity(amount).value)


def left_text(name: str, taken: Fraction, total: Quantity) -> str:
    """What is left of a capacity, such as ``30G of 100G bandwidth``."""
    return f"{_amount(total.value - taken)} of {total} {_short(name)}"


def taken_text(name: str, amounts: Iterable[str], total: str) -> str:
    """What all shares together take of a capacity, such as ``70G of 100G``."""
    taken = sum((parse_quantity(amount).value for amount in amounts), Fraction(0))
    return f"{_amount(taken)} of {total} {_short(name)}"


def _amount(value: Fraction) -> str:
    return min((str(Quantity(int(value), 0, notation)) for notation in (DECIMAL, BINARY)), key=len)


def _short(name: str) -> str:
    return name.rpartition("/")[2]
