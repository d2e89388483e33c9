"""Many questions to one cluster: devices are taken and given back, nodes tried in turn, versions differ."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.core.errors import InvalidInput
from dranet.scheduler.allocation import (
    Allocation,
    AllocationError,
    CelFeatures,
    ClusterDevices,
    NoFit,
    SelectorCompiler,
    UnknownVersion,
    device_input,
    diagnose,
)
from dranet.scheduler.allocation.selectors import compile_new
from dranet.scheduler.releases import InvalidGates, read_release
from dranet.scheduler.taints import with_taint_rules
from tests.scheduler.allocation.allocation_objects import DRIVER, claim, class_, device, match, slice_, taken, want


def machine(name: str, count: int = 2) -> Any:
    return slice_(name, [device(f"d{number}", root=f"r{number}") for number in range(count)], nodeName=name)


def nodes(*names: str) -> list[Any]:
    return [{"name": name, "labels": {}} for name in names]


def test_committed_devices_are_gone_until_released() -> None:
    cluster = ClusterDevices([machine("n1", 1)], [class_()])
    (node,) = nodes("n1")
    first = cluster.allocate(node, [claim("a", r=want())])
    assert isinstance(first, Allocation)
    cluster.commit(first)
    assert isinstance(cluster.allocate(node, [claim("b", r=want())]), NoFit)
    cluster.release(first)
    assert isinstance(cluster.allocate(node, [claim("b", r=want())]), Allocation)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("1.36", "claim default/c: selector #0: CEL runtime error: no such key: nope"),
        (
            "1.37",
            "claim default/c: selector #0 on device acme.example/n1/d0: CEL runtime error: no such key: nope. consider"
            " using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional"
            " fields",
        ),
    ],
)
def test_a_selector_error_is_fatal_and_1_37_names_the_device(version: str, message: str) -> None:
    bad = claim("c", r=want(f'device.attributes["{DRIVER}"].nope == 1'))
    outcome = ClusterDevices([machine("n1")], [class_()], version=version).allocate(nodes("n1")[0], [bad])
    assert isinstance(outcome, AllocationError)
    assert (outcome.kind, outcome.message) == ("fatal", message)


def test_admin_results_hold_nothing_and_shares_only_capacity() -> None:
    admin = {**taken("d0", "n1"), "adminAccess": True}
    cluster = ClusterDevices([machine("n1", 1)], [class_()], allocated=[admin])
    assert isinstance(cluster.allocate(nodes("n1")[0], [claim("c", r=want())]), Allocation)


def test_an_unknown_version_says_which_are_known() -> None:
    with pytest.raises(UnknownVersion, match=r"from 1\.32 to 1\.37"):
        ClusterDevices([], [], version="1.50")


@pytest.mark.parametrize(("version", "defined"), [("1.34", False), ("1.35", False), ("1.36", True), ("1.37", True)])
def test_the_order_is_defined_since_1_36(version: str, defined: bool) -> None:
    assert ClusterDevices([], [], version=version).rules.defined_order is defined


def test_1_35_refuses_capacity_requests_and_distinct_attributes() -> None:
    cluster = ClusterDevices([machine("n1")], [class_()], version="1.35")
    (node,) = nodes("n1")
    capacity = cluster.allocate(node, [claim("c", r=want(capacity={"requests": {"m": "1"}}))])
    assert isinstance(capacity, AllocationError)
    assert capacity.message.endswith("has capacity requests, but the DRAConsumableCapacity feature is disabled")
    apart = cluster.allocate(node, [claim("c", [{"distinctAttribute": "a.b/c"}], r=want())])
    assert isinstance(apart, AllocationError)
    assert apart.message == "claim default/c, constraint #0: empty constraint (unsupported constraint type?)"


@pytest.mark.parametrize(
    ("version", "gates", "problem"),
    [
        ("1.37", "DRAListTypeAttribute=true", "did you mean DRAListTypeAttributes"),
        ("1.36", "DRADerivedAttributes=true", r"not in Kubernetes 1\.36 \(since 1\.37\)"),
        ("1.37", "DRAAdminAccess=false", "locked to true"),
        ("1.37", "DRADeviceTaints=false", "DRADeviceTaintRules: needs DRADeviceTaints"),
        ("1.37", "DRADeviceTaints", "write NAME=true"),
        ("1.35", "DRADeviceTaints=true", "defaults"),
    ],
)
def test_gates_that_kubernetes_would_refuse_are_errors(version: str, gates: str, problem: str) -> None:
    with pytest.raises(InvalidGates, match=problem):
        read_release(version, gates)


def test_1_38_has_the_rules_of_1_37_and_says_so() -> None:
    release = read_release("1.38")
    assert release.modelled == (1, 37)
    assert release.notes[0] == "Kubernetes 1.38: planned as 1.37; its own rules are not known"


@pytest.mark.parametrize(
    ("selector", "found"),
    [({"pool": "n1", "device": "d0"}, "d1"), ({"driver": "other.example"}, "d0"), ({}, None), (None, None)],
)
def test_device_taint_rules_taint_the_devices_they_select(selector: Any, found: str | None) -> None:
    rule = {"spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": "NoSchedule"}}}
    cluster = ClusterDevices(with_taint_rules([machine("n1")], [rule]), [class_()], version="1.37")
    outcome = cluster.allocate(nodes("n1")[0], [claim("c", r=want())])
    assert [one["device"] for one in getattr(outcome, "devices", ())] == ([found] if found else [])


def test_diagnosis_names_the_first_rule_against_each_device() -> None:
    devices = [
        device("taken", root="r"),
        device("other", root="x"),
        device("tainted", root="r", extra={"taints": [{"key": "k", "effect": "NoSchedule"}]}),
        device("plain", kind="r"),
        device("good", root="r"),
    ]
    selector = f'!has(device.attributes["{DRIVER}"].root) || device.attributes["{DRIVER}"].root == "r"'
    ask = claim("c", [match("root")], r=want(selector, count=2))
    incomplete = slice_("late", [device("later")], nodeName="n1", count=2)
    cluster = ClusterDevices([slice_("p", devices, nodeName="n1"), incomplete], [class_()], allocated=[taken("taken")])
    (found,) = diagnose(cluster, nodes("n1")[0], [ask])
    assert {verdict.device[2]: verdict.rule for verdict in found.devices} == {
        "later": "pool-incomplete", "taken": "in-use", "other": "request-selector", "tainted": "taint",
        "plain": "constraint", "good": "usable",
    }  # fmt: skip
    assert (found.request, found.count, found.enough) == ("r", 2, False)


def test_diagnosis_shows_selector_errors_and_missing_classes() -> None:
    cluster = ClusterDevices([machine("n1", 1)], [class_()])
    bad = claim("c", r=want(f'device.attributes["{DRIVER}"].nope == 1'), s=want(cls="nope"))
    first, second = diagnose(cluster, nodes("n1")[0], [bad])
    assert (first.devices[0].rule, first.devices[0].index) == ("selector-error", 0)
    assert "no such key: nope" in first.devices[0].detail
    assert second.devices[0].detail == "device class nope does not exist"


@pytest.mark.parametrize(
    ("slice_object", "problem"),
    [
        ({}, "ResourceSlice without a name: the field 'spec' is missing"),
        ({"metadata": {"name": "s"}, "spec": {"driver": "d"}}, "ResourceSlice s: the field 'pool' is missing"),
        (slice_("p", [{"name": "d", "capacity": {"m": {"value": "1 Gi"}}}]), "quantities must match"),
        (slice_("p", [{}]), "the field 'name' is missing"),
    ],
)
def test_a_slice_of_the_wrong_shape_is_named(slice_object: Any, problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        assert not ClusterDevices([slice_object]).slices[0].devices
    assert problem in str(caught.value)


def test_a_claim_of_the_wrong_shape_is_named() -> None:
    broken = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"exactly": {}}]}}}
    with pytest.raises(InvalidInput, match="ResourceClaim c: the field 'name' is missing"):
        ClusterDevices([machine("n1")]).allocate(nodes("n1")[0], [broken])


VERSIONS = ("1.32", "1.33", "1.34", "1.35", "1.36", "1.37")


@pytest.mark.parametrize(
    ("expression", "since"),
    [
        ("[1, 2].transformList(i, v, i * v) == [0, 2]", "1.33"),
        ('isSemver("v1.2", true)', "1.34"),
        ("[1, 2].reverse() == [2, 1]", "1.35"),
        ('["a"].includes("a")', "1.37+list"),
    ],
)
def test_new_objects_may_use_what_the_release_before_knew(expression: str, since: str) -> None:
    accepted = [
        version for version in VERSIONS if SelectorCompiler(version, stored=False).compile(expression).error is None
    ]
    assert accepted == [v for v in VERSIONS if compile_new(v, expression).error is None], "the shared one says the same"
    assert accepted == [one for one in VERSIONS if one >= since]


def test_a_lone_percent_sign_is_what_a_compiler_names_before_a_missing_argument() -> None:
    compiled = SelectorCompiler("1.36").compile('"%o%".format([8]) == "10"')
    assert compiled.error is not None and "unexpected end of string" in compiled.error


@pytest.mark.parametrize(
    ("version", "gate", "expected"),
    [
        ("1.36", False, "attribute roots: unsupported attribute value"),
        ("1.36", True, True),
        ("1.37", False, True),
        ("1.37", True, True),
    ],
)
def test_from_1_37_selectors_read_list_attributes_without_the_gate(version: str, gate: bool, expected: object) -> None:
    raw = {"name": "a", "attributes": {"roots": {"strings": ["r1", "r2"]}}}
    selector = SelectorCompiler(version, features=CelFeatures(list_attributes=gate)).compile(
        f'device.attributes["{DRIVER}"].roots.includes("r2")'
    )
    result = selector.evaluate(device_input(DRIVER, raw))
    assert (result.error or result.matches) == expected


def evaluate(version: str, expression: str, raw: Any = None) -> Any:
    """The result, or the error."""
    result = SelectorCompiler(version).compile(expression).evaluate(device_input(DRIVER, raw or device("a")))
    return result.error or result.matches


@pytest.mark.parametrize(
    ("version", "expression", "result"),
    [
        ("1.36", "lists.range(60).includes(47)", True),
        (
            "1.36",
            "lists.range(60).includes(48)",
            "'includes' function cannot be applied to lists longer than 48 values",
        ),
        ("1.37", "lists.range(60).includes(48)", True),
        ("1.37", "lists.range(-1).size() >= 0", "lists.range: size must be non-negative, got -1"),
        (
            "1.37",
            "lists.range(1000001).size() >= 0",
            "lists.range: size 1000001 exceeds maximum allowed (1000000)",
        ),
        ("1.36", "lists.range(-1).size() >= 0", True),
        ("1.36", "lists.range(1000001).size() >= 0", "operation cancelled: actual cost limit exceeded"),
        (
            "1.36",
            "lists.range(9223372036854775807).size() > 1",
            "operation cancelled: actual cost limit exceeded",
        ),
        (
            "1.36",
            'semver("本", true) == semver("1.0.0")',
            'Invalid character(s) found in major number "0本"',
        ),
    ],
)
def test_limits_of_lists_and_versions_are_those_of_the_release(version: str, expression: str, result: object) -> None:
    assert evaluate(version, expression) == result


def test_a_version_list_with_an_invalid_version_is_an_error() -> None:
    raw = {"name": "a", "attributes": {"fw": {"versions": ["1.0.0", "one"]}}}
    assert evaluate("1.37", "true", raw).startswith("attribute fw: parse semantic version: ")


def described(*wanted: Any) -> list[str]:
    devices = [device(f"d{i}", number=i, wide=i > 1) for i in range(4)]
    cluster = ClusterDevices([slice_("n1", devices, nodeName="n1")], [class_()])
    equivalence = cluster.claim_equivalence(nodes("n1")[0])
    return [equivalence.describe(claim(f"c{i}", r=one)["spec"]) for i, one in enumerate(wanted)]


def reads(name: str, rest: str) -> str:
    return f'device.attributes["{DRIVER}"].{name} {rest}'


def test_claims_with_other_selectors_for_the_same_devices_are_equivalent() -> None:
    first, *others = described(
        want(reads("number", "> 1")),
        want(reads("wide", "")),
        want(reads("number", ">= 2"), reads("number", "< 99")),
    )
    assert others == [first, first]


@pytest.mark.parametrize(
    "other",
    [
        want(reads("number", "> 2")),
        want(reads("number", "> 1"), count=2),
        [("one", want(reads("number", "> 1")))],
        want(reads("number", "> 1"), cls="missing"),
    ],
    ids=["other devices", "another count", "as an alternative", "another class"],
)
def test_claims_for_other_devices_are_not_equivalent(other: Any) -> None:
    one, two = described(want(reads("number", "> 1")), other)
    assert one != two


def test_claims_that_fail_on_a_device_are_equivalent_only_with_equal_selectors() -> None:
    one, two, again = described(*(want(reads(name, "== 1")) for name in ("nope", "none", "nope")))
    assert one != two
    assert one == again
