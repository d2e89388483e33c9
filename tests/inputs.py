"""Shorthands: manifests from text or files, hardware from shapes, and the command."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from dranet.advise.manifests import Manifests, Object, must_read, read_text
from dranet.advise.plan.hardware import Hardware, hardware_of_shapes
from dranet.cli.main import load_group
from dranet.machines.shape_devices import expand_shape_specs


def run(*args: object, stdin: str | bytes | None = None) -> Result:
    """Run the command ``dranet`` in this process."""
    return CliRunner().invoke(load_group(), [str(arg) for arg in args], input=stdin)


def claim(requests: str, constraints: str = "", kind: str = "ResourceClaimTemplate", name: str = "t") -> str:
    """A claim or template from one-line requests such as ``gpu: gpu.nvidia.com 2``."""
    deep = "    " if kind == "ResourceClaimTemplate" else "  "
    lines = [f"apiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:"]
    if kind == "ResourceClaimTemplate":
        lines.append("  spec:")
    lines += [f"{deep}devices:", f"{deep}  requests:"]
    for line in requests.strip().splitlines():
        request, _, rest = line.strip().partition(": ")
        device_class, _, count = rest.partition(" ")
        fields = f"deviceClassName: {device_class}" + (f", count: {count}" if count else "")
        lines.append(f"{deep}  - {{name: {request}, exactly: {{{fields}}}}}")
    if constraints:
        lines.append(f"{deep}  constraints:")
    for line in constraints.strip().splitlines():
        names, _, attribute = line.strip().partition(": ")
        lines.append(f"{deep}  - {{requests: [{names}], matchAttribute: {attribute}}}")
    return "\n".join(lines) + "\n---\n"


def workers(replicas: int, template: str = "t", limits: str = "", name: str = "w") -> str:
    """A StatefulSet whose pods use one template, and perhaps GPUs by device plugin."""
    resources = f", resources: {{limits: {{{limits}}}}}" if limits else ""
    return (
        f"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n"
        f"  template:\n    spec:\n      resourceClaims: [{{name: d, resourceClaimTemplateName: {template}}}]\n"
        f"      containers: [{{name: c, image: i{resources}}}]\n---\n"
    )


def objects(*sources: str | Path) -> list[Object]:
    found: list[Object] = []
    for source in sources:
        if isinstance(source, Path):
            found += must_read([source])
        else:
            read, problems = read_text(source, "f.yaml")
            assert problems == []
            found += read
    return found


def manifests(*sources: str | Path) -> Manifests:
    return Manifests(objects(*sources))


def shapes(*specs: str) -> Hardware:
    return hardware_of_shapes(expand_shape_specs(list(specs)))
