"""Whether several pods can have one claim at the same time, told from its parameters alone: before there is a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dranet.model.names import DRIVER_NAME
from dranet.model.netconfig import NetworkConfig
from dranet.model.netconfig_merge import merge
from dranet.model.netconfig_parse import examine


def serves_several_pods(entries: Iterable[Mapping[str, Any]]) -> bool:
    """From the configuration of a claim, the claim's own words first. What is said for single requests is not
    considered: then the answer is no, and the driver may know better."""
    said = NetworkConfig()
    for entry in entries:
        opaque = entry.get("opaque") or {}
        if opaque.get("driver") == DRIVER_NAME and not entry.get("requests"):
            said = merge(said, examine(opaque.get("parameters") or None)[0])
    return said.link.is_for_each_pod and not said.profile
