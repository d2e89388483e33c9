"""Claims that no device of a node can tell apart: the allocator answers one of them for all.

A selector's text is nothing to the search, only which devices it takes. So a claim is described here with its
selectors replaced by the set of devices each request may get. Where a selector fails on a device its text counts, since
an error names it and the search may or may not come to that device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dranet.allocation.alike_devices import AlikeDevices, Mask
from dranet.allocation.candidates import NodeView
from dranet.allocation.selectors import SelectorCompiler


class AlikeClaims:
    """Descriptions of claims for one node and all that are like it."""

    def __init__(self, view: NodeView, classes: Mapping[str, Mapping[str, Any]], selectors: SelectorCompiler) -> None:
        self._devices = AlikeDevices(device.input for device in view.candidates)
        self._classes = classes
        self._selectors = selectors
        self._offered: dict[str, Mask | None] = {}

    def describe(self, spec: Mapping[str, Any]) -> str:
        """A text that is equal for claims which get the same answer."""
        devices = spec.get("devices") or {}
        requests = [self._request(request) for request in devices.get("requests") or ()]
        return json.dumps({**spec, "devices": {**devices, "requests": requests}}, sort_keys=True, default=str)

    def _request(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if alternatives := request.get("firstAvailable"):
            return {**request, "firstAvailable": [self._part(one) for one in alternatives]}
        return {**request, "exactly": self._part(request["exactly"])} if request.get("exactly") else request

    def _part(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        taken = self._offers(str(part.get("deviceClassName")))
        for selector in part.get("selectors") or ():
            taken = None if taken is None else self._taken(taken, selector)
        return part if taken is None else {**part, "selectors": f"{taken:x}"}

    def _offers(self, name: str) -> Mask | None:
        """What a class offers; None where that cannot be said."""
        if name not in self._offered:
            taken: Mask | None = self._devices.all if name in self._classes else None
            for selector in (self._classes.get(name, {}).get("spec") or {}).get("selectors") or ():
                taken = None if taken is None else self._taken(taken, selector)
            self._offered[name] = taken
        return self._offered[name]

    def _taken(self, among: Mask, selector: Mapping[str, Any]) -> Mask | None:
        """Those among the devices that a selector takes; None where it fails on one of them."""
        compiled = self._selectors.compile(str((selector.get("cel") or {}).get("expression", "")))
        taken, failed = self._devices.judge(among, compiled)
        return None if failed else taken
