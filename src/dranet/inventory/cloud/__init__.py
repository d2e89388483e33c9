"""Cloud providers: what the place a node runs in knows about its devices.

One file a provider behind the small interface of :mod:`dranet.inventory.cloud.provider`. Others can add theirs through
the entry point group ``dranet.cloud_providers``.
"""

from dranet.inventory.cloud.detection import (
    Candidate,
    Found,
    Patience,
    find_provider,
    hint_problem,
    installed_candidates,
)
from dranet.inventory.cloud.http import CloudError, HttpClient
from dranet.inventory.cloud.provider import CloudProvider, ConfigJson, Context, Identity, Machine, ProfileProvider

__all__ = [
    "Candidate",
    "CloudError",
    "CloudProvider",
    "ConfigJson",
    "Context",
    "Found",
    "HttpClient",
    "Identity",
    "Machine",
    "Patience",
    "ProfileProvider",
    "find_provider",
    "hint_problem",
    "installed_candidates",
]
