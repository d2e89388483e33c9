"""Many questions to one cluster: devices are taken and given back, nodes tried in turn, versions differ."""

from __future__ import annotations

from typing import Any

import pytest
from allocation_objects import DRIVER, claim, class_, device, match, slice_, taken, want

from dranet.allocation import (
    Allocation,
    AllocationError,
    ClusterDevices,
    NoFit,
    SelectorCompiler,
    UnknownVersion,
    device_input,
    diagnose,
)
from dranet.allocation.selectors import compile_new
from dranet.model.errors import InvalidInput


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


def test_pods_fill_nodes_in_turn_and_the_last_finds_none() -> None:
    cluster = ClusterDevices([machine("n1"), machine("n2")], [class_()])
    found = [cluster.schedule([claim(f"c{number}", r=want())], nodes("n1", "n2"))[0] for number in range(5)]
    assert [node.name if node else None for node in found] == ["n1", "n1", "n2", "n2", None]


def test_a_fatal_error_ends_the_round_on_all_nodes() -> None:
    bad = claim("c", r=want(f'device.attributes["{DRIVER}"].nope == 1'))
    node, outcome = ClusterDevices([machine("n1"), machine("n2")], [class_()]).schedule([bad], nodes("n1", "n2"))
    assert node is None
    assert isinstance(outcome, AllocationError)
    assert outcome.message == "claim default/c: selector #0: CEL runtime error: no such key: nope"


def test_1_37_names_the_device_and_gives_a_hint() -> None:
    bad = claim("c", r=want(f'device.attributes["{DRIVER}"].nope == 1'))
    outcome = ClusterDevices([machine("n1")], [class_()], version="1.37").allocate(nodes("n1")[0], [bad])
    assert isinstance(outcome, AllocationError)
    assert outcome.message.startswith(
        "claim default/c: selector #0 on device acme.example/n1/d0: CEL runtime error: no such key: nope. consider"
    )


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
    assert (found.request, found.wanted, found.enough) == ("r", 2, False)


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


def test_a_range_past_all_memory_costs_too_much() -> None:
    verdict = (
        SelectorCompiler("1.36")
        .compile("lists.range(9223372036854775807).size() > 1")
        .evaluate(device_input(DRIVER, device("a")))
    )
    assert verdict.error == "operation cancelled: actual cost limit exceeded"


def test_a_normalised_version_counts_bytes_as_go_does() -> None:
    verdict = (
        SelectorCompiler("1.36")
        .compile('semver("本", true) == semver("1.0.0")')
        .evaluate(device_input(DRIVER, device("a")))
    )
    assert verdict.error == 'Invalid character(s) found in major number "0本"'


def described(*wanted: Any) -> list[str]:
    cards = [device(f"d{i}", number=i, wide=i > 1) for i in range(4)]
    alike = ClusterDevices([slice_("n1", cards, nodeName="n1")], [class_()]).alike_claims(nodes("n1")[0])
    return [alike.describe(claim(f"c{i}", r=one)["spec"]) for i, one in enumerate(wanted)]


def reads(name: str, rest: str) -> str:
    return f'device.attributes["{DRIVER}"].{name} {rest}'


def test_claims_that_take_the_same_devices_in_other_words_are_alike() -> None:
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
def test_claims_that_ask_for_something_else_are_not_alike(other: Any) -> None:
    one, two = described(want(reads("number", "> 1")), other)
    assert one != two


def test_claims_that_fail_on_a_device_are_alike_only_in_the_same_words() -> None:
    one, two, again = described(*(want(reads(name, "== 1")) for name in ("nope", "none", "nope")))
    assert one != two
    assert one == again
