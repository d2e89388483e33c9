"""Manifests for the rules' pages: each rule writes down only what it is about."""

from __future__ import annotations

import textwrap


def claim_example(devices: str, *, name: str = "nic", version: str = "v1") -> str:
    """A ResourceClaim with this below ``devices:``."""
    return f"{_head('ResourceClaim', name, version)}  devices:\n{_indented(devices, 4)}"


def template_example(devices: str, *, name: str = "nic", below_spec: str = "") -> str:
    """A ResourceClaimTemplate with this below ``devices:``, and perhaps something beside it."""
    body = f"  spec:\n    devices:\n{_indented(devices, 6)}{_indented(below_spec, 4)}"
    return f"{_head('ResourceClaimTemplate', name, 'v1')}{body}"


def class_example(expression: str = 'device.driver == "dra.net"', *, name: str = "dranet", version: str = "v1") -> str:
    """A DeviceClass with one selector."""
    selectors = f"  selectors: [{{cel: {{expression: '{expression}'}}}}]\n"
    return f"{_head('DeviceClass', name, version)}{selectors}"


def _head(kind: str, name: str, version: str) -> str:
    return f"apiVersion: resource.k8s.io/{version}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"


def _indented(text: str, spaces: int) -> str:
    return textwrap.indent(textwrap.dedent(text).strip("\n") + "\n", " " * spaces) if text else ""
