"""Cloud providers: what the place a node runs in knows about its devices.

One file a provider behind the small interface of :mod:`dranet.inventory.cloud.provider`. Others can add theirs through
the entry point group ``dranet.cloud_providers``.
"""

from dranet.inventory.cloud.detection import (
    Found,
    Patience,
    check_options,
    find_provider,
    hint_problem,
)
from dranet.inventory.cloud.http import CloudError, HttpClient
from dranet.inventory.cloud.installed import installed_clouds
from dranet.inventory.cloud.provider import (
    Cloud,
    CloudContext,
    CloudProvider,
    ConfigJson,
    Firmware,
    Identity,
    NodeNetwork,
    ProfileProvider,
)

__all__ = [
    "Cloud",
    "CloudContext",
    "CloudError",
    "CloudProvider",
    "ConfigJson",
    "Firmware",
    "Found",
    "HttpClient",
    "Identity",
    "NodeNetwork",
    "Patience",
    "ProfileProvider",
    "check_options",
    "find_provider",
    "hint_problem",
    "installed_clouds",
]
