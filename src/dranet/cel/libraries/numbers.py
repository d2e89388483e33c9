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
from dranet.cel.functions import Library, Overload, function, global_, method
from dranet.cel.values import Opaque
from dranet.model.quantity import EXPONENT, Quantity, QuantityError, parse_quantity

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


def _sign(value: QuantityValue) -> int:
    return (value.quantity.unscaled > 0) - (value.quantity.unscaled < 0)


_PAIR = [QUANTITY, QUANTITY]
QUANTITIES = Library(
    "kubernetes.quantity",
    functions=(
        function("quantity", global_("string_to_quantity", [t.STRING], QUANTITY, _quantity)),
        function(
            "isQuantity",
            global_("is_quantity_string", [t.STRING], t.BOOL, lambda text: _quantity(text).__class__ is not Err),
        ),
        function("sign", global_("quantity_sign", [QUANTITY], t.INT, _sign)),
        function(
            "isGreaterThan",
            method("quantity_is_greater_than", _PAIR, t.BOOL, lambda a, b: a.quantity.compare(b.quantity) > 0),
        ),
        function(
            "isLessThan",
            method("quantity_is_less_than", _PAIR, t.BOOL, lambda a, b: a.quantity.compare(b.quantity) < 0),
        ),
        function("compareTo", method("quantity_compare_to", _PAIR, t.INT, lambda a, b: a.quantity.compare(b.quantity))),
        function(
            "asApproximateFloat", method("quantity_get_float", [QUANTITY], t.DOUBLE, lambda a: a.quantity.as_float())
        ),
        function("asInteger", method("quantity_get_int", [QUANTITY], t.INT, _as_integer)),
        function(
            "isInteger",
            method("quantity_is_integer", [QUANTITY], t.BOOL, lambda a: a.quantity.as_int64() is not None),
        ),
        function(
            "add",
            method("quantity_add", _PAIR, QUANTITY, _add),
            method("quantity_add_int", [QUANTITY, t.INT], QUANTITY, _add),
        ),
        function(
            "sub",
            method("quantity_sub", _PAIR, QUANTITY, _sub),
            method("quantity_sub_int", [QUANTITY, t.INT], QUANTITY, _sub),
        ),
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
    version = Semver(
        major, minor, _part(number, "Patch"), tuple(_pre_release(one) for one in pre.split(".")) if dash else ()
    )
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


_TWO = [SEMVER, SEMVER]
_SEMVER_METHODS = (
    function("isGreaterThan", method("semver_is_greater_than", _TWO, t.BOOL, lambda a, b: a.compare(b) > 0)),
    function("isLessThan", method("semver_is_less_than", _TWO, t.BOOL, lambda a, b: a.compare(b) < 0)),
    function("compareTo", method("semver_compare_to", _TWO, t.INT, lambda a, b: a.compare(b))),
    function("major", method("semver_major", [SEMVER], t.INT, lambda a: _wrapped(a.major))),
    function("minor", method("semver_minor", [SEMVER], t.INT, lambda a: _wrapped(a.minor))),
    function("patch", method("semver_patch", [SEMVER], t.INT, lambda a: _wrapped(a.patch))),
)


def _wrapped(value: int) -> int:
    return value if value < 1 << 63 else value - (1 << 64)


def semver_library(*, normalize: bool = True) -> Library:
    """The version functions; `normalize` adds the forms with a second argument."""
    parse = [Overload("string_to_semver", (t.STRING,), SEMVER, _semver)]
    test = [Overload("is_semver_string", (t.STRING,), t.BOOL, _is_semver)]
    if normalize:
        parse.append(Overload("string_bool_to_semver", (t.STRING, t.BOOL), SEMVER, _semver))
        test.append(Overload("is_semver_string_bool", (t.STRING, t.BOOL), t.BOOL, _is_semver))
    functions = (function("semver", *parse), function("isSemver", *test), *_SEMVER_METHODS)
    return Library("kubernetes.Semver", functions=functions)
