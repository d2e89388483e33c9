"""What objects call each other: names nobody has, and names that are given twice."""

from __future__ import annotations

from collections.abc import Iterator

from dranet.lint.rules.base import WARNING, Context, Finding, finding, rule
from dranet.lint.rules.examples import class_example, template_example
from dranet.manifests.reading import Object
from dranet.manifests.workloads import mapping
from dranet.manifests.yaml_nodes import dotted


@rule(
    "unknown-reference",
    WARNING,
    "A class, template or claim that the files do not hold",
    why="Pods wait for it: `could not find`, or `device class ... does not exist`.",
    bad=template_example(
        """
        requests:
        - name: nic
          exactly: {deviceClassName: dranett}
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
def unknown_reference(context: Context) -> Iterator[Finding]:
    for claim in context.world.claims:
        for request in claim.requests:
            if request.device_class and request.device_class not in context.world.classes:
                known = ", ".join(sorted(context.world.classes))
                message = f"device class {request.device_class!r} is in none of the files"
                where = (*request.path, "deviceClassName")
                yield finding("unknown-reference", claim.owner, where, message, f"add its file; known: {known}")
    for pod in context.world.pods:
        for i, ref in enumerate(pod.claims):
            if context.world.claim_of(pod, ref) is None:
                kind = "template" if ref.template else "claim"
                message = f"{kind} {ref.template or ref.claim!r} of namespace {pod.namespace} is in none of the files"
                where = (*pod.path, "resourceClaims", i)
                yield finding("unknown-reference", pod.source, where, message, f"add the file of {dotted(where)}")


@rule(
    "defined-twice",
    WARNING,
    "Two objects of one kind and name",
    why="They are one object to the server: the second replaces the first, and only the second is planned.",
    bad=class_example() + "---\n" + class_example('device.attributes["dra.net"].rdma == true'),
    good=class_example()
    + "---\n"
    + class_example('device.driver == "dra.net" && device.attributes["dra.net"].rdma == true', name="dranet-rdma"),
)
def defined_twice(context: Context) -> Iterator[Finding]:
    first: dict[tuple[str, str, str], Object] = {}
    for obj in context.world.objects:
        if not mapping(obj.data.get("metadata")).get("name"):
            continue
        before = first.setdefault((obj.kind, obj.namespace, obj.name), obj)
        if obj.data != before.data:
            place = f"{before.file}:{before.at(('metadata', 'name')).line}"
            message = f"{obj.kind} {obj.name!r} stands at {place} already: this one replaces it"
            yield finding("defined-twice", obj, ("metadata", "name"), message, "give it another name, or take one out")
