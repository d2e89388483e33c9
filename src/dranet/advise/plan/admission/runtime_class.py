"""RuntimeClass: the RuntimeClass that a pod names exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.advise.manifests import Manifests


def refusal(manifests: Manifests, namespace: str, spec: Mapping[str, Any]) -> str:
    """Why the API server refuses the pod."""
    name = spec.get("runtimeClassName")
    known = {obj.name for obj in manifests.by_kind.get("RuntimeClass", ())}
    if not name or name in known or not manifests.knows("RuntimeClass"):
        return ""
    return f'pod rejected: RuntimeClass "{name}" not found'
