"""What a kind of workload tells: the groups of pods it makes, or why it makes none.

A kind is a function registered for one API group and kind. It gets the object and a way to look up others, because some
workloads only name what their pods are made from. Names are the ones the controller gives. Where the real name ends in
random letters, they are left out after an index, and a number stands for them where nothing else tells pods apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from dranet.manifests.objects import Object
from dranet.manifests.plain_values import mapping, reach
from dranet.manifests.yaml_nodes import FieldPath

MAX_REPLICAS = 100_000
SUSPENDED = "suspended: its pods are planned as if it were resumed"


class PodGroup(msgspec.Struct, frozen=True):
    """The pods of one template of a workload: all alike."""

    source: Object
    """Where the pod spec stands: the workload itself, or what it is made from."""
    path: FieldPath
    names: tuple[str, ...]
    spec: dict[str, Any]
    """The pod spec, as the controller would write it into the pods."""
    role: str = ""
    per_node: bool = False
    note: str = ""
    """What was assumed, in words for people."""


class Omitted(msgspec.Struct, frozen=True):
    """Pods that cannot be told from the files, and why."""

    why: str


Lookup = Callable[[str, str, str], Object | None]
"""An object by kind, namespace and name."""
Kind = Callable[[Object, Lookup], Iterator[PodGroup | Omitted]]
KINDS: dict[tuple[str, str], Kind] = {}
"""By API group and kind."""


def workload(api_group: str, *kinds: str) -> Callable[[Kind], Kind]:
    """Register a function for these kinds of an API group."""

    def register(kind: Kind) -> Kind:
        for name in kinds:
            assert (api_group, name) not in KINDS, f"two files speak of {api_group} {name}"
            KINDS[api_group, name] = kind
        return kind

    return register


def group_of(obj: Object) -> str:
    """The API group of an object; empty for the core group."""
    return obj.api_version.rpartition("/")[0]


def numbered(base: str, count: int, first: int = 0) -> tuple[str, ...]:
    """``base-0``, ``base-1``, ..."""
    return tuple(f"{base}-{i}" for i in range(first, first + count))


def count_of(value: Any, default: int) -> int:
    """A number of pods as written, else the default; never below zero, never absurd."""
    if isinstance(value, bool) or not isinstance(value, int):
        return default
    return max(0, min(value, MAX_REPLICAS))


def pods_at(
    source: Object, path: FieldPath, names: tuple[str, ...], role: str = "", *, per_node: bool = False, note: str = ""
) -> Iterator[PodGroup]:
    """The pods of the spec at this path, where there is one."""
    spec = reach(source.data, path)
    if isinstance(spec, dict):
        yield PodGroup(source, path, names[:MAX_REPLICAS], spec, role, per_node, note)


def suspended(spec: dict[str, Any]) -> str:
    """The note of a workload that somebody, or a queue, holds back."""
    return SUSPENDED if spec.get("suspend") is True else ""


def spec_of(obj: Object) -> dict[str, Any]:
    """The object's ``spec``."""
    return mapping(obj.data.get("spec"))
