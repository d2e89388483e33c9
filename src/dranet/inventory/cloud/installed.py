"""The clouds that installed packages announce: ours, and those of anybody else.

Entry points are read when somebody asks, never on import: reading them costs more than most commands, and a driver
that was told its cloud's name or ``NONE`` need not.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from dranet.inventory.cloud.provider import Cloud
from dranet.model.attributes import AttributeDoc
from dranet.model.errors import InvalidInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "dranet.cloud_providers"


def announced() -> list[str]:
    """The hints people may write, without loading what they stand for."""
    return [entry.name for entry in _entry_points()]


def installed_clouds() -> list[Cloud]:
    """Every announced cloud, by rank and name."""
    return sorted(map(_cloud, _entry_points()), key=lambda cloud: (cloud.rank, cloud.name))


@cache
def cloud_attributes() -> tuple[AttributeDoc, ...]:
    """All attributes that some cloud may publish."""
    return tuple(doc for cloud in installed_clouds() for doc in cloud.attributes)


def _cloud(entry: EntryPoint) -> Cloud:
    """What the announced module declares as its ``CLOUD``."""
    try:
        found = getattr(import_module(entry.module), "CLOUD", None)
    except ImportError as error:
        raise _unusable(entry, f"{entry.module} cannot be imported: {error}") from error
    if not isinstance(found, Cloud):
        raise _unusable(entry, f"{entry.module} has no CLOUD of type dranet.inventory.cloud.provider.Cloud")
    return found


def _unusable(entry: EntryPoint, why: str) -> InvalidInput:
    return InvalidInput(
        f"the cloud provider {entry.name} cannot be used: {why}; correct or uninstall the package that announces it"
    )


def _entry_points() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)
