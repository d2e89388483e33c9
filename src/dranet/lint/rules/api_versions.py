"""API versions: does the server serve them, and do the fields have their shape?"""

from __future__ import annotations

from collections.abc import Iterator

from dranet.lint.rules.base import ERROR, WARNING, Context, Finding, finding, rule
from dranet.lint.rules.examples import claim_example, class_example
from dranet.manifests.conforming import conforms
from dranet.manifests.reading import Object
from dranet.manifests.schema import FLAT_REQUEST_FIELDS, RESOURCE, unknown_fields
from dranet.manifests.versions import version_of
from dranet.manifests.yaml_nodes import FieldPath, dotted

SERVED_BY_DEFAULT = {"v1": (1, 34), "v1beta2": None, "v1beta1": None}
FIRST_WITHOUT_BETAS = (1, 36)
REMOVES_BETAS = (1, 38)


@rule(
    "api-version",
    WARNING,
    "An API version the server does not serve",
    why="Kubernetes serves resource.k8s.io/v1 from 1.34. From 1.36 a default server does not serve v1beta1 and v1beta2 "
    "(`no matches for kind`), and 1.38 no longer has them.",
    bad=class_example(version="v1beta1"),
    good=class_example(),
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
    bad=claim_example(
        """
        requests:
        - name: nic
          deviceClassName: dranet
        """
    ),
    good=claim_example(
        """
        requests:
        - name: nic
          exactly:
            deviceClassName: dranet
        """
    ),
)
def wrong_shape(context: Context) -> Iterator[Finding]:
    for obj in context.world.objects:
        version = version_of(obj.api_version)
        schema = RESOURCE.get(version or "", {}).get(obj.kind)
        if schema is None or conforms(obj.data, schema):
            continue
        for path, _ in unknown_fields(obj.data, schema, ()):
            if is_of_another_shape(obj, path):
                name = path[-1]
                fix = {
                    "exactly": f"in {version} the fields of a request stand beside its name; or use {obj.kind} of v1",
                    "basic": f"in {version} a device's fields stand beside its name",
                }.get(str(name), f"in {version} put {name} under exactly:")
                yield finding("wrong-shape", obj, path, f'unknown field "{dotted(path)}" in {version}', fix)


def is_of_another_shape(obj: Object, path: FieldPath) -> bool:
    """Whether this stray field would be right in another API version."""
    if len(path) < 3 or not isinstance(path[-2], int):
        return False
    version, name = version_of(obj.api_version), path[-1]
    if path[-3] == "requests":
        return name == "exactly" if version == "v1beta1" else name in FLAT_REQUEST_FIELDS
    return path[-3] == "devices" and obj.kind == "ResourceSlice" and name == "basic"
