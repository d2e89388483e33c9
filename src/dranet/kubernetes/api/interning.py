"""A JSON decoder that shares equal values, for programs that keep the objects of a whole cluster in memory.

160,000 devices have four million attributes with few distinct values: a link is up, an MTU is 8896. A plain decoder
makes a dictionary for each. This one splits slices down to the JSON text of each attribute and decodes every distinct
text once, which also saves most of the decoding time. It drops ``managedFields``, which nothing reads.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any

import msgspec

Object = dict[str, Any]
_MAX_VALUES = 1_000_000
"""The cache is cleared at this size, so that it does not keep values of deleted devices."""

_decode = msgspec.json.decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode
_objects = msgspec.json.Decoder(list[msgspec.Raw] | None).decode
_devices = msgspec.json.Decoder(list[dict[str, msgspec.Raw]] | None).decode


class _Values(dict[bytes, Any]):
    """Decoded values by JSON text."""

    def __missing__(self, text: bytes) -> Any:
        value = self[text] = _decode(text)
        return value


class InterningDecoder:
    """Decodes responses of the API server. Objects share attribute values, so callers must not change them."""

    def __init__(self) -> None:
        self._values = _Values()
        self._of_device = {"attributes": self._shared, "capacity": self._shared, "basic": self._basic}

    def page(self, text: bytes) -> Object:
        """A list whose items stay JSON text, so that the client requests the next page before it decodes them."""
        parts = _fields(text) or {}
        return {name: part if name == "items" else _decode(part) for name, part in parts.items()}

    def items(self, page: Object, kind: str) -> list[Object]:
        """The items of such a page."""
        return [self.object(item, kind) for item in _objects(page.get("items") or b"null") or ()]

    def object(self, text: msgspec.Raw, kind: str) -> Object:
        """One object of this kind."""
        found: Object = self._slice(text) if kind == "ResourceSlice" else _decode(text)
        (found.get("metadata") or {}).pop("managedFields", None)
        return found

    def _slice(self, text: msgspec.Raw) -> Object:
        if len(self._values) > _MAX_VALUES:
            self._values.clear()
        return _with(text, "spec", self._spec) or {}

    def _spec(self, text: msgspec.Raw) -> Object | None:
        return _with(text, "devices", self._devices)

    def _devices(self, text: msgspec.Raw) -> list[Object] | None:
        devices = _devices(text)
        return None if devices is None else [self._device(parts) for parts in devices]

    def _device(self, parts: dict[str, msgspec.Raw]) -> Object:
        return {intern(name): self._of_device.get(name, _decode)(part) for name, part in parts.items()}

    def _basic(self, text: msgspec.Raw) -> Object | None:
        """In v1beta1, the fields of a device are below ``basic``."""
        parts = _fields(text)
        return None if parts is None else self._device(parts)

    def _shared(self, text: msgspec.Raw) -> Object | None:
        parts, known = _fields(text), self._values
        return None if parts is None else {intern(name): known[bytes(part)] for name, part in parts.items()}


def _with(text: msgspec.Raw, field: str, read: Callable[[msgspec.Raw], Any]) -> Object | None:
    """An object with one field decoded by ``read``."""
    parts = _fields(text)
    return None if parts is None else {name: (read if name == field else _decode)(v) for name, v in parts.items()}
