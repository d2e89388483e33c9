"""Output formats, positions inside expressions, messages, and arbitrary input."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dranet.advise.lint import Finding, lint, to_github, to_json, to_text
from dranet.advise.lint.rules.selectors import operands
from dranet.advise.manifests import read_text
from dranet.advise.plan.hardware import hardware_of_shapes
from dranet.machines.shape_devices import expand_shape_specs

A4 = hardware_of_shapes(expand_shape_specs(["a4-highgpu-8g"]))


def linted(text: str, *, on_a4: bool = False, kubernetes: tuple[int, int] = (1, 36)) -> list[Finding]:
    objects, problems = read_text(text, "f.yaml")
    return lint(objects, problems, A4 if on_a4 else None, kubernetes)


def template(expression: str, indent: str = "            ") -> str:
    return (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: t}\nspec:\n  spec:\n"
        "    devices:\n      requests:\n      - name: nic\n        exactly:\n          deviceClassName: dranet\n"
        "          selectors:\n          - cel:\n              expression: |\n"
        + "".join(f"                {line}\n" for line in expression.splitlines())
    )


def rules(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings]


def test_type_error_has_the_line_inside_a_literal_block() -> None:
    (finding,) = linted(template('device.driver == "dra.net" &&\n  device.nonsense'))
    assert (finding.rule, finding.line) == ("cel-type", 15)


def test_too_long_selector_has_the_message_of_the_server() -> None:
    (finding,) = linted(template(" || ".join(["device.driver == 'dra.net'"] * 500)))
    assert (finding.rule, finding.message) == ("cel-limits", "Too long: may not be more than 10240 bytes")


CLASS = (
    "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\n"
    "spec: {selectors: [{cel: {expression: device.driver == 'dra.net'}}]}\n---\n"
)


def test_reports_different_objects_of_one_name() -> None:
    assert linted(CLASS + CLASS) == []
    (finding,) = linted(CLASS + CLASS.replace("dra.net", "gpu.nvidia.com"))
    assert (finding.rule, finding.line) == ("defined-twice", 8)
    assert finding.message == "DeviceClass 'c' is already defined at f.yaml:3; this one replaces it"


@pytest.mark.parametrize(
    ("expression", "fix"),
    [
        ('device.attributes["dra.net"].rdma = true', "write == to compare"),
        ('device.attributes["dra.net"].ifName.startWith("gpu")', "did you mean startsWith?"),
        ("device.drivr == 'dra.net'", "did you mean driver?"),
        ('device.capacity["dra.net"].linkSpeed > 100', 'compare with .compareTo(quantity("400G")) or'),
        ("device.driver", "compare it with a value"),
        ("(device.driver == 'dra.net'", "add the missing )"),
    ],
)
def test_compile_error_has_a_specific_fix(expression: str, fix: str) -> None:
    (finding,) = linted(template(expression))
    assert finding.severity == "error" and finding.fix.startswith(fix)


WORKLOAD = """apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  resourceClaims: [{name: n, resourceClaimName: c}]
  template:
    resourceClaims: [{name: n, resourceClaimName: c}]
    spec:
      containers:
      - name: c
        resourceClaims: [{name: n, resourceClaimName: c}]
        claims: [{name: n}]
"""


def test_misplaced_pod_field_names_the_right_place() -> None:
    right = [finding.message.rpartition("(")[2] for finding in linted(WORKLOAD) if finding.rule == "misplaced-field"]
    assert right == [
        "spec.template.spec.resourceClaims)",
        "spec.template.spec.resourceClaims)",
        "spec.template.spec.resourceClaims)",
        "spec.template.spec.containers.resources.claims)",
    ]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("allocationMode: All, count: 3", "count must not be set with allocationMode All"),
        ("tolerations: [{operator: Sometimes}]", "operator 'Sometimes' does not exist"),
        ("tolerations: [{operator: Exists, value: x}]", "value must be empty for operator Exists"),
        ("tolerations: [{effect: NoWay}]", "effect 'NoWay' does not exist"),
        ("count: 0", "count is 0, it must be at least 1"),
        ("allocationMode: Some", "allocationMode 'Some' does not exist"),
        ("capacity: {requests: {memory: lots}}", "memory: 'lots' is not a quantity"),
    ],
)
def test_reports_invalid_request_fields(field: str, message: str) -> None:
    text = (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\nspec:\n  devices:\n    requests:\n"
    )
    findings = linted(f"{text}    - {{name: r, exactly: {{deviceClassName: dranet, {field}}}}}\n")
    assert message in [finding.message for finding in findings if finding.rule == "api-limits"]


def test_reports_unknown_rdma_devices() -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    env:\n"
    findings = linted(pod + "    - {name: NCCL_IB_HCA, value: 'mlx5_0,mlx5_9:1'}\n", on_a4=True)
    assert [(finding.rule, finding.message[:8]) for finding in findings] == [("interface-name-mismatch", "'mlx5_9'")]


def test_suggests_the_nearest_attribute() -> None:
    (finding,) = linted(template('device.attributes["dra.net"].rmda == true'))
    assert (finding.rule, finding.fix) == ("unknown-attribute", "did you mean rdma?")


def test_suggests_the_nearest_domain() -> None:
    (finding,) = linted(template('device.attributes["dranet"].rdma == true'))
    assert finding.fix == "did you mean 'dra.net'?"


def test_accepts_attributes_of_unknown_drivers() -> None:
    assert linted(template('device.attributes["fpga.example.org"].bits == "x"')) == []


def test_fix_of_a_selector_without_match_lists_the_values() -> None:
    findings = linted(template('device.attributes["dra.net"].ifName == "eth7"'), on_a4=True)
    assert rules(findings) == ["selector-never-true"]
    assert "dra.net/ifName is one of gpu0rdma0, gpu1rdma0" in findings[0].fix


def test_reports_an_ineffective_operand() -> None:
    text = 'device.attributes["dra.net"].numaNode == 0 &&\n(device.attributes["dra.net"].rdma || true)'
    (finding,) = linted(template(text), on_a4=True)
    assert (finding.rule, finding.line) == ("selector-always-true", 15)


def test_accepts_old_versions_on_an_old_server() -> None:
    text = "apiVersion: resource.k8s.io/v1beta1\nkind: DeviceClass\nmetadata: {name: x}\nspec: {}\n"
    assert linted(text, kubernetes=(1, 33)) == []


def test_removed_versions_are_errors() -> None:
    text = "apiVersion: resource.k8s.io/v1beta1\nkind: DeviceClass\nmetadata: {name: x}\nspec: {}\n"
    assert [f.severity for f in linted(text, kubernetes=(1, 38))] == ["error"]


def test_findings_are_in_file_order() -> None:
    findings = linted(template("device.x") + "---\n" + template("device.y"))
    assert [f.line for f in findings] == sorted(f.line for f in findings)


def test_json_has_the_documented_fields() -> None:
    (finding,) = to_json(linted(template("device.x")))["findings"]
    assert list(finding) == ["rule", "severity", "file", "line", "column", "message", "fix"]


def test_github_output_is_escaped() -> None:
    finding = Finding("r", "warning", "a,b:c.yaml", 1, 2, "50%\nmore", "do: this")
    assert to_github([finding]) == "::warning file=a%2Cb%3Ac.yaml,line=1,col=2,title=r::50%25%0Amore%0Afix: do: this"


def test_text_starts_with_a_count() -> None:
    assert to_text(linted(template("device.x"))).splitlines()[0] == "1 error, 0 warnings, 0 info"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a && b", ["a", "b"]),
        ("a", ["a"]),
        ("(a && b) && c", ["(a && b)", "c"]),
        ("a || b && c", ["a || b && c"]),
        ("a == '&&' && b", ["a == '&&'", "b"]),
        ('a == "\\"&&" && b', ['a == "\\"&&"', "b"]),
    ],
)
def test_splits_operands(text: str, parts: list[str]) -> None:
    found = operands(text)
    assert [part for _, part in found] == parts
    assert all(text[offset:].startswith(part) for offset, part in found)


FIELDS = [
    *("spec", "devices", "requests", "exactly", "firstAvailable", "name", "count", "selectors", "cel", "expression"),
    *("template", "containers", "resources", "limits", "nvidia.com/gpu", "resourceClaims", "basic", "attributes"),
    *("constraints", "config", "opaque", "driver", "parameters", "interface", "matchAttribute", "deviceClassName"),
    *("env", "args", "securityContext", "capabilities", "add", "claims", "resourceClaimTemplateName", "allocationMode"),
]
TEXTS = ["dranet", "dra.net", "gpu.nvidia.com", "x", "All", "device.driver", "(", "resource.kubernetes.io/pcieRoot", ""]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 50) | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=30,
)
KINDS = ["Pod", "Job", "MPIJob", "RayCluster", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice"]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=150)
@given(st.sampled_from(KINDS), st.sampled_from(["v1", "v1beta1", "v9"]), values, st.booleans())
def test_no_rule_fails_on_arbitrary_objects(kind: str, version: str, spec: object, on_a4: bool) -> None:
    raw = {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": {"name": "t"}, "spec": spec}
    findings = linted(yaml.safe_dump(raw), on_a4=on_a4)
    assert json.dumps(to_json(findings))
