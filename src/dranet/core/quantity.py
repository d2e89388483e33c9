"""Kubernetes quantities: `80Gi`, `500m`, `1e3`.

A quantity is exact: an integer times a power of ten, and its notation, in which sums are printed. As in the API server,
numbers that do not fit into 64 bits have a slow form, for which some functions return other results (`isInteger` is
false). So the form is part of the value.
"""

from __future__ import annotations

import re
from fractions import Fraction

import msgspec

DECIMAL, BINARY, EXPONENT = "DecimalSI", "BinarySI", "DecimalExponent"
_MAX_INT = (1 << 63) - 1
_NANO = -9
_FORMAT_ERROR = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_DECIMAL_SUFFIX = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIX = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAME = {power: name for name, power in _DECIMAL_SUFFIX.items()}
_BINARY_NAME = {0: "", **{power: name for name, power in _BINARY_SUFFIX.items()}}
_PARTS = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)


class QuantityError(ValueError):
    """The text is not a quantity."""


class Quantity(msgspec.Struct, frozen=True, eq=False):
    """`unscaled` times ten to the power `scale`; `slow` marks the arbitrary-precision form."""

    unscaled: int
    scale: int = 0
    format: str = DECIMAL
    slow: bool = False
    text: str = ""

    @property
    def value(self) -> Fraction:
        return Fraction(self.unscaled) * Fraction(10) ** self.scale

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.compare(other) == 0

    def __hash__(self) -> int:
        return hash(self.value)

    def __str__(self) -> str:
        return self.text or self._canonical()

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1, by exact value: ``1Ki`` equals ``1024``."""
        mine, theirs = self.value, other.value
        return (mine > theirs) - (mine < theirs)

    def as_int64(self) -> int | None:
        """The exact value if the fast form holds a whole 64-bit number."""
        if self.slow or self.scale < 0:
            return None
        value = self.unscaled * 10**self.scale
        return value if -_MAX_INT - 1 <= value <= _MAX_INT else None

    def as_float(self) -> float:
        """``asApproximateFloat``: computed in floats, as the API server does."""
        return float(self.unscaled) * 10.0**self.scale if self.scale else float(self.unscaled)

    def rounded_up(self, scale: int = 0) -> int:
        """The value in units of ten to the power `scale`, rounded away from zero."""
        exact = self.value / Fraction(10) ** scale
        whole = abs(exact.numerator) // exact.denominator
        whole += 1 if abs(exact.numerator) % exact.denominator else 0
        return whole if exact >= 0 else -whole

    def add(self, other: Quantity) -> Quantity:
        format_ = other.format if self.unscaled == 0 else self.format
        if not self.slow and not other.slow:
            if other.unscaled == 0:
                return Quantity(self.unscaled, self.scale, format_)
            if self.unscaled == 0:
                return Quantity(other.unscaled, other.scale, format_)
        scale = min(self.scale, other.scale)
        mine, theirs = self.unscaled * 10 ** (self.scale - scale), other.unscaled * 10 ** (other.scale - scale)
        slow = self.slow or other.slow or any(abs(part) > _MAX_INT for part in (mine, theirs, mine + theirs))
        return Quantity(mine + theirs, scale, format_, slow)

    def negated(self) -> Quantity:
        """The other sign, in the same notation."""
        return Quantity(-self.unscaled, self.scale, self.format, self.slow)

    def sub(self, other: Quantity) -> Quantity:
        """The difference, in the notation of the first unless that is zero."""
        return self.add(other.negated())

    def _canonical(self) -> str:
        if self.unscaled == 0:
            return "0"
        if self.format == BINARY and abs(self.value) >= 1024 and self.value.denominator == 1:
            amount, power = _without_factor(int(self.value), 1024)
            return f"{amount}{_BINARY_NAME.get(power * 10, '')}"
        amount, power = _without_factor(self.unscaled, 10)
        power += self.scale
        while power % 3:
            amount, power = amount * 10, power - 1
        if self.format == EXPONENT:
            return f"{amount}e{power}" if power else str(amount)
        return f"{amount}{_DECIMAL_NAME.get(power, '')}"


def _without_factor(value: int, factor: int) -> tuple[int, int]:
    times = 0
    while value and value % factor == 0:
        value, times = value // factor, times + 1
    return value, times


def parse_quantity(text: str) -> Quantity:
    """Reads a quantity, rounding up below a billionth as Kubernetes does; raises QuantityError."""
    if text == "0":
        return Quantity(0, text=text)
    match = _PARTS.fullmatch(text)
    if not text or match is None:
        raise QuantityError(_FORMAT_ERROR)
    sign, whole, fraction = match.group(1), match.group(2) or "0", match.group(3) or ""
    base, exponent, format_ = _suffix(match.group(4))
    fast = _fast(sign, whole, fraction, exponent, format_, text)
    if fast is not None:
        return fast
    if match.group(2) == "" and match.group(3) in (None, "") and "0" not in text:
        raise QuantityError("unable to parse numeric part of quantity")
    value = Fraction(int(whole + fraction), 10 ** len(fraction))
    value *= Fraction(10) ** exponent if base == 10 else 2**exponent
    return _slow(value, sign == "-", format_)


def _suffix(suffix: str) -> tuple[int, int, str]:
    if suffix in _DECIMAL_SUFFIX:
        return 10, _DECIMAL_SUFFIX[suffix], DECIMAL
    if suffix in _BINARY_SUFFIX:
        return 2, _BINARY_SUFFIX[suffix], BINARY
    if suffix[:1] in ("e", "E") and re.fullmatch(r"[+-]?[0-9]+", suffix[1:]):
        exponent = int(suffix[1:])
        if abs(exponent) <= _MAX_INT:
            return 10, _int32(exponent), EXPONENT
    raise QuantityError("unable to parse quantity's suffix")


def _int32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _fast(sign: str, whole: str, fraction: str, exponent: int, format_: str, text: str) -> Quantity | None:
    factor, scale = 1, exponent
    if format_ == BINARY:
        factor, scale = 1 << exponent, 0
        precision = 15 - len(whole) - int(exponent * 3 / 10) - 1 if not fraction else -1
    else:
        precision = 18 - len(whole) - len(fraction)
    scale -= len(fraction)
    if precision < 0 or scale < _NANO:
        return None
    digits = whole + fraction
    value = int(digits) * factor
    if value > _MAX_INT:
        return None
    if format_ == BINARY:
        keep = exponent % 10 == 0 and int(digits) & 7 != 0
    else:
        keep = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    return Quantity(-value if sign == "-" else value, scale, format_, text=text if keep else "")


def _slow(value: Fraction, negative: bool, format_: str) -> Quantity:
    nanos = value * 10**9
    unscaled = -(-nanos.numerator // nanos.denominator)
    if format_ == BINARY and unscaled > _MAX_INT * 10**9:
        unscaled = _MAX_INT * 10**9
    if format_ == BINARY and 0 < unscaled < 10**9:
        format_ = DECIMAL
    return Quantity(-unscaled if negative else unscaled, _NANO, format_, slow=True)
