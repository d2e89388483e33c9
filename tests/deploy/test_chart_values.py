"""Every value and every flag: the chart takes each, and helm's linter has nothing to say."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from dranet.node.server import options
from tests.deploy.rendering import Manifest, container, manifests, render

EVERY_VALUE = Path(__file__).with_name("every_value.yaml")
NOT_IN_A_POD = {"kubeconfig", "node-name", "dev-root"}
"""Of no use in the chart's pod: an alias, another API server, another root of /dev. extraArgs sets them."""


def leaves(schema: Manifest, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, inner in schema["properties"].items():
        yield from leaves(inner, (*path, name)) if "properties" in inner else [(*path, name)]


def at(values: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        values = values.get(name) if isinstance(values, dict) else None
    return values


def test_the_file_of_every_value_sets_each_to_something_else(deploy: Path) -> None:
    chart = deploy / "helm" / "dranet"
    schema, defaults = json.loads((chart / "values.schema.json").read_text()), chart / "values.yaml"
    values, known = yaml.safe_load(EVERY_VALUE.read_text()), yaml.safe_load(defaults.read_text())
    assert [path for path in leaves(schema) if at(values, path) == at(known, path)] == []


@pytest.mark.parametrize(
    "turned", [{}, {name: {"create": True} for name in ("rbac", "admissionPolicy", "deviceClasses")}]
)
def test_the_chart_renders_with_every_value(helm: str, deploy: Path, turned: Manifest) -> None:
    values = {**yaml.safe_load(EVERY_VALUE.read_text()), **turned}
    done = render(helm, deploy, values)
    assert done.returncode == 0, done.stderr
    kinds = {item["kind"] for item in manifests(done.stdout)}
    assert {"DaemonSet", "Deployment", "PrometheusRule", "PodMonitor", "ServiceMonitor", "NetworkPolicy"} <= kinds


def test_every_flag_of_the_driver_is_a_value_of_the_chart(helm: str, deploy: Path) -> None:
    values = {**yaml.safe_load(EVERY_VALUE.read_text()), "nodePools": {}, "takeOver": True, "extraArgs": []}
    values["args"]["rebindLostCards"] = True
    driver = container(manifests(render(helm, deploy, values).stdout))
    options.parse(driver["args"][1:])  # the driver takes each of them
    flags = {options.flag_name(field.name) for field in fields(options.Options)}
    variables = {variable["name"] for variable in driver["env"]}
    by_argument = {word.partition("=")[0].removeprefix("--") for word in driver["args"][1:]}
    by_environment = {flag for flag in flags if options.variable_name(flag) in variables}
    assert flags - by_argument - by_environment == NOT_IN_A_POD


@pytest.mark.parametrize("values", [[], ["--values", str(EVERY_VALUE)]])
def test_helm_lint_finds_nothing(helm: str, deploy: Path, values: list[str]) -> None:
    command = [helm, "lint", "--strict", "--quiet", str(deploy / "helm" / "dranet"), *values]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stdout
