"""What the API server refuses before a controller or the scheduler sees a pod, in the order of its admission plugins.

Each module is named after its plugin. A missing object proves something only if the input has all objects of its kind:
a live cluster, or a recording of `dranet record`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.advise.manifests import Manifests
from dranet.advise.plan.admission import namespace_lifecycle, priority, runtime_class, service_account

PLUGINS = (namespace_lifecycle, service_account, priority, runtime_class)


def refusal(manifests: Manifests, namespace: str, spec: Mapping[str, Any]) -> str:
    """Why the API server refuses such pods of the namespace, without their name; empty if it accepts them."""
    return next((text for plugin in PLUGINS if (text := plugin.refusal(manifests, namespace, spec))), "")


def message(pod: str, why: str) -> str:
    """What the API server answers."""
    return why if why.startswith("namespaces ") else f'pods "{pod}" is forbidden: {why}'
