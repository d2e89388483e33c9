"""Cloud providers as installed packages register them, without importing the node agent.

A provider is an entry point of the group ``dranet.cloud_providers`` whose module has a ``CLOUD``. Entry points are read
on first use, never on import: reading them takes longer than most commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from dranet.core.attributes import AttributeDoc
from dranet.core.errors import InvalidInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "dranet.cloud_providers"


def registered_names() -> list[str]:
    """The names of all registered providers, without loading them."""
    return [entry.name for entry in entry_points()]


def load_cloud(entry: EntryPoint) -> object:
    """The ``CLOUD`` of a registered module, or None; InvalidInput if the module cannot be imported."""
    try:
        return getattr(import_module(entry.module), "CLOUD", None)
    except ImportError as error:
        raise unusable(entry, f"{entry.module} cannot be imported: {error}") from error


def unusable(entry: EntryPoint, reason: str) -> InvalidInput:
    """The error for a registered provider that does not work."""
    return InvalidInput(
        f"cloud provider {entry.name} is not usable: {reason}; fix or uninstall the package that registers it"
    )


@cache
def cloud_attributes() -> tuple[AttributeDoc, ...]:
    """All attributes that a registered cloud provider may publish."""
    return tuple(doc for entry in entry_points() for doc in getattr(load_cloud(entry), "attributes", ()))


def entry_points() -> Iterable[EntryPoint]:
    """All registered providers."""
    from importlib import metadata

    return metadata.entry_points(group=GROUP)
