"""Objects of a whole fleet in little memory: without what nobody here reads, and with one copy of what is said often.

160,000 devices have four million attributes, and nearly all of them say the same few things: that a link is up, that an
MTU is 8896. As JSON decodes them each is a dictionary of its own. So slices are taken apart only down to the text of
each attribute, and a text that was seen before is not decoded again: that saves most of the time as well.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any

import msgspec

Object = dict[str, Any]
MOST_VALUES = 1_000_000
"""Values remembered; past that it begins anew, so that values of devices long gone are not kept for ever."""

_decode = msgspec.json.decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode
_objects = msgspec.json.Decoder(list[msgspec.Raw] | None).decode
_devices = msgspec.json.Decoder(list[dict[str, msgspec.Raw]] | None).decode


class _Values(dict[bytes, Any]):
    """What a text of JSON says."""

    def __missing__(self, text: bytes) -> Any:
        value = self[text] = _decode(text)
        return value


class Thrift:
    """Reads JSON of the API server; what it has seen once is shared by all objects that come after.

    Nobody may change the attributes of a device afterwards: they are others' too.
    """

    def __init__(self) -> None:
        self._values = _Values()
        self._of_device = {"attributes": self._shared, "capacity": self._shared, "basic": self._basic}

    def page(self, text: bytes) -> Object:
        """A list as the server sent it, its items still as text: the next page is asked for before they are read."""
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
        if len(self._values) > MOST_VALUES:
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
        """Where servers that speak v1beta1 have the rest of a device."""
        parts = _fields(text)
        return None if parts is None else self._device(parts)

    def _shared(self, text: msgspec.Raw) -> Object | None:
        parts, known = _fields(text), self._values
        return None if parts is None else {intern(name): known[bytes(part)] for name, part in parts.items()}


def _with(text: msgspec.Raw, field: str, read: Callable[[msgspec.Raw], Any]) -> Object | None:
    """An object of which one field is read in another way than the rest."""
    parts = _fields(text)
    return None if parts is None else {name: (read if name == field else _decode)(v) for name, v in parts.items()}
