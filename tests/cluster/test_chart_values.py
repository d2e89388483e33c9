"""The chart with every value: a real API server takes each object, and reports no unknown field."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import release
from tests.cluster.kubebed import Cluster, operators, parts

EVERY_VALUE = Path(__file__).parents[1] / "deploy" / "every_value.yaml"
CRDS = "example/prometheus-operator-crd/monitoring.coreos.com_{}.yaml"
CREATED: dict[str, Any] = {name: {"create": True} for name in ("rbac", "admissionPolicy", "deviceClasses")}
"""The file of every value has them off, because they are on by default; trustClaims omits a policy."""
NAMESPACE = release.PROJECT / "deploy" / "namespace.yaml"


@pytest.fixture(scope="module")
def monitored(bed: Cluster) -> Iterator[Cluster]:
    """With the Prometheus operator's own CRDs."""
    kinds = ("podmonitors", "servicemonitors", "prometheusrules")
    for kind in kinds:
        operators.apply_crds(bed, parts.PROMETHEUS_OPERATOR, CRDS.format(kind))
    yield bed
    bed.kubectl.delete(*(f"crd/{kind}.monitoring.coreos.com" for kind in kinds))


@pytest.mark.parametrize("values", [{}, CREATED], ids=["off", "on"])
def test_an_api_server_takes_the_chart_with_every_value(monitored: Cluster, values: dict[str, Any]) -> None:
    everything = {**yaml.safe_load(EVERY_VALUE.read_text()), **values}
    everything["args"]["trustClaims"] = not values
    rendered = _rendered(monitored, everything, release.SYSTEM)
    flags = ("--dry-run=server", "--validate=strict", "-f", "-")
    taken = monitored.kubectl.in_namespace(release.SYSTEM).run("apply", *flags, stdin=rendered).splitlines()
    assert len(taken) == len([item for item in yaml.safe_load_all(rendered) if item])
    assert {line.partition("/")[0] for line in taken} >= {"prometheusrule.monitoring.coreos.com", "daemonset.apps"}


def test_the_namespace_of_the_driver_allows_its_pods(bed: Cluster) -> None:
    """Pod Security admission warns of the driver's pods at any other level than that of deploy/namespace.yaml."""
    named = yaml.safe_load(NAMESPACE.read_text())
    place = named["metadata"]["name"]
    rendered = _rendered(bed, {}, place)
    strict = dict.fromkeys(named["metadata"]["labels"], "baseline")
    try:
        bed.kubectl.apply({**named, "metadata": {"name": place, "labels": strict}})
        assert "would violate PodSecurity" in _warnings(bed, rendered, place)
        bed.kubectl.apply(named)
        assert _warnings(bed, rendered, place) == ""
    finally:
        bed.kubectl.delete(f"namespace/{place}")


def _rendered(bed: Cluster, values: dict[str, Any], place: str) -> str:
    """Without the pod of `helm test`, which needs an account that a dry run does not create."""
    place_and_values = ("--namespace", place, "--no-hooks", "--values", "-")
    return bed.helm.run("template", "dranet", str(release.CHART), *place_and_values, stdin=json.dumps(values))


def _warnings(bed: Cluster, rendered: str, place: str) -> str:
    """What the API server remarks on the chart's objects; kubectl prints it on stderr."""
    command = bed.kubectl.in_namespace(place).command("apply", "--dry-run=server", "-f", "-")
    return subprocess.run(command, input=rendered, capture_output=True, text=True, check=True).stderr
