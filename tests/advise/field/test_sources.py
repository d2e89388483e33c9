"""Files that are no manifests yet are recognised, and answered with the command that renders them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.inputs import claim, run

TEMPLATE = claim("gpu: gpu.nvidia.com\nnic: dranet", "gpu, nic: resource.kubernetes.io/pcieRoot")
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: i}]}\n"


def findings(tmp_path: Path, text: str, name: str = "f.yaml") -> list[dict[str, Any]]:
    file = tmp_path / name
    file.write_text(text)
    found: list[dict[str, Any]] = json.loads(run("lint", "-o", "json", file).stdout)["findings"]
    return found


UNRENDERED = [
    ("a.yaml", "kind: Pod\nmetadata:\n  name: {{ .Values.name }}\n", "a Helm template", "helm template CHART"),
    ("a.yaml", '{{- include "x.labels" . | nindent 4 }}\nkind: Pod\n', "a Helm template", "helm template CHART"),
    ("a.yaml", 'apiVersion: v1\nkind: Pod\nmetadata:\n  name: "{{ .Release.Name }}-a"\n', "a Helm template", "helm"),
    ("a.yaml", "kind: Pod\n{{ range $i := .list }}\n---\n{{ end }}\n", "a Helm template", "helm"),
    ("a.yaml", "{% for i in nodes %}\nkind: Pod\n{% endfor %}\n", "a Jinja template", "render it"),
    ("a.yaml", "kind: Pod\nmetadata: {}\nspec:\n  replicas: {{ replicas }}\n", "a template with {{", "render it"),
    ("a.jsonnet", "local k = import 'k.libsonnet';\n{apiVersion: 'v1'}\n", "a Jsonnet program", "jsonnet "),
    ("kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n",
     "a Kustomization of kustomize", "kubectl kustomize"),
    ("p.yaml", "- {op: replace, path: /spec/replicas, value: 3}\n", "a JSON patch", "kubectl kustomize"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "what", "command"), UNRENDERED, ids=[one[2] for one in UNRENDERED])
def test_a_template_is_answered_with_its_command(tmp_path: Path, name: str, text: str, what: str, command: str) -> None:
    found = findings(tmp_path, text, name)
    assert [(one["rule"], one["severity"]) for one in found] == [("not-rendered", "error")]
    assert found[0]["message"].startswith(what) and command in found[0]["fix"]
    done = run("plan", "-f", tmp_path / name, "--shape", "a4-highgpu-8g")
    assert done.exit_code == 1 and what in done.stderr and command in done.stderr


def test_the_chart_of_a_template_is_named(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("name: c\n")
    found = findings(tmp_path, UNRENDERED[0][1], "templates/a.yaml")
    assert f"helm template {tmp_path} |" in found[0]["fix"]


@pytest.mark.parametrize(
    "text",
    [
        POD.replace("image: i", "image: i, args: ['{{inputs.parameters.x}}']"),
        'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  t: |\n    {{ range .Values.x }}\n',
        POD.replace("image: i", "image: i, command: [sh, -c, 'docker ps --format {{.Names}}']"),
    ],
)  # fmt: skip
def test_braces_in_strings_are_no_template(tmp_path: Path, text: str) -> None:
    assert [one for one in findings(tmp_path, text) if one["rule"] in {"not-rendered", "yaml-syntax"}] == []


def test_a_page_around_a_manifest_is_named_with_its_line(tmp_path: Path) -> None:
    found = findings(tmp_path, f"{POD}```\n$ kubectl apply: -f: x\n")
    assert [(one["line"], one["message"]) for one in found if one["severity"] == "error"] == [
        (5, "part of a page around the manifest, not YAML")
    ]


@pytest.mark.parametrize("holder", ["${NAMESPACE}", "<your-namespace>", "YOUR_NAMESPACE", "<NAMESPACE>"])
def test_placeholders_are_named_once(tmp_path: Path, holder: str) -> None:
    text = POD.replace("name: a}", f'name: a, namespace: "{holder}"}}', 1)
    found = findings(tmp_path, f"{text}---\n{text.replace('name: a,', 'name: b,', 1)}")
    assert [(one["rule"], one["severity"], one["message"]) for one in found] == [
        ("placeholder", "info", f"placeholder {holder}")
    ]


def test_variables_of_a_shell_are_no_placeholders(tmp_path: Path) -> None:
    assert findings(tmp_path, POD.replace("image: i", "image: i, args: ['echo ${HOSTNAME}']")) == []


def test_a_chart_is_rendered_by_helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    helm = tools / "helm"
    helm.write_text(
        f'#!/bin/sh\n[ "$1 $2 $3 $4" = "template {tmp_path} --values v.yaml" ] || exit 3\ncat <<EOF\n{TEMPLATE}\nEOF\n'
    )
    helm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    done = run("plan", "--helm", tmp_path, "--values", "v.yaml", "--shape", "a4-highgpu-8g", "-o", "json")
    assert [one["pod"] for one in json.loads(done.stdout)["pods"]] == ["t"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "--helm needs the program helm" in run("plan", "--helm", tmp_path, "--shape", "a4-highgpu-8g").stderr
