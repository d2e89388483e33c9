"""Objects of a whole fleet in little memory: without what nobody here reads, and with one copy of what is said often.

160,000 devices have four million attributes, and nearly all of them say the same few things: that a link is up, that an
MTU is 8896. As JSON decodes them each is a dictionary of its own. Whoever keeps slices keeps them through here.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
MOST_VALUES = 1_000_000
"""Values remembered; past that it begins anew, so that values of devices long gone are not kept for ever."""


class Thrift:
    """Makes objects smaller in place; what it has seen once is shared by all objects that come after."""

    def __init__(self) -> None:
        self._values: dict[object, Object] = {}

    def thin(self, items: list[Object]) -> list[Object]:
        """The same objects. Nobody may change the attributes of one afterwards: they are others' too."""
        for item in items:
            (item.get("metadata") or {}).pop("managedFields", None)
            if item.get("kind") == "ResourceSlice":
                for device in (item.get("spec") or {}).get("devices") or ():
                    self._share(device.get("attributes") or {})
                    self._share(device.get("capacity") or {})
        return items

    def _share(self, values: Object) -> None:
        known = self._values
        if len(known) > MOST_VALUES:
            known.clear()
        for name, value in values.items():
            # Only flat values have a hash; a list among them (1.37 and later) stays as it came.
            try:
                values[name] = known.setdefault(tuple(value.items()), value)
            except TypeError:
                continue
