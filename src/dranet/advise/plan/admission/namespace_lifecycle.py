"""NamespaceLifecycle: objects need a namespace that exists and is not being deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.advise.manifests import Manifests
from dranet.core.untyped import get_path


def refusal(manifests: Manifests, namespace: str, spec: Mapping[str, Any]) -> str:
    """Why the API server refuses the pod."""
    found = [obj for obj in manifests.by_kind.get("Namespace", ()) if obj.name == namespace]
    if not found and namespace != "default" and manifests.knows("Namespace"):
        return f'namespaces "{namespace}" not found'
    if found and get_path(found[0].data, "metadata", "deletionTimestamp"):
        return f"unable to create new content in namespace {namespace} because it is being terminated"
    return ""
