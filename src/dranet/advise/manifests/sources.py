"""Files that become manifests only after another tool rendered them: Helm, kustomize, Jinja, Jsonnet, and pages.

Each is recognised and answered with the command that renders it. Braces in strings, as Argo and Prometheus use them,
and in the files of a ConfigMap are no templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from dranet.advise.manifests.objects import Object, ReadProblem
from dranet.advise.manifests.yaml_nodes import Loader, Mark

_BRACES = re.compile(
    r"^(?:[ \t]*(?:- +)*(?:[\w./\"'-]+:[ \t]+)?\{\{|.*\{\{.*\.(?:Values|Release|Chart)\b)", re.MULTILINE
)
_HELM = re.compile(r"\{\{-?\s*(?:/\*|\$|\.|include\b|template\b|toYaml\b|if\b|range\b|with\b|define\b|end\b|default\b)")
_HELM_VALUE = re.compile(r"\{\{.*\.(?:Values|Release|Chart)\b|\{\{.*\binclude \"")
_JINJA = re.compile(r"^\s*\{%", re.MULTILINE)
_JSONNET = re.compile(r"^\s*(?:local \w+\s*=|import ['\"]|\(import |function\s*\()|\bstd\.\w+\(", re.MULTILINE)
_PAGE = re.compile(r"^\s*(?:```|\$ \w|cat <<|kubectl \w)", re.MULTILINE)
KUSTOMIZE_GROUP = "kustomize.config.k8s.io"


def unrendered(text: str, file: str) -> ReadProblem | None:
    """The problem of a text that is a template; None for manifests."""
    if file.endswith((".jsonnet", ".libsonnet")) or (text.lstrip()[:1] not in {"{", "["} and _is_jsonnet(text)):
        return _problem(file, text, _JSONNET, "a Jsonnet program", f"jsonnet {file} | dranet lint -f -")
    if _JINJA.search(text) or file.endswith(".j2"):
        return _problem(file, text, _JINJA, "a Jinja template", "render it, and name the result with -f")
    if "{{" not in text or not _BRACES.search(text) or not _is_template(text):
        return None
    if _HELM.search(text):
        chart = _chart_of(file)
        return _problem(file, text, _BRACES, "a Helm template", f"helm template {chart} | dranet lint -f -")
    return _problem(file, text, _BRACES, "a template with {{ ... }}", "render it, and name the result with -f")


def _is_jsonnet(text: str) -> bool:
    return bool(_JSONNET.search(text)) and "apiVersion:" in text and not re.search(r"^apiVersion:", text, re.MULTILINE)


def _is_template(text: str) -> bool:
    """Whether braces are outside of strings, or name values of a chart."""
    try:
        return any(map(_has_braces, yaml.compose_all(text, Loader=Loader)))
    except yaml.YAMLError:
        return True


def _has_braces(node: yaml.Node | None) -> bool:
    if isinstance(node, yaml.ScalarNode):
        return "\n" not in node.value and bool(_HELM_VALUE.search(node.value))
    if isinstance(node, yaml.MappingNode):
        return any(isinstance(key, yaml.MappingNode) or _has_braces(key) or _has_braces(v) for key, v in node.value)
    return isinstance(node, yaml.SequenceNode) and any(map(_has_braces, node.value))


def _problem(file: str, text: str, pattern: re.Pattern[str], what: str, command: str) -> ReadProblem:
    found = pattern.search(text)
    line = text.count("\n", 0, found.start()) + 1 if found else 1
    return ReadProblem(file, Mark(line, 1), f"{what}, not a manifest", True, command, unrendered=True)


def _chart_of(file: str) -> str:
    """The folder of the chart that a template belongs to, if it is there."""
    for folder in Path(file).parents:
        if (folder / "Chart.yaml").is_file():
            return str(folder)
    return "CHART"


def page_line(text: str) -> int | None:
    """The first line that belongs to a page around the manifest, such as a fence or a command."""
    found = _PAGE.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else None


def without_kustomizations(objects: list[Object]) -> tuple[list[Object], list[ReadProblem]]:
    """The objects of manifests, and a problem for each kustomization."""
    found = [obj for obj in objects if obj.api_version.startswith(KUSTOMIZE_GROUP)]
    return [obj for obj in objects if obj not in found], [_kustomization(obj) for obj in found]


def _kustomization(obj: Object) -> ReadProblem:
    folder = str(Path(obj.file).parent) if obj.file != "<stdin>" else "DIR"
    fix = f"dranet lint -k {folder}, or kubectl kustomize {folder} | dranet lint -f -"
    message = f"a {obj.kind} of kustomize, not a manifest"
    return ReadProblem(obj.file, obj.at(("kind",)), message, False, fix, unrendered=True)


_HOLDERS = re.compile(
    r"\$\{[A-Za-z_]\w*\}|<(?:your|my|the)[-_ ][^<>]*>|\b(?:YOUR|REPLACE|CHANGE)_[A-Z0-9_]+\b|<[A-Z][A-Z0-9_-]+>"
)
_FREE_TEXT = {"args", "command", "env", "data", "stringData", "script", "annotations", "source"}


def placeholders(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Values to fill in before the file is applied, such as ``${IMAGE}`` or ``<your-namespace>``, with their paths."""
    if isinstance(value, str):
        yield from ((path, found[0]) for found in _HOLDERS.finditer(value))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from placeholders(item, (*path, i))
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in _FREE_TEXT:
                yield from placeholders(item, (*path, key))


def may_have_placeholders(text: str) -> bool:
    """Whether looking for placeholders in the objects of this text is worth it."""
    return _HOLDERS.search(text) is not None
