"""ServiceAccount: the account that a pod names exists. Every namespace gets the account `default`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.advise.manifests import Manifests


def refusal(manifests: Manifests, namespace: str, spec: Mapping[str, Any]) -> str:
    """Why the API server refuses the pod."""
    name = str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "default")
    known = any(obj.name == name and obj.namespace == namespace for obj in manifests.by_kind.get("ServiceAccount", ()))
    if known or name == "default" or not manifests.knows("ServiceAccount"):
        return ""
    return f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
