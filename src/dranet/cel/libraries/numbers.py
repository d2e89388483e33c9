"""Quantities and versions as CEL objects, with the functions of the Kubernetes libraries.

Two oddities are kept on purpose. A sum of quantities can be compared from the left but not from the right
(`quantity("1") == a.add(b)` has no overload). Versions ignore build metadata when compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD, Err
from dranet.cel.functions import Declaration, Library, functions
from dranet.cel.values import Opaque
from dranet.core.quantity import EXPONENT, Quantity, QuantityError, parse_quantity

QUANTITY = t.struct("kubernetes.Quantity")
SEMVER = t.struct("kubernetes.Semver")
_ALPHANUMERIC = re.compile(r"[0-9A-Za-z-]*", re.ASCII)
_NUMERIC = re.compile(r"[0-9]*", re.ASCII)
_MAX_UINT = (1 << 64) - 1


@dataclass(frozen=True, slots=True, eq=False)
class QuantityValue(Opaque):
    quantity: Quantity
    computed: bool = False
    type = QUANTITY

    def equal(self, other: Any) -> Any:
        if not isinstance(other, QuantityValue) or other.computed:
            return NO_SUCH_OVERLOAD
        return self.quantity == other.quantity

    def __str__(self) -> str:
        return str(self.quantity)


def _quantity(text: str) -> Any:
    try:
        return QuantityValue(parse_quantity(text))
    except QuantityError as error:
        return Err(str(error))


def _as_integer(value: QuantityValue) -> Any:
    found = value.quantity.as_int64()
    return Err("cannot convert value to integer") if found is None else found


def _number(value: QuantityValue | int) -> Quantity:
    return value.quantity if isinstance(value, QuantityValue) else Quantity(value, format=EXPONENT)


def _add(left: QuantityValue, right: QuantityValue | int) -> QuantityValue:
    return QuantityValue(left.quantity.add(_number(right)), computed=True)


def _sub(left: QuantityValue, right: QuantityValue | int) -> QuantityValue:
    return QuantityValue(left.quantity.sub(_number(right)), computed=True)


def _compare(left: QuantityValue, right: QuantityValue) -> int:
    return left.quantity.compare(right.quantity)


def _sign(value: QuantityValue) -> int:
    return (value.quantity.unscaled > 0) - (value.quantity.unscaled < 0)


QUANTITIES = Library(
    "kubernetes.quantity",
    functions=functions(
        ("quantity", "string_to_quantity", "(string) -> Quantity", _quantity),
        ("isQuantity", "is_quantity_string", "(string) -> bool", lambda text: _quantity(text).__class__ is not Err),
        ("sign", "quantity_sign", "(Quantity) -> int", _sign),
        ("isGreaterThan", "quantity_is_greater_than", "Quantity.(Quantity) -> bool", lambda a, b: _compare(a, b) > 0),
        ("isLessThan", "quantity_is_less_than", "Quantity.(Quantity) -> bool", lambda a, b: _compare(a, b) < 0),
        ("compareTo", "quantity_compare_to", "Quantity.(Quantity) -> int", _compare),
        ("asApproximateFloat", "quantity_get_float", "Quantity.() -> double", lambda a: a.quantity.as_float()),
        ("asInteger", "quantity_get_int", "Quantity.() -> int", _as_integer),
        ("isInteger", "quantity_is_integer", "Quantity.() -> bool", lambda a: a.quantity.as_int64() is not None),
        ("add", "quantity_add", "Quantity.(Quantity) -> Quantity", _add),
        ("add", "quantity_add_int", "Quantity.(int) -> Quantity", _add),
        ("sub", "quantity_sub", "Quantity.(Quantity) -> Quantity", _sub),
        ("sub", "quantity_sub_int", "Quantity.(int) -> Quantity", _sub),
    ),
)


class SemverError(ValueError):
    """The text is not a semantic version."""


@dataclass(frozen=True, slots=True, eq=False)
class Semver(Opaque):
    """A semantic version; `pre` holds its pre-release identifiers, numbers as (0, n, "") and words as (1, 0, word)."""

    major: int
    minor: int
    patch: int
    pre: tuple[tuple[int, int, str], ...] = ()
    text: str = ""
    type = SEMVER

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1. Builds do not count, and a pre-release comes before its release."""
        mine, theirs = self._key(), other._key()
        return (mine > theirs) - (mine < theirs)

    def _key(self) -> tuple[Any, ...]:
        return (self.major, self.minor, self.patch, not self.pre, self.pre)

    def equal(self, other: Any) -> Any:
        return self.compare(other) == 0 if isinstance(other, Semver) else NO_SUCH_OVERLOAD


def _part(text: str, name: str) -> int:
    if not _NUMERIC.fullmatch(text):
        raise SemverError(f"Invalid character(s) found in {name.lower()} number {_go_quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise SemverError(f"{name} number must not contain leading zeroes {_go_quote(text)}")
    return _unsigned(text)


def _go_quote(text: str) -> str:
    from dranet.cel.libraries.formatting import go_quote

    return go_quote(text)


def _unsigned(text: str) -> int:
    if not text:
        raise SemverError('strconv.ParseUint: parsing "": invalid syntax')
    value = int(text)
    if value > _MAX_UINT:
        raise SemverError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return value


def parse_semver(text: str) -> Semver:
    """Strict semantic version 2.0.0; raises SemverError."""
    if not text:
        raise SemverError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise SemverError("No Major.Minor.Patch elements found")
    major, minor = _part(parts[0], "Major"), _part(parts[1], "Minor")
    rest, plus, build = parts[2].partition("+")
    number, dash, pre = rest.partition("-")
    identifiers = tuple(_pre_release(one) for one in pre.split(".")) if dash else ()
    version = Semver(major, minor, _part(number, "Patch"), identifiers, text)
    for one in build.split(".") if plus else ():
        if not one:
            raise SemverError("Build meta data is empty")
        if not _ALPHANUMERIC.fullmatch(one):
            raise SemverError(f"Invalid character(s) found in build meta data {_go_quote(one)}")
    return version


def _pre_release(text: str) -> tuple[int, int, str]:
    if not text:
        raise SemverError("Prerelease is empty")
    if _NUMERIC.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise SemverError(f"Numeric PreRelease version must not contain leading zeroes {_go_quote(text)}")
        return 0, _unsigned(text), ""
    if not _ALPHANUMERIC.fullmatch(text):
        raise SemverError(f"Invalid character(s) found in prerelease {_go_quote(text)}")
    return 1, 0, text


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part.encode()) > 1:  # Go counts bytes: one letter outside ASCII gets its zero too
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped[:1].isdigit() and stripped[:1].isascii() else "0" + stripped
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise SemverError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def _semver(text: str, normalize: bool = False) -> Any:
    try:
        return parse_semver(_normalized(text) if normalize else text)
    except SemverError as error:
        return Err(str(error))


def _is_semver(text: str, normalize: bool = False) -> bool:
    return _semver(text, normalize).__class__ is not Err


_SEMVER: tuple[Declaration, ...] = (
    ("semver", "string_to_semver", "(string) -> Semver", _semver),
    ("isSemver", "is_semver_string", "(string) -> bool", _is_semver),
    ("isGreaterThan", "semver_is_greater_than", "Semver.(Semver) -> bool", lambda a, b: a.compare(b) > 0),
    ("isLessThan", "semver_is_less_than", "Semver.(Semver) -> bool", lambda a, b: a.compare(b) < 0),
    ("compareTo", "semver_compare_to", "Semver.(Semver) -> int", lambda a, b: a.compare(b)),
    ("major", "semver_major", "Semver.() -> int", lambda a: _wrapped(a.major)),
    ("minor", "semver_minor", "Semver.() -> int", lambda a: _wrapped(a.minor)),
    ("patch", "semver_patch", "Semver.() -> int", lambda a: _wrapped(a.patch)),
)
_NORMALIZING: tuple[Declaration, ...] = (
    ("semver", "string_bool_to_semver", "(string, bool) -> Semver", _semver),
    ("isSemver", "is_semver_string_bool", "(string, bool) -> bool", _is_semver),
)


def _wrapped(value: int) -> int:
    return value if value < 1 << 63 else value - (1 << 64)


def semver_library(*, normalize: bool = True) -> Library:
    """The version functions; `normalize` adds the forms with a second argument."""
    return Library("kubernetes.Semver", functions=functions(*_SEMVER, *(_NORMALIZING if normalize else ())))
