"""Fields: known or not, in their place or not, of the right type, in a version the server serves."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dranet.manifests.reading import Object
from dranet.manifests.rules.base import ERROR, WARNING, Context, Finding, dotted, finding, rule
from dranet.manifests.schema import (
    FLAT_REQUEST_FIELDS,
    POD_SPEC,
    RESOURCE,
    TYPE_NAMES,
    Map,
    Schema,
    is_type,
    places_of,
)
from dranet.manifests.versions import version_of
from dranet.manifests.workloads import mapping, pod_specs, reach
from dranet.manifests.yaml_nodes import FieldPath

SERVED_BY_DEFAULT = {"v1": (1, 34), "v1beta2": None, "v1beta1": None}
FIRST_WITHOUT_BETAS = (1, 36)
REMOVES_BETAS = (1, 38)


@rule(
    "yaml-syntax",
    ERROR,
    "The file is not YAML or JSON",
    why="Nothing in the document can be read past this place.",
    bad="apiVersion: v1\nkind: Pod\nmetadata: {name: a\n",
    good="apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
)
def yaml_syntax(context: Context) -> Iterator[Finding]:
    for p in context.problems:
        if p.fatal:
            yield Finding("yaml-syntax", ERROR, p.file, p.mark.line, p.mark.column, p.message, p.fix)


@rule(
    "not-an-object",
    WARNING,
    "A document without apiVersion and kind",
    why="kubectl refuses such a document; the tools here skip it.",
    bad="spec:\n  containers: []\n",
    good="apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers: []\n",
)
def not_an_object(context: Context) -> Iterator[Finding]:
    for p in context.problems:
        if not p.fatal:
            yield Finding("not-an-object", WARNING, p.file, p.mark.line, p.mark.column, p.message, p.fix)


@rule(
    "duplicate-field",
    ERROR,
    "A field is written twice",
    why="A strict server refuses it; a lenient one keeps the last and drops the first without a word.",
    bad="""
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: dranet}
spec:
  selectors: [{cel: {expression: 'device.driver == "dra.net"'}}]
  selectors: []
""",
    good="""
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: dranet}
spec:
  selectors: [{cel: {expression: 'device.driver == "dra.net"'}}]
""",
)
def duplicate_field(context: Context) -> Iterator[Finding]:
    for obj in context.world.objects:
        for path, mark in obj.duplicates:
            message = f"{dotted(path)} is written a second time; a lenient server keeps only this one"
            yield finding("duplicate-field", obj, mark, message, f"keep one {path[-1]}")


@dataclass(frozen=True, slots=True)
class _Stray:
    """A field the schema does not know at its place."""

    obj: Object
    path: FieldPath
    known: tuple[str, ...]
    right_place: tuple[str, ...] | None


def _strays(context: Context) -> Iterator[_Stray]:
    for obj, root, schema in _checked(context):
        for path, known in _unknown(reach(obj.data, root), schema, root):
            if not _wrong_shape_path(obj, path):
                yield _Stray(obj, path, known, _right_place(path, root, schema))


def _checked(context: Context) -> Iterator[tuple[Object, FieldPath, Schema]]:
    for obj in context.world.objects:
        schemas = RESOURCE.get(version_of(obj.api_version) or "", {})
        if obj.kind in schemas:
            yield obj, (), schemas[obj.kind]
        for pod in pod_specs([obj]):
            yield obj, pod.path, POD_SPEC


def _unknown(value: Any, schema: Schema, path: FieldPath) -> Iterator[tuple[FieldPath, tuple[str, ...]]]:
    if isinstance(schema, list) and isinstance(value, list):
        for i, item in enumerate(value):
            yield from _unknown(item, schema[0], (*path, i))
    elif isinstance(schema, Map) and isinstance(value, dict):
        for key, item in value.items():
            yield from _unknown(item, schema.values, (*path, key))
    elif isinstance(schema, dict) and isinstance(value, dict):
        for key, item in value.items():
            if key in schema:
                yield from _unknown(item, schema[key], (*path, key))
            else:
                yield (*path, key), tuple(schema)


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
    bad="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: nic}
spec:
  spec:
    devices:
      requests:
      - name: nic
        exactly: {deviceClassName: dranet}
    config:
    - opaque:
        driver: dra.net
        parameters: {interface: {name: dranet0}}
""",
    good="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: nic}
spec:
  spec:
    devices:
      requests:
      - name: nic
        exactly: {deviceClassName: dranet}
      config:
      - opaque:
          driver: dra.net
          parameters: {interface: {name: dranet0}}
""",
)
def misplaced_field(context: Context) -> Iterator[Finding]:
    for stray in _strays(context):
        if stray.right_place is not None:
            where = ".".join(stray.right_place) or "the top of the object"
            name = stray.path[-1]
            message = (
                f'unknown field "{dotted(stray.path)}": {name} belongs under {where.split(".")[-1]} ({where}.{name})'
            )
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
    bad="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: nic}
spec:
  spec:
    devices:
      requests:
      - name: nic
        exactly: {deviceClass: dranet}
""",
    good="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: nic}
spec:
  spec:
    devices:
      requests:
      - name: nic
        exactly: {deviceClassName: dranet}
""",
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
    bad="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: nics}
spec:
  devices:
    requests:
    - name: nics
      exactly: {deviceClassName: dranet, count: "8"}
""",
    good="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: nics}
spec:
  devices:
    requests:
    - name: nics
      exactly: {deviceClassName: dranet, count: 8}
""",
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


@rule(
    "api-version",
    WARNING,
    "An API version the server does not serve",
    why="Kubernetes serves resource.k8s.io/v1 from 1.34. From 1.36 a default server does not serve v1beta1 and v1beta2 "
    "(`no matches for kind`), and 1.38 no longer has them.",
    bad="""
apiVersion: resource.k8s.io/v1beta1
kind: DeviceClass
metadata: {name: dranet}
spec:
  selectors: [{cel: {expression: 'device.driver == "dra.net"'}}]
""",
    good="""
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: dranet}
spec:
  selectors: [{cel: {expression: 'device.driver == "dra.net"'}}]
""",
)
def api_version(context: Context) -> Iterator[Finding]:
    release = ".".join(map(str, context.kubernetes))
    for obj in context.world.objects:
        version = version_of(obj.api_version)
        if version is None or (version == "v1" and context.kubernetes >= (1, 34)):
            continue
        if version == "v1":
            message, severity = f"Kubernetes {release} does not serve resource.k8s.io/v1 (from 1.34)", ERROR
            yield finding("api-version", obj, ("apiVersion",), message, "use v1beta1", severity=severity)
        elif version not in SERVED_BY_DEFAULT or context.kubernetes >= REMOVES_BETAS:
            message = f"no Kubernetes {release} serves resource.k8s.io/{version}: no matches for kind {obj.kind!r}"
            yield finding("api-version", obj, ("apiVersion",), message, "use resource.k8s.io/v1", severity=ERROR)
        elif context.kubernetes >= FIRST_WITHOUT_BETAS:
            message = (
                f"a default Kubernetes {release} server does not serve resource.k8s.io/{version} "
                f"(only with --runtime-config=resource.k8s.io/{version}=true), and 1.38 no longer has it"
            )
            yield finding("api-version", obj, ("apiVersion",), message, _v1_hint(version, obj.kind))


def _v1_hint(version: str, kind: str) -> str:
    hint = "write apiVersion: resource.k8s.io/v1"
    flat = version == "v1beta1" and kind.startswith("ResourceClaim")
    return f"{hint} and put the fields of each request under exactly:" if flat else hint


@rule(
    "wrong-shape",
    ERROR,
    "Fields of another API version",
    why="In v1 and v1beta2 the fields of a request stand under `exactly`, in v1beta1 beside its name. A device's "
    "fields stand under `basic` in v1beta1 only.",
    bad="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: nic}
spec:
  devices:
    requests:
    - name: nic
      deviceClassName: dranet
""",
    good="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: nic}
spec:
  devices:
    requests:
    - name: nic
      exactly:
        deviceClassName: dranet
""",
)
def wrong_shape(context: Context) -> Iterator[Finding]:
    for obj in context.world.objects:
        version = version_of(obj.api_version)
        if version not in RESOURCE or obj.kind not in RESOURCE[version]:
            continue
        for path, _ in _unknown(obj.data, RESOURCE[version][obj.kind], ()):
            if _wrong_shape_path(obj, path):
                name = path[-1]
                fix = {
                    "exactly": f"in {version} the fields of a request stand beside its name; or use {obj.kind} of v1",
                    "basic": f"in {version} a device's fields stand beside its name",
                }.get(str(name), f"in {version} put {name} under exactly:")
                yield finding("wrong-shape", obj, path, f'unknown field "{dotted(path)}" in {version}', fix)


def _wrong_shape_path(obj: Object, path: FieldPath) -> bool:
    """Whether this stray field would be right in another API version."""
    if len(path) < 3 or not isinstance(path[-2], int):
        return False
    version, name = version_of(obj.api_version), path[-1]
    if path[-3] == "requests":
        return name == "exactly" if version == "v1beta1" else name in FLAT_REQUEST_FIELDS
    return path[-3] == "devices" and obj.kind == "ResourceSlice" and name == "basic"
