"""Pools of nodes with settings of their own: every node has exactly one driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.deploy.rendering import Manifest, manifests, render

LABEL = "example.com/pool"
POOLS = {
    "gb300": {"args": {"machineShape": "nd-gb300-v6"}, "healthPolicy": '[slow-link]\nseverity = "degraded"\n'},
    "h100": {"recoverHiddenDevices": True},
}
NODES = [{LABEL: "gb300"}, {LABEL: "h100"}, {LABEL: "other"}, {}]


def pooled(helm: str, deploy: Path, **values: Any) -> list[Manifest]:
    done = render(helm, deploy, {"nodePools": {"label": LABEL, "pools": POOLS}, **values})
    assert done.returncode == 0, done.stderr
    return manifests(done.stdout)


def daemons(items: list[Manifest]) -> dict[str, Manifest]:
    return {item["metadata"]["name"]: item["spec"] for item in items if item["kind"] == "DaemonSet"}


def runs_on(daemon: Manifest, labels: dict[str, str]) -> bool:
    """Whether nodeSelector and the required node affinity accept a Linux node with these labels."""
    node = {"kubernetes.io/os": "linux", **labels}
    spec = daemon["template"]["spec"]
    if not spec["nodeSelector"].items() <= node.items():
        return False
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_term_accepts(term, node) for term in required["nodeSelectorTerms"])


def _term_accepts(term: Manifest, node: dict[str, str]) -> bool:
    return all(
        {
            "NotIn": lambda e: node.get(e["key"]) not in e["values"],
            "Exists": lambda e: e["key"] in node,
        }[expression["operator"]](expression)
        for expression in term["matchExpressions"]
    )


def test_every_node_gets_exactly_one_driver(helm: str, deploy: Path) -> None:
    found = daemons(pooled(helm, deploy))
    placed = [[name for name, daemon in found.items() if runs_on(daemon, node)] for node in NODES]
    assert placed == [["dranet-gb300"], ["dranet-h100"], ["dranet"], ["dranet"]]


def test_an_affinity_of_ones_own_is_kept_next_to_the_pools(helm: str, deploy: Path) -> None:
    terms = [{"matchExpressions": [{"key": "rdma", "operator": "Exists"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    main = daemons(pooled(helm, deploy, affinity={"nodeAffinity": required}))["dranet"]
    assert [runs_on(main, node) for node in ({"rdma": ""}, {}, {"rdma": "", LABEL: "h100"})] == [True, False, False]


def test_a_pool_differs_only_in_its_own_values(helm: str, deploy: Path) -> None:
    items = pooled(helm, deploy, args={"logFormat": "json"})
    found = daemons(items)
    arguments = {name: daemon["template"]["spec"]["containers"][0]["args"] for name, daemon in found.items()}
    assert all("--log-format=json" in words for words in arguments.values())
    assert [name for name, words in arguments.items() if "--machine-shape=nd-gb300-v6" in words] == ["dranet-gb300"]
    [policy] = [item for item in items if item["kind"] == "ConfigMap"]
    assert policy["metadata"]["name"] == "dranet-gb300-health"
    volumes = found["dranet-gb300"]["template"]["spec"]["volumes"]
    assert [v["configMap"]["name"] for v in volumes if "configMap" in v] == ["dranet-gb300-health"]
    added = {
        n: d["template"]["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] for n, d in found.items()
    }
    assert [name for name, names in added.items() if "SYS_PTRACE" in names] == ["dranet-h100"]


def test_no_daemon_set_selects_pods_of_another(helm: str, deploy: Path) -> None:
    found = daemons(pooled(helm, deploy))
    labels = {name: daemon["template"]["metadata"]["labels"] for name, daemon in found.items()}
    for name, daemon in found.items():
        selected = [other for other in labels if daemon["selector"]["matchLabels"].items() <= labels[other].items()]
        assert selected == [name]


def test_monitors_and_policies_select_the_drivers_of_all_pools(helm: str, deploy: Path) -> None:
    monitors = {"podMonitor": {"create": True}, "serviceMonitor": {"create": True}}
    items = pooled(helm, deploy, monitoring=monitors, networkPolicy={"create": True}, page={"enabled": True})
    labels = [daemon["template"]["metadata"]["labels"] for daemon in daemons(items).values()]
    [page] = [item["spec"]["template"]["metadata"]["labels"] for item in items if item["kind"] == "Deployment"]
    specs = {item["kind"]: item["spec"] for item in items if "spec" in item}
    selectors = [
        specs["PodMonitor"]["selector"]["matchLabels"],
        specs["Service"]["selector"],
        specs["NetworkPolicy"]["podSelector"]["matchLabels"],
    ]
    for selector in selectors:
        assert all(selector.items() <= one.items() for one in labels)
        assert not selector.items() <= page.items()


@pytest.mark.parametrize(
    ("pool", "word"),
    [
        ({"page": {}}, "page"),  # the labels of the page's pods
        ({"Upper": {}}, "Upper"),
        ({"a": {"metricsPort": 1}}, "metricsPort"),
        ({"a": {"args": {"x": 1}}}, "nodePools/pools/a/args"),
    ],
)
def test_rejects_pools_that_cannot_work(helm: str, deploy: Path, pool: Manifest, word: str) -> None:
    done = render(helm, deploy, {"nodePools": {"pools": pool}})
    assert done.returncode != 0
    assert word in done.stderr
