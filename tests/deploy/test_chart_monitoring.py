"""What the chart gives Prometheus and Grafana."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from dranet.node.server.metrics import DEVICE_COUNTERS, READ_TIME, Metrics
from tests.deploy.rendering import Manifest, manifests, render, the

FILES = "helm/dranet/files"


def test_dashboard_and_alerts_use_only_metrics_that_exist(deploy: Path) -> None:
    registry = Metrics().registry
    histograms = {f"{family.name}_bucket" for family in registry.collect() if family.type == "histogram"}
    known = histograms | {f"{f.name}_total" if f.type == "counter" else f.name for f in registry.collect()}
    known |= {READ_TIME, *(f"{name}_total" for name in DEVICE_COUNTERS)}
    text = (deploy / FILES / "dashboard.json").read_text() + (deploy / FILES / "alerts.yaml").read_text()
    used = set(re.findall(r"\bdranet_driver_\w+", text))
    assert used <= known
    assert used, "no metric at all is used"


def test_the_dashboard_is_json_with_a_query_in_every_panel(deploy: Path) -> None:
    panels = json.loads((deploy / FILES / "dashboard.json").read_text())["panels"]
    assert panels
    assert all(target["expr"] for panel in panels for target in panel["targets"])


def test_every_alert_says_what_to_do(deploy: Path) -> None:
    groups = yaml.safe_load((deploy / FILES / "alerts.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert all({"summary", "description", "runbook_url"} <= rule["annotations"].keys() for rule in rules)
    guide = (deploy.parent / "docs" / "tasks" / "troubleshooting.md").read_text()
    for rule in rules:
        anchor = rule["annotations"]["runbook_url"].partition("#")[2]
        headings = [re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()) for line in guide.splitlines()]
        assert anchor in {heading.replace(" ", "-") for heading in headings}


def test_monitors_scrape_the_undeclared_port(helm: str, deploy: Path) -> None:
    both = {"podMonitor": {"create": True}, "serviceMonitor": {"create": True}, "labels": {"release": "mine"}}
    items = manifests(render(helm, deploy, {"monitoring": both, "metricsPort": 9999}).stdout)
    [endpoint] = the("PodMonitor", items)["spec"]["podMetricsEndpoints"]
    assert "port" not in endpoint
    assert "$1:9999" in {rule.get("replacement") for rule in endpoint["relabelings"]}
    service = the("Service", items)
    assert (service["spec"]["clusterIP"], service["spec"]["ports"]) == ("None", [{"name": "metrics", "port": 9999}])
    label = the("DaemonSet", items)["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= label.items()
    assert the("ServiceMonitor", items)["metadata"]["labels"]["release"] == "mine"


def rules(helm: str, deploy: Path, **values: str) -> list[Manifest]:
    created = {"monitoring": {"prometheusRule": {"create": True, **values}}}
    [group] = the("PrometheusRule", manifests(render(helm, deploy, created).stdout))["spec"]["groups"]
    return list(group["rules"])


@pytest.mark.parametrize(
    "base", ["https://git.example.com/dranet/blob/main", "https://git.example.com/dranet/blob/main/"]
)
def test_alerts_name_their_runbook_by_url(helm: str, deploy: Path, base: str) -> None:
    found = rules(helm, deploy, runbookBase=base)
    plain = yaml.safe_load((deploy / FILES / "alerts.yaml").read_text())["groups"][0]["rules"]
    assert [rule["expr"] for rule in found] == [rule["expr"] for rule in plain]
    path = plain[0]["annotations"]["runbook_url"]
    assert found[0]["annotations"]["runbook_url"] == f"https://git.example.com/dranet/blob/main/{path}"


def test_alerts_of_a_chart_without_a_home_have_no_runbook(helm: str, deploy: Path) -> None:
    found = rules(helm, deploy)
    assert found
    assert all(rule["annotations"].keys() == {"summary", "description"} for rule in found)


def test_the_dashboard_is_a_config_map_that_grafana_finds(helm: str, deploy: Path) -> None:
    items = manifests(render(helm, deploy, {"monitoring": {"dashboard": {"create": True}}}).stdout)
    config = the("ConfigMap", items)
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    source = deploy / FILES / "dashboard.json"
    assert json.loads(config["data"]["dranet.json"]) == json.loads(source.read_text())
