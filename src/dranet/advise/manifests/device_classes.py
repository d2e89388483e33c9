"""DeviceClasses that come with a driver or a cloud: manifests name them without defining them.

One TOML file a vendor in ``classes``, with sources. A class whose selector its vendor does not publish is marked
``inferred``. ``misnamed`` lists names that manifests use and that no driver installs, with the class that is meant.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from dranet.core.errors import InvalidInput, nearest


class KnownClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A DeviceClass that comes with a driver or a cloud."""

    selectors: list[str]
    installed_by: str = ""
    """Empty for a class that the user has to apply."""
    inferred: bool = False
    """Whether the selector is a conclusion from documentation."""

    @property
    def origin(self) -> str:
        """Where it comes from, such as ``installed by GKE; assumed: device.driver == ...``."""
        made = f"installed by {self.installed_by}" if self.installed_by else "it has to be applied with the manifests"
        return f"{made}; assumed: {' && '.join(self.selectors)}" if self.inferred else made


class Vendor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a vendor's drivers install and publish."""

    vendor: str
    sources: list[str]
    classes: dict[str, KnownClass]
    attributes: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """By driver, names of attributes and capacities; a name without a domain is of the driver's domain."""
    misnamed: dict[str, str] = msgspec.field(default_factory=dict)


@cache
def vendors() -> tuple[Vendor, ...]:
    """The files of all vendors, by file name."""
    files = sorted(resources.files(__package__).joinpath("classes").iterdir(), key=lambda file: file.name)
    return tuple(
        msgspec.convert(tomllib.loads(file.read_text("utf-8")), Vendor) for file in files if file.name.endswith(".toml")
    )


@cache
def known_class_facts() -> dict[str, KnownClass]:
    """All known classes by name."""
    return {name: fact for vendor in vendors() for name, fact in vendor.classes.items()}


@cache
def driver_attributes() -> dict[str, frozenset[str]]:
    """By driver, the attributes and capacities that it may publish, with their domains."""
    return {
        driver: frozenset(name if "/" in name else f"{driver}/{name}" for name in names)
        for vendor in vendors()
        for driver, names in vendor.attributes.items()
    }


def vendor_attributes() -> frozenset[str]:
    """Attributes and capacities of all drivers of vendors."""
    return frozenset().union(*driver_attributes().values())


def known_classes() -> dict[str, dict[str, Any]]:
    """The known classes by name, as v1 objects; a class in a file overrides one of them."""
    return {name: class_object(name, fact.selectors) for name, fact in known_class_facts().items()}


def class_object(name: str, selectors: Iterable[str]) -> dict[str, Any]:
    """A DeviceClass with these selectors."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": text}} for text in selectors]},
    }


def meant_class(name: str, known: Iterable[str]) -> str:
    """What to do about a class that is not known: the class that is probably meant, else an empty string."""
    for vendor in vendors():
        if name in vendor.misnamed:
            return f"no driver installs {name!r}; did you mean {vendor.misnamed[name]!r}?"
    near = nearest(name, known, cutoff=0.75)
    return f"did you mean {near!r}?" if near else ""


_DRIVER_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def assumed_class(text: str) -> dict[str, Any]:
    """``NAME=CLASS``, ``NAME=DRIVER`` or ``NAME=EXPRESSION`` of ``--assume-class`` as a DeviceClass."""
    name, equals, meaning = (part.strip() for part in text.partition("="))
    if not equals or not name or not meaning:
        raise InvalidInput(f"--assume-class {text}: write NAME=CLASS, NAME=DRIVER or NAME=EXPRESSION")
    if fact := known_class_facts().get(meaning):
        return class_object(name, fact.selectors)
    is_driver = _DRIVER_NAME.fullmatch(meaning) is not None
    return class_object(name, [f'device.driver == "{meaning}"' if is_driver else meaning])
