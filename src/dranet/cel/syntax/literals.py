"""The value a literal's text stands for."""

from __future__ import annotations

from dranet.cel.values import MAX_INT, MAX_UINT, MIN_INT, Uint

_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip
_HEX_DIGITS = {"x": 2, "X": 2, "u": 4, "U": 8}


class LiteralError(Exception):
    """The literal is written correctly but has no value."""


def int_value(text: str) -> int:
    """Of decimal or 0x digits with an optional sign; raises beyond 64 bits."""
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    value = sign * (int(digits[2:], 16) if digits.startswith("0x") else int(digits))
    if not MIN_INT <= value <= MAX_INT:
        raise LiteralError("invalid int literal")
    return value


def uint_value(text: str) -> Uint:
    """Of digits that end in u; raises beyond 64 bits."""
    digits = text[:-1]
    value = int(digits[2:], 16) if digits.startswith("0x") else int(digits)
    if value > MAX_UINT:
        raise LiteralError("invalid uint literal")
    return Uint(value)


def float_value(text: str) -> float:
    """Raises where the digits name no finite double."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise LiteralError("invalid double literal")
    return value


def string_value(text: str) -> str:
    """Without quotes and escapes; raw strings keep their backslashes."""
    return _unquote(text, in_bytes=False).decode("utf-8", "surrogateescape")


def bytes_value(text: str) -> bytes:
    """Like `string_value` behind a b; escapes are bytes there, not characters."""
    return _unquote(text[1:], in_bytes=True)


def _unquote(text: str, *, in_bytes: bool) -> bytes:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    width = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    body = text[width:-width]
    return body.encode() if raw or "\\" not in body else _unescape(body, in_bytes)


def _unescape(body: str, in_bytes: bool) -> bytes:
    out = bytearray()
    position = 0
    while position < len(body):
        char = body[position]
        if char != "\\":
            out += char.encode()
            position += 1
            continue
        code = body[position + 1]
        if code in _SIMPLE:
            out += _SIMPLE[code].encode()
            position += 2
            continue
        digits = _HEX_DIGITS.get(code)
        start, stop = (position + 2, position + 2 + digits) if digits else (position + 1, position + 4)
        out += _code_point(int(body[start:stop], 16 if digits else 8), code, in_bytes)
        position = stop
    return bytes(out)


def _code_point(value: int, code: str, in_bytes: bool) -> bytes:
    if in_bytes:
        if code in "uU":
            raise LiteralError("unable to unescape string")
        return bytes([value & 0xFF])
    if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
        raise LiteralError("invalid unicode code point")
    return chr(value).encode()
