"""Documents: valid YAML with Kubernetes objects, references that exist, and unique names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dranet.advise.lint.ignore_comments import ignored_by_file
from dranet.advise.lint.rules.base import (
    ERROR,
    INFO,
    RULES,
    WARNING,
    Context,
    Finding,
    class_example,
    finding,
    request_example,
    rule,
    template_example,
)
from dranet.advise.manifests import Claim, FieldPath, Object, Request, dotted, is_served
from dranet.advise.manifests.sources import may_have_placeholders, placeholders
from dranet.advise.plan.unknowns import class_hint
from dranet.core.errors import nearest
from dranet.core.untyped import as_dict


@rule(
    "yaml-syntax",
    ERROR,
    "The file is not YAML or JSON",
    why="The document cannot be parsed after this position.",
    bad="apiVersion: v1\nkind: Pod\nmetadata: {name: a\n",
    good="apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
)
def yaml_syntax(context: Context) -> Iterator[Finding]:
    for p in context.problems:
        if p.fatal and not p.unrendered:
            yield Finding("", "", p.file, p.mark.line, p.mark.column, p.message, p.fix)


@rule(
    "not-an-object",
    WARNING,
    "A document without apiVersion and kind",
    why="kubectl rejects such a document; dranet skips it.",
    bad="spec:\n  containers: []\n",
    good="apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers: []\n",
)
def not_an_object(context: Context) -> Iterator[Finding]:
    for p in context.problems:
        if not p.fatal and not p.unrendered:
            yield Finding("", "", p.file, p.mark.line, p.mark.column, p.message, p.fix)


@rule(
    "not-rendered",
    ERROR,
    "A template instead of a manifest",
    why="Helm, kustomize, Jinja or Jsonnet make manifests of it. What it contains is known only after that.",
    bad="apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ .Release.Name }}\n",
    good="apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: example}]}\n",
)
def not_rendered(context: Context) -> Iterator[Finding]:
    for p in context.problems:
        if p.unrendered:
            severity = ERROR if p.fatal or not context.manifests.objects else WARNING
            yield Finding("", severity, p.file, p.mark.line, p.mark.column, p.message, f"render it: {p.fix}")


@rule(
    "placeholder",
    INFO,
    "A value that has to be filled in before the manifest is applied",
    why="The API server gets the placeholder as it is, unless envsubst, sed or an editor replaces it.",
    bad="apiVersion: v1\nkind: Namespace\nmetadata: {name: <your-namespace>}\n",
    good="apiVersion: v1\nkind: Namespace\nmetadata: {name: training}\n",
)
def placeholder(context: Context) -> Iterator[Finding]:
    """One finding a file and placeholder."""
    first: dict[tuple[str, str], tuple[Object, FieldPath]] = {}
    for obj in context.manifests.objects:
        if context.cached(("holders", id(obj.source)), partial(may_have_placeholders, obj.source.text)):
            for path, text in placeholders(obj.data):
                first.setdefault((obj.file, text), (obj, path))
    for (_, text), (obj, path) in first.items():
        yield finding(obj, path, f"placeholder {text}", "replace it before you apply the file")


@rule(
    "unknown-ignore",
    WARNING,
    "An ignore comment for a rule that does not exist",
    why="The comment has no effect.",
    bad="# dranet: ignore[no-alignment]\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
    good="# dranet: ignore[no-alignment-constraint]\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
)
def unknown_ignore(context: Context) -> Iterator[Finding]:
    for file, found in ignored_by_file(context.manifests.objects).items():
        for one in found:
            for name in sorted(one.rules - set(RULES)):
                near = nearest(name, RULES)
                fix = f"did you mean {near}?" if near else "see docs/reference/lint-rules.md for all rules"
                message = f"unknown rule {name!r}: this comment has no effect"
                yield Finding("", "", file, one.line, one.column, message, fix)


@rule(
    "unknown-reference",
    WARNING,
    "A reference to a class, template or claim that is not in the files",
    why="Without it in the cluster, pods stay pending: `could not find`, or `device class ... does not exist`.",
    bad=template_example(request_example(device_class="dranett")),
    good=template_example(request_example()),
)
def unknown_reference(context: Context) -> Iterator[Finding]:
    named: dict[str, list[tuple[Claim, Request]]] = {}
    for claim in context.manifests.claims:
        for request in claim.requests:
            if request.device_class and request.device_class not in context.manifests.classes:
                named.setdefault(request.device_class, []).append((claim, request))
    for name, users in named.items():
        claim, request = users[0]
        others = f" ({len(users)} requests name it)" if len(users) > 1 else ""
        message = f"no DeviceClass {name!r} in the input{others}"
        yield finding(claim.owner, (*request.path, "deviceClassName"), message, class_hint(name))
    for pod in context.manifests.pods:
        for i, ref in enumerate(pod.claims):
            if (ref.template or ref.claim) and context.manifests.claim_of(pod, ref) is None:
                kind = "ResourceClaimTemplate" if ref.template else "ResourceClaim"
                message = f"no {kind} {ref.template or ref.claim!r} in namespace {pod.namespace} of the input"
                where = (*pod.path, "resourceClaims", i)
                known = [obj.name for obj in context.manifests.by_kind.get(kind, ()) if obj.namespace == pod.namespace]
                near = nearest(ref.template or ref.claim or "", known)
                fix = f"did you mean {near!r}?" if near else f"add the file that defines {dotted(where)}"
                yield finding(pod.source, where, message, fix)


@rule(
    "no-requests",
    WARNING,
    "A claim or template without requests",
    why="It is allocated at once, without any device. Its pods start without the devices they were meant to have.",
    bad=template_example(),
    good=template_example(request_example()),
)
def no_requests(context: Context) -> Iterator[Finding]:
    for claim in context.manifests.claims:
        # Rule api-version reports a version that no server serves; its requests have other fields.
        if not claim.requests and is_served(claim.owner.api_version):
            message = f"{claim.owner.kind} {claim.owner.name!r} requests no device"
            yield finding(
                claim.owner, (*claim.base, "devices", "requests"), message, "add devices.requests, or remove it"
            )


@rule(
    "defined-twice",
    WARNING,
    "Two objects of one kind and name",
    why="For the API server they are the same object: the second replaces the first.",
    bad=class_example() + "---\n" + class_example('device.attributes["dra.net"].rdma == true'),
    good=class_example()
    + "---\n"
    + class_example('device.driver == "dra.net" && device.attributes["dra.net"].rdma == true', name="dranet-rdma"),
)
def defined_twice(context: Context) -> Iterator[Finding]:
    first: dict[tuple[str, str, str], Object] = {}
    for obj in context.manifests.objects:
        if not as_dict(obj.data.get("metadata")).get("name"):
            continue
        before = first.setdefault((obj.kind, obj.namespace, obj.name), obj)
        if obj.data != before.data:
            place = f"{before.file}:{before.at(('metadata', 'name')).line}"
            message = f"{obj.kind} {obj.name!r} is already defined at {place}; this one replaces it"
            yield finding(obj, ("metadata", "name"), message, "rename or remove one of them")
