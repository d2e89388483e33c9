"""Fields: known or not, in their place or not, of the right type, written once."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

import msgspec

from dranet.lint.rules.api_versions import is_of_another_shape
from dranet.lint.rules.base import ERROR, Context, Finding, finding, rule
from dranet.lint.rules.examples import claim_example, class_example, template_example
from dranet.manifests.conforming import conforms
from dranet.manifests.reading import Object
from dranet.manifests.schema import (
    POD_SPEC,
    RESOURCE,
    TYPE_NAMES,
    Map,
    Schema,
    is_type,
    places_of,
    unknown_fields,
)
from dranet.manifests.versions import version_of
from dranet.manifests.workloads import PodSpec, mapping, reach
from dranet.manifests.yaml_nodes import FieldPath, dotted


@rule(
    "duplicate-field",
    ERROR,
    "A field is written twice",
    why="A strict server refuses it; a lenient one keeps the last and drops the first without a word.",
    bad=class_example() + "  selectors: []\n",
    good=class_example(),
)
def duplicate_field(context: Context) -> Iterator[Finding]:
    for obj in context.world.objects:
        for path, mark in obj.duplicates:
            message = f"{dotted(path)} is written a second time; a lenient server keeps only this one"
            yield finding("duplicate-field", obj, mark, message, f"keep one {path[-1]}")


class _Stray(msgspec.Struct, frozen=True):
    """A field the schema does not know at its place."""

    obj: Object
    path: FieldPath
    known: tuple[str, ...]
    right_place: tuple[str, ...] | None
    """From the top of the object; list items add no step."""


def _strays(context: Context) -> Iterator[_Stray]:
    for obj, root, schema in _checked(context):
        base = tuple(step for step in root if isinstance(step, str))
        for path, known in unknown_fields(reach(obj.data, root), schema, root):
            if not is_of_another_shape(obj, path):
                place = _right_place(path, root, schema)
                yield _Stray(obj, path, known, None if place is None else (*base, *place))
    for pod in context.world.pods:
        yield from _beside_the_pod_spec(pod)


def _beside_the_pod_spec(pod: PodSpec) -> Iterator[_Stray]:
    """Fields of a pod that stand somewhere above its spec: in the template, or in the workload's own spec."""
    base = tuple(step for step in pod.path if isinstance(step, str))
    for length in range(1, len(pod.path)):
        above = mapping(reach(pod.source.data, pod.path[:length]))
        if pod.path[length - 1] == "template":
            strays = [key for key in above if key not in _TEMPLATE]
        else:
            strays = [key for key in ("resourceClaims", "containers") if key in above]
        for key in strays:
            yield _Stray(pod.source, (*pod.path[:length], key), _TEMPLATE, base if key in POD_SPEC else None)


_TEMPLATE = ("metadata", "spec")


def _checked(context: Context) -> Iterator[tuple[Object, FieldPath, Schema]]:
    """What is to be walked through: objects and pod specs that are not all as their schema knows them."""
    for obj in context.world.objects:
        schemas = RESOURCE.get(version_of(obj.api_version) or "", {})
        if obj.kind in schemas and not conforms(obj.data, schemas[obj.kind]):
            yield obj, (), schemas[obj.kind]
    for pod in context.world.pods:
        if not conforms(reach(pod.source.data, pod.path), POD_SPEC):
            yield pod.source, pod.path, POD_SPEC


def _right_place(path: FieldPath, root: FieldPath, schema: Schema) -> tuple[str, ...] | None:
    """Where a field of this name belongs: the known place that shares most of the way."""
    name, here = str(path[-1]), tuple(str(step) for step in path[len(root) : -1] if isinstance(step, str))
    places = places_of(name, schema)
    return min(places, key=lambda place: _way(here, place)) if places else None


def _way(here: tuple[str, ...], place: tuple[str, ...]) -> int:
    shared = 0
    while shared < min(len(here), len(place)) and here[shared] == place[shared]:
        shared += 1
    return len(here) + len(place) - 2 * shared


@rule(
    "misplaced-field",
    ERROR,
    "A field stands in the wrong place",
    why="A strict server refuses it. A lenient one drops it silently: a misplaced `config` means that no card is ever "
    "renamed, and nobody says so.",
    bad=template_example(
        """
        requests:
        - name: nic
          exactly: {deviceClassName: dranet}
        """,
        below_spec="""
        config:
        - opaque:
            driver: dra.net
            parameters: {interface: {name: dranet0}}
        """,
    ),
    good=template_example(
        """
        requests:
        - name: nic
          exactly: {deviceClassName: dranet}
        config:
        - opaque:
            driver: dra.net
            parameters: {interface: {name: dranet0}}
        """
    ),
)
def misplaced_field(context: Context) -> Iterator[Finding]:
    for stray in _strays(context):
        if stray.right_place is not None:
            where = ".".join(stray.right_place) or "the object itself"
            right = ".".join((*stray.right_place, str(stray.path[-1])))
            belongs = f"{stray.path[-1]} belongs under {where.rpartition('.')[2]} ({right})"
            message = f'unknown field "{dotted(stray.path)}": {belongs}'
            yield finding("misplaced-field", stray.obj, stray.path, message, _moved(stray, where))


def _moved(stray: _Stray, where: str) -> str:
    """The field's own lines, indented as they must be below the sibling they belong to."""
    lines = stray.obj.block(stray.path)
    parent = stray.path[:-1]
    below = (stray.right_place or ())[-1:]
    siblings = mapping(reach(stray.obj.data, (*parent, *below)))
    if not lines or not siblings or not below:
        return f"move {stray.path[-1]} to {where}"
    old = len(lines[0]) - len(lines[0].lstrip())
    new = stray.obj.at((*parent, *below, next(iter(siblings)))).column - 1
    moved = [" " * (new - old) + line if new >= old else line[old - new :] for line in lines]
    head = " " * (stray.obj.at((*parent, *below)).column - 1) + f"{below[0]}:"
    return f"move it to {where}:\n" + "\n".join([head, *moved])


@rule(
    "unknown-field",
    ERROR,
    "A field the API does not know",
    why="A strict server refuses it, a lenient one drops it silently.",
    bad=template_example(
        """
        requests:
        - name: nic
          exactly: {deviceClass: dranet}
        """
    ),
    good=template_example(
        """
        requests:
        - name: nic
          exactly: {deviceClassName: dranet}
        """
    ),
)
def unknown_field(context: Context) -> Iterator[Finding]:
    for stray in _strays(context):
        if stray.right_place is None:
            near = difflib.get_close_matches(str(stray.path[-1]), stray.known, 1, 0.6)
            fix = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(stray.known))}"
            yield finding("unknown-field", stray.obj, stray.path, f'unknown field "{dotted(stray.path)}"', fix)


@rule(
    "wrong-type",
    ERROR,
    "A field holds a value of the wrong type",
    why="The server cannot decode the object.",
    bad=claim_example(
        """
        requests:
        - name: nics
          exactly: {deviceClassName: dranet, count: "8"}
        """,
        name="nics",
    ),
    good=claim_example(
        """
        requests:
        - name: nics
          exactly: {deviceClassName: dranet, count: 8}
        """,
        name="nics",
    ),
)
def wrong_type(context: Context) -> Iterator[Finding]:
    for obj, root, schema in _checked(context):
        for path, wanted in _mistyped(reach(obj.data, root), schema, root):
            message = f"{dotted(path)} must be {wanted}, found {reach(obj.data, path)!r:.60}"
            yield finding("wrong-type", obj, path, message, f"write {wanted}")


def _mistyped(value: Any, schema: Schema, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    if value is None or schema == "any":
        return
    if isinstance(schema, str):
        if not is_type(value, schema):
            yield path, TYPE_NAMES[schema]
    elif isinstance(schema, list):
        if not isinstance(value, list):
            yield path, "a list"
            return
        for i, item in enumerate(value):
            yield from _mistyped(item, schema[0], (*path, i))
    elif not isinstance(value, dict):
        yield path, "an object"
    else:
        for key, item in value.items():
            inner = schema.values if isinstance(schema, Map) else schema.get(key)
            if inner is not None:
                yield from _mistyped(item, inner, (*path, key))
