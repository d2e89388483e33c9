"""Claims of any API version: their requests with the position of every part."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.versions import to_v1
from dranet.advise.manifests.yaml_nodes import FieldPath
from dranet.core.quantity import QuantityError, parse_quantity
from dranet.core.untyped import as_dict, as_list, get_path


class Selector(msgspec.Struct, frozen=True):
    """A CEL expression and its position."""

    owner: Object
    path: FieldPath
    text: str


class Request(msgspec.Struct, frozen=True):
    """A request of a claim, or one alternative of a request."""

    name: str
    """``req``, or ``req/sub`` for an alternative of firstAvailable."""
    path: FieldPath
    """Where its fields are (below ``exactly`` if it has that)."""
    device_class: str
    count: int
    mode: str
    selectors: tuple[Selector, ...]
    fields: dict[str, Any]
    """All its fields, as written."""

    @property
    def parent(self) -> str:
        """The name of the request itself."""
        return self.name.partition("/")[0]


class Claim(msgspec.Struct, frozen=True):
    """A ResourceClaim, or the claim inside a ResourceClaimTemplate."""

    owner: Object
    base: FieldPath
    """Where its ``devices`` field is."""
    requests: tuple[Request, ...]
    constraints: tuple[dict[str, Any], ...]
    configs: tuple[dict[str, Any], ...]
    v1: dict[str, Any]
    """The whole object as a server stores it."""

    def constrained(self, request: Request, constraint: dict[str, Any]) -> bool:
        """Whether a constraint covers a request."""
        names = constraint.get("requests") or []
        return not names or request.name in names or request.parent in names

    def constraints_of(self, request: Request) -> list[dict[str, Any]]:
        """The constraints that cover a request."""
        return [constraint for constraint in self.constraints if self.constrained(request, constraint)]


def parse_claim(obj: Object) -> Claim | None:
    """The claim of a ResourceClaim or ResourceClaimTemplate; None for other kinds."""
    base: FieldPath | None = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}.get(obj.kind)
    if base is None:
        return None
    devices = as_dict(get_path(obj.data, *base, "devices"))
    return Claim(
        obj,
        base,
        tuple(_requests(obj, (*base, "devices", "requests"))),
        tuple(as_dict(raw) for raw in as_list(devices.get("constraints"))),
        tuple(as_dict(raw) for raw in as_list(devices.get("config"))),
        to_v1(obj.data),
    )


def _requests(obj: Object, path: FieldPath) -> Iterator[Request]:
    for i, one in enumerate(map(as_dict, as_list(get_path(obj.data, *path)))):
        name = str(one.get("name", ""))
        alternatives = as_list(one.get("firstAvailable"))
        for j, alternative in enumerate(alternatives):
            sub = f"{name}/{as_dict(alternative).get('name', '')}"
            yield _request(obj, (*path, i, "firstAvailable", j), sub, as_dict(alternative))
        if not alternatives:
            nested = isinstance(one.get("exactly"), dict)
            where: FieldPath = (*path, i, "exactly") if nested else (*path, i)
            yield _request(obj, where, name, as_dict(get_path(obj.data, *where)))


def _request(obj: Object, path: FieldPath, name: str, fields: dict[str, Any]) -> Request:
    count, mode = fields.get("count"), fields.get("allocationMode")
    return Request(
        name,
        path,
        str(fields.get("deviceClassName") or ""),
        count if isinstance(count, int) and not isinstance(count, bool) else 1,
        mode if isinstance(mode, str) else "ExactCount",
        tuple(selectors_at(obj, path)),
        fields,
    )


def selectors_at(obj: Object, path: FieldPath) -> Iterator[Selector]:
    """The selectors below a class spec or a request."""
    for i, text in enumerate(_expressions(obj, path)):
        if isinstance(text, str):
            yield Selector(obj, (*path, "selectors", i, "cel", "expression"), text)


def empty_selectors(obj: Object, path: FieldPath) -> list[FieldPath]:
    """Selectors below a class spec or a request without an expression: an API server refuses them."""
    return [(*path, "selectors", i) for i, text in enumerate(_expressions(obj, path)) if not isinstance(text, str)]


def _expressions(obj: Object, path: FieldPath) -> Iterator[Any]:
    for raw in as_list(get_path(obj.data, *path, "selectors")):
        yield as_dict(as_dict(raw).get("cel")).get("expression")


def is_quantity(value: object) -> bool:
    """Whether Kubernetes reads this as a quantity."""
    return value is not None and _parses_as_quantity(str(value))


@lru_cache(maxsize=4096)
def _parses_as_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True
