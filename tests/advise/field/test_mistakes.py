"""Mistakes of published manifests, each with one finding that says what to write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.inputs import claim, run

NIC = claim("nic: dranet")
POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  resourceClaims: [REF]\n"
    "  containers: [{name: c, image: i, EXTRAresources: {claims: [{name: a}]}}]\n---\n"
)
RULE = "apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: {name: r}\nspec: {SELECTtaint: {key: k, effect: NoExecute}}\n"  # noqa: E501
DERIVED = "derivedAttributes: [{name: example.com/x, expression: '1'}]"


def findings(text: str, *more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("lint", "-f", "-", "-o", "json", *more, stdin=text).stdout)["findings"]
    return found


def request(fields: str, constraint: str = "") -> str:
    made = claim("nic: dranet", f"nic: {constraint}" if constraint else "")
    return made.replace("deviceClassName: dranet", f"deviceClassName: dranet, {fields}")


def selector(expression: str) -> str:
    return request(f"selectors: [{{cel: {{expression: '{expression}'}}}}]")


MISTAKES = [
    ("attribute-key", selector('device.attributes["dra.net/rdma"].bool == true'), 'device.attributes["dra.net"].rdma'),
    ("misplaced-field", POD.replace("REF", "").replace("EXTRA", "resourceClaims: [], ").replace("[{name: a}]", "[]"),
     "move resourceClaims to spec"),
    ("unknown-field", POD.replace("REF", "{name: a, source: {resourceClaimTemplateName: t}}").replace("EXTRA", ""),
     "removed in 1.31"),
    ("api-limits", claim("nic: dranet", "nic: resource.kubernetes.io/numa-node-id"), "that the driver publishes"),
    ("all-with-match", request("allocationMode: All", "resource.kubernetes.io/pcieRoot"), "write a count"),
    ("toleration-without-effect", request("tolerations: [{key: k, operator: Exists}]"), "effect: NoExecute"),
    ("field-dropped", request(DERIVED, "example.com/x"), "--feature-gates DRADerivedAttributes=true"),
    ("field-dropped", RULE.replace("SELECT", "deviceSelector: {driver: dra.net}, "), "DRADeviceTaintRules=true"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "text", "fix"), MISTAKES, ids=[one[0] for one in MISTAKES])
def test_a_mistake_has_one_finding_with_its_fix(rule: str, text: str, fix: str) -> None:
    found = findings(text)
    assert [one["rule"] for one in found] == [rule] and fix in found[0]["fix"]


def test_a_field_is_kept_with_its_gate() -> None:
    gates = ("--kubernetes", "1.37", "--feature-gates", "DRADerivedAttributes=true")
    assert findings(request(DERIVED, "example.com/x"), *gates) == []
    assert findings(RULE.replace("SELECT", "deviceSelector: {driver: dra.net}, "), "--kubernetes", "1.37") == []


def test_a_taint_rule_without_a_selector_taints_everything() -> None:
    found = findings(RULE.replace("SELECT", ""), "--kubernetes", "1.37")
    assert [one["rule"] for one in found] == ["taint-rule-without-selector"]


@pytest.mark.parametrize(("nodes", "expected"), [(5, ["compute-domain-nodes"]), (4, []), (0, [])])
def test_a_compute_domain_has_as_many_nodes_as_pods(nodes: int, expected: list[str]) -> None:
    text = f"""
apiVersion: resource.nvidia.com/v1beta1
kind: ComputeDomain
metadata: {{name: d}}
spec: {{numNodes: {nodes}, channel: {{resourceClaimTemplate: {{name: channel}}}}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: w}}
spec:
  replicas: 4
  selector: {{matchLabels: {{a: b}}}}
  template:
    metadata: {{labels: {{a: b}}}}
    spec:
      resourceClaims: [{{name: c, resourceClaimTemplateName: channel}}]
      containers: [{{name: w, image: i, resources: {{claims: [{{name: c}}]}}}}]
"""
    assert [one["rule"] for one in findings(text)] == expected


def test_gpus_come_one_way() -> None:
    pod = POD.replace("REF", "{name: a, resourceClaimTemplateName: t}").replace("EXTRA", "")
    both = pod.replace("resources: {", "resources: {limits: {nvidia.com/gpu: 1}, ")
    assert [one["rule"] for one in findings(both + claim("gpu: gpu.nvidia.com"))] == ["gpus-two-ways"]
    assert findings(pod + claim("gpu: gpu.nvidia.com")) == []


def test_the_next_version_of_kubernetes_is_planned_as_far_as_it_is_known() -> None:
    done = run("plan", "-f", "-", "--shape", "a4-highgpu-8g", "--kubernetes", "1.38", stdin=NIC)
    assert done.exit_code == 0 and "1 of 1 pod fits" in done.stdout
    assert "Kubernetes 1.38: planned as 1.37; its own rules are not known" in done.stdout


def test_a_tainted_device_is_not_allocated_where_rules_are_on() -> None:
    text = RULE.replace("SELECT", "deviceSelector: {driver: dra.net, device: pci-0000-91-00-0}, ") + "---\n" + NIC
    devices = {}
    for version in ("1.36", "1.37"):
        done = run("plan", "-f", "-", "--shape", "a4-highgpu-8g", "--kubernetes", version, "-o", "json", stdin=text)
        devices[version] = json.loads(done.stdout)["pods"][0]["claims"][0]["devices"][0]["device"]
    assert devices["1.36"] == "pci-0000-91-00-0" != devices["1.37"]
