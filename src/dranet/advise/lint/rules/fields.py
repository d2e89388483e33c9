"""API versions and fields: served by the server, known, in the right place, of the right type, written once."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

import msgspec

from dranet.advise.lint.rules.base import (
    ERROR,
    WARNING,
    Context,
    Finding,
    claim_example,
    class_example,
    config_example,
    finding,
    request_example,
    rule,
    template_example,
)
from dranet.advise.manifests import FieldPath, Object, PodSet, dotted, version_of
from dranet.advise.manifests.schema import (
    FLAT_REQUEST_FIELDS,
    POD_SPEC,
    RESOURCE,
    TYPE_NAMES,
    Map,
    Schema,
    conforms,
    is_type,
    places_of,
    unknown_fields,
)
from dranet.core.untyped import as_dict, get_path

_KNOWN_VERSIONS = ("v1", "v1beta2", "v1beta1")
_BETAS_OFF_BY_DEFAULT = (1, 36)
_BETAS_REMOVED = (1, 38)


@rule(
    "api-version",
    WARNING,
    "An API version that the server does not serve",
    why="Kubernetes serves resource.k8s.io/v1 from 1.34. From 1.36 v1beta1 and v1beta2 are off by default "
    "(`no matches for kind`), and 1.38 removes them.",
    bad=class_example(version="v1beta1"),
    good=class_example(),
)
def api_version(context: Context) -> Iterator[Finding]:
    release = ".".join(map(str, context.kubernetes))
    for obj in context.manifests.objects:
        version = version_of(obj.api_version)
        if version is None or (version == "v1" and context.kubernetes >= (1, 34)):
            continue
        if version == "v1":
            message, severity = f"Kubernetes {release} does not serve resource.k8s.io/v1; it exists since 1.34", ERROR
            yield finding(obj, ("apiVersion",), message, "use v1beta1", severity)
        elif version not in _KNOWN_VERSIONS or context.kubernetes >= _BETAS_REMOVED:
            message = f"Kubernetes {release} does not serve resource.k8s.io/{version}: no matches for kind {obj.kind!r}"
            yield finding(obj, ("apiVersion",), message, _v1_hint(version, obj.kind), severity=ERROR)
        elif context.kubernetes >= _BETAS_OFF_BY_DEFAULT:
            message = (
                f"Kubernetes {release} serves resource.k8s.io/{version} only with "
                f"--runtime-config=resource.k8s.io/{version}=true, and 1.38 removes it"
            )
            yield finding(obj, ("apiVersion",), message, _v1_hint(version, obj.kind))


def _v1_hint(version: str, kind: str) -> str:
    hint = "write apiVersion: resource.k8s.io/v1"
    if version.startswith("v1alpha"):
        return (
            f"{hint} and describe the devices under devices.requests[].exactly; no resourceClassName, no parametersRef"
        )
    flat = version == "v1beta1" and kind.startswith("ResourceClaim")
    return f"{hint} and put the fields of each request under exactly:" if flat else hint


@rule(
    "wrong-shape",
    ERROR,
    "Fields of another API version",
    why="In v1 and v1beta2 the fields of a request are under `exactly`, in v1beta1 next to its name. The fields of a "
    "device are under `basic` in v1beta1 only.",
    bad=claim_example("- name: nic\n  deviceClassName: dranet\n"),
    good=claim_example(request_example()),
)
def wrong_shape(context: Context) -> Iterator[Finding]:
    for obj in context.manifests.objects:
        version = version_of(obj.api_version)
        schema = RESOURCE.get(version or "", {}).get(obj.kind)
        if schema is None or conforms(obj.data, schema):
            continue
        for path, _ in unknown_fields(obj.data, schema, ()):
            if _is_from_another_version(obj, path):
                name = path[-1]
                fix = {
                    "exactly": f"in {version} put the fields of a request next to its name; or use {obj.kind} of v1",
                    "basic": f"in {version} put the fields of a device next to its name",
                }.get(str(name), f"in {version} put {name} under exactly:")
                yield finding(obj, path, f'unknown field "{dotted(path)}" in {version}', fix)


def _is_from_another_version(obj: Object, path: FieldPath) -> bool:
    """Whether this unknown field is valid in another API version."""
    if len(path) < 3 or not isinstance(path[-2], int):
        return False
    version, name = version_of(obj.api_version), path[-1]
    if path[-3] == "requests":
        return name == "exactly" if version == "v1beta1" else name in FLAT_REQUEST_FIELDS
    return path[-3] == "devices" and obj.kind == "ResourceSlice" and name == "basic"


@rule(
    "duplicate-field",
    ERROR,
    "A field that is written twice",
    why="With strict validation the server rejects it; otherwise it silently keeps only the last value.",
    bad=class_example() + "  selectors: []\n",
    good=class_example(),
)
def duplicate_field(context: Context) -> Iterator[Finding]:
    for obj in context.manifests.objects:
        for path, mark in obj.duplicates:
            message = f"{dotted(path)} is written twice; without strict validation the server keeps only this one"
            yield finding(obj, mark, message, f"remove one {path[-1]}")


class _UnknownField(msgspec.Struct, frozen=True):
    """A field that the schema does not have at this position."""

    obj: Object
    path: FieldPath
    known: tuple[str, ...]
    right_place: tuple[str, ...] | None
    """Path from the top of the object, without list indices."""


def _unknown_fields(context: Context) -> Iterator[_UnknownField]:
    for obj, root, schema in _nonconforming(context):
        base = tuple(step for step in root if isinstance(step, str))
        for path, known in unknown_fields(get_path(obj.data, *root), schema, root):
            if not _is_from_another_version(obj, path) and not _is_own_field(root, path):
                place = _right_place(path, root, schema)
                yield _UnknownField(obj, path, known, None if place is None else (*base, *place))
    for pod in context.manifests.pods:
        if not pod.built:
            yield from _outside_pod_spec(pod)


def _is_own_field(root: FieldPath, path: FieldPath) -> bool:
    """Whether a custom resource may have this field next to those of a pod spec: not in the spec of a pod template."""
    custom = bool(root) and root != ("spec",) and root[-2:] != ("template", "spec")
    return custom and len(path) == len(root) + 1


def _outside_pod_spec(pod: PodSet) -> Iterator[_UnknownField]:
    """Fields of a pod spec that are in the template or in the spec of the workload instead."""
    base = tuple(step for step in pod.path if isinstance(step, str))
    for length in range(1, len(pod.path)):
        above = as_dict(get_path(pod.source.data, *(pod.path[:length])))
        if pod.path[length - 1 : length + 1] == ("template", "spec"):
            fields = [key for key in above if key not in _TEMPLATE]
        else:
            fields = [key for key in ("resourceClaims", "containers") if key in above]
        for key in fields:
            yield _UnknownField(pod.source, (*pod.path[:length], key), _TEMPLATE, base if key in POD_SPEC else None)


_TEMPLATE = ("metadata", "spec")


def _nonconforming(context: Context) -> Iterator[tuple[Object, FieldPath, Schema]]:
    """Objects and pod specs that do not conform to their schema."""
    for obj in context.manifests.objects:
        schemas = RESOURCE.get(version_of(obj.api_version) or "", {})
        if obj.kind in schemas and not conforms(obj.data, schemas[obj.kind]):
            yield obj, (), schemas[obj.kind]
    for pod in context.manifests.pods:
        if not pod.built and not conforms(get_path(pod.source.data, *pod.path), POD_SPEC):
            yield pod.source, pod.path, POD_SPEC


def _right_place(path: FieldPath, root: FieldPath, schema: Schema) -> tuple[str, ...] | None:
    """Where a field of this name belongs: the known path nearest to this one."""
    name, here = str(path[-1]), tuple(str(step) for step in path[len(root) : -1] if isinstance(step, str))
    places = places_of(name, schema)
    return min(places, key=lambda place: _distance(here, place)) if places else None


def _distance(here: tuple[str, ...], place: tuple[str, ...]) -> int:
    shared = 0
    while shared < min(len(here), len(place)) and here[shared] == place[shared]:
        shared += 1
    return len(here) + len(place) - 2 * shared


@rule(
    "misplaced-field",
    ERROR,
    "A field in the wrong place",
    why="With strict validation the server rejects it; otherwise it silently drops it. With a misplaced `config`, for "
    "example, interfaces keep their names.",
    bad=template_example(request_example(), below_spec="config:\n" + config_example(name="dranet0")),
    good=template_example(request_example(), config=config_example(name="dranet0")),
)
def misplaced_field(context: Context) -> Iterator[Finding]:
    for field in _unknown_fields(context):
        if field.right_place is not None:
            where = ".".join(field.right_place) or "the object itself"
            right = ".".join((*field.right_place, str(field.path[-1])))
            belongs = f"{field.path[-1]} belongs under {where.rpartition('.')[2]} ({right})"
            message = f'unknown field "{dotted(field.path)}": {belongs}'
            yield finding(field.obj, field.path, message, _move_hint(field, where))


def _move_hint(field: _UnknownField, where: str) -> str:
    """The lines of the field, indented for their right place."""
    lines = field.obj.block(field.path)
    parent = field.path[:-1]
    below = (field.right_place or ())[-1:]
    siblings = as_dict(get_path(field.obj.data, *parent, *below))
    if not lines or not siblings or not below:
        return f"move {field.path[-1]} to {where}"
    old = len(lines[0]) - len(lines[0].lstrip())
    new = field.obj.at((*parent, *below, next(iter(siblings)))).column - 1
    moved = [" " * (new - old) + line if new >= old else line[old - new :] for line in lines]
    head = " " * (field.obj.at((*parent, *below)).column - 1) + f"{below[0]}:"
    return f"move it to {where}:\n" + "\n".join([head, *moved])


@rule(
    "unknown-field",
    ERROR,
    "A field that the API does not have",
    why="With strict validation the server rejects it; otherwise it silently drops it.",
    bad=template_example("- name: nic\n  exactly: {deviceClass: dranet}\n"),
    good=template_example(request_example()),
)
def unknown_field(context: Context) -> Iterator[Finding]:
    for field in _unknown_fields(context):
        if field.right_place is None:
            near = difflib.get_close_matches(str(field.path[-1]), field.known, 1, 0.6)
            fix = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(field.known))}"
            fix = _REMOVED.get(str(field.path[-1]), fix)
            yield finding(field.obj, field.path, f'unknown field "{dotted(field.path)}"', fix)


_REMOVED = {
    "source": "removed in 1.31: write resourceClaimName or resourceClaimTemplateName next to the name",
    "resourceClassName": "of v1alpha2: write devices.requests[].exactly.deviceClassName",
}
"""Fields of older versions that published manifests still have."""


@rule(
    "wrong-type",
    ERROR,
    "A value of the wrong type",
    why="The server cannot decode the object.",
    bad=claim_example(request_example("nics", count='"8"'), name="nics"),
    good=claim_example(request_example("nics", count=8), name="nics"),
)
def wrong_type(context: Context) -> Iterator[Finding]:
    for obj, root, schema in _nonconforming(context):
        for path, wanted in _wrong_types(get_path(obj.data, *root), schema, root):
            message = f"{dotted(path)} must be {wanted}, not {get_path(obj.data, *path)!r:.60}"
            yield finding(obj, path, message, f"write {wanted}")


def _wrong_types(value: Any, schema: Schema, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
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
            yield from _wrong_types(item, schema[0], (*path, i))
    elif not isinstance(value, dict):
        yield path, "an object"
    else:
        for key, item in value.items():
            inner = schema.values if isinstance(schema, Map) else schema.get(key)
            if inner is not None:
                yield from _wrong_types(item, inner, (*path, key))
