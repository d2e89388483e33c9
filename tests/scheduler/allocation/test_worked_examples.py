"""The 32 worked examples of the allocation rules, by number."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.scheduler.allocation import Allocation, AllocationError, ClusterDevices, NoFit, Outcome
from tests.scheduler.allocation.allocation_objects import (
    DRIVER,
    NODE,
    at_least,
    claim,
    class_,
    device,
    distinct,
    match,
    slice_,
    taken,
    want,
)


def run(slices: list[Any], *claims: Any, version: str = "1.37", classes: Any = (), allocated: Any = ()) -> Outcome:
    everything = [class_(), *classes]
    return ClusterDevices(slices, everything, allocated=allocated, version=version).allocate(NODE, list(claims))


def picks(outcome: Outcome) -> list[str]:
    """`request→device` of all claims in result order."""
    assert isinstance(outcome, Allocation), outcome
    return [f"{entry['request']}→{entry['device']}" for entry in outcome.devices]


def none(outcome: Outcome) -> bool:
    return isinstance(outcome, NoFit)


def fatal(outcome: Outcome) -> str:
    assert isinstance(outcome, AllocationError) and outcome.kind == "fatal", outcome
    return outcome.message


def test_01_pools_are_tried_in_order_of_their_names() -> None:
    slices = [slice_(f"rack-{one}", [device(f"{one}0")]) for one in "cba"]
    assert picks(run(slices, claim("c", r=want(count=2)))) == ["r→a0", "r→b0"]


def test_02_slices_by_name_and_devices_as_listed() -> None:
    slices = [
        slice_("p", [device("z")], name="s-3", count=3),
        slice_("p", [device("m"), device("a")], name="s-1", count=3),
        slice_("p", [device("y")], name="s-2", count=3),
    ]
    assert picks(run(slices, claim("c", r=want(count=3)))) == ["r→m", "r→a", "r→y"]


def test_03_only_pools_with_binding_conditions_come_last() -> None:
    bound: dict[str, Any] = {"extra": {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}}
    pools = [slice_("p1", [device("k", **bound)]), slice_("p2", [device("l")]), slice_("p3", [device("m")])]
    assert picks(run(pools, claim("c", r=want(count=2)))) == ["r→l", "r→m"]
    one = [slice_("p", [device(name, **fields)], name=f"s{place}", count=3)
           for place, (name, fields) in enumerate([("k", bound), ("l", {}), ("m", {})])]  # fmt: skip
    outcome = run(one, claim("c", r=want(count=2)))
    assert picks(outcome) == ["r→k", "r→l"]
    assert isinstance(outcome, Allocation)
    assert outcome.devices[0]["bindingConditions"] == ["ready"]


BIG_SMALL = [slice_("p", [device("big", memory="80Gi"), device("small", memory="40Gi")])]


def test_04_a_first_pick_is_undone_for_a_later_request() -> None:
    outcome = run(BIG_SMALL, claim("c", any=want(at_least("40Gi")), huge=want(at_least("80Gi"))))
    assert picks(outcome) == ["any→small", "huge→big"]


def test_05_a_first_pick_is_undone_for_a_later_claim() -> None:
    outcome = run(BIG_SMALL, claim("c", any=want(at_least("40Gi"))), claim("d", huge=want(at_least("80Gi"))))
    assert picks(outcome) == ["any→small", "huge→big"]


def test_06_match_attribute_backtracks() -> None:
    slices = [slice_("p", [device("a", numa=0), device("b", numa=1), device("c", numa=1)])]
    assert picks(run(slices, claim("c", [match("numa")], r=want(count=2)))) == ["r→b", "r→c"]


def test_07_a_device_without_the_attribute_never_satisfies_a_constraint() -> None:
    slices = [slice_("p", [device("a"), device("b", numa=1), device("c", numa=1)])]
    assert picks(run(slices, claim("c", [match("numa")], r=want(count=2)))) == ["r→b", "r→c"]
    assert none(run([slice_("p", [device("a")])], claim("c", [match("numa")], r=want())))


def test_08_values_of_different_types_neither_match_nor_collide() -> None:
    slices = [slice_("p", [device("a", numa=0), device("b", numa="0"), device("c", numa="0")])]
    assert picks(run(slices, claim("c", [match("numa")], r=want(count=2)))) == ["r→b", "r→c"]
    two = [slice_("p", [device("a", numa=0), device("b", numa="0")])]
    assert picks(run(two, claim("c", [distinct("numa")], r=want(count=2)))) == ["r→a", "r→b"]


def test_09_distinct_attribute_remembers_all_values_only_since_1_37() -> None:
    slices = [slice_("p", [device("a", v="v1"), device("b", v="v2"), device("c", v="v1")])]
    three = claim("c", [distinct("v")], r=want(count=3))
    assert none(run(slices, three))
    assert picks(run(slices, three, version="1.36")) == ["r→a", "r→b", "r→c"]
    other = [slice_("p", [device("a", v="v1"), device("b", v="v1"), device("c", v="v2")])]
    assert picks(run(other, claim("c", [distinct("v")], r=want(count=2)))) == ["r→a", "r→c"]


def test_10_first_available_falls_back() -> None:
    slices = [slice_("p", [device("a", memory="40Gi"), device("b", memory="40Gi")])]
    alternatives = [("h", want(at_least("80Gi"))), ("l", want(at_least("40Gi"), count=2))]
    assert picks(run(slices, claim("c", g=alternatives))) == ["g/l→a", "g/l→b"]


def test_11_a_later_request_forces_the_fallback() -> None:
    slices = [slice_("p1", [device("a", memory="80Gi")]), slice_("p2", [device("b", memory="40Gi")])]
    alternatives = [("best", want(at_least("80Gi"))), ("second", want(at_least("40Gi")))]
    assert picks(run(slices, claim("c", g=alternatives, x=want(at_least("80Gi"))))) == ["g/second→b", "x→a"]


TWO = [slice_("p", [device("a"), device("b")])]


def test_12_all_needs_every_device_unless_it_is_for_administration() -> None:
    assert none(run(TWO, claim("c", r=want(mode="All")), allocated=[taken("a")]))
    admin = claim("c", r=want(mode="All", adminAccess=True))
    assert picks(run(TWO, admin, allocated=[taken("a")])) == ["r→a", "r→b"]
    fallback = claim("c", r=[("all", want(mode="All")), ("one", want())])
    assert picks(run(TWO, fallback, allocated=[taken("a")])) == ["r/one→b"]


def test_13_all_against_a_constraint_is_an_error_even_with_a_fallback() -> None:
    slices = [slice_("p", [device("a", numa=0), device("b", numa=1)])]
    message = "cannot add device acme.example/p/b because a claim constraint would not be satisfied"
    assert message in fatal(run(slices, claim("c", [match("numa")], r=want(mode="All"))))
    alternatives = [("all", want(mode="All")), ("one", want())]
    assert message in fatal(run(slices, claim("c", [match("numa")], r=alternatives)))


def test_14_administration_shares_with_earlier_picks_but_blocks_later_ones() -> None:
    normal, admin = claim("n", r=want()), claim("a", r=want(adminAccess=True))
    assert picks(run(TWO, normal, admin)) == ["r→a", "r→a"]
    assert picks(run(TWO, admin, normal)) == ["r→a", "r→b"]
    assert none(run([slice_("p", [device("a")])], admin, normal))


def test_15_administration_never_gets_a_device_twice_in_one_claim() -> None:
    assert none(run(TWO, claim("c", r=want(adminAccess=True), s=want(mode="All", adminAccess=True))))


def test_16_an_incomplete_pool_offers_nothing_and_blocks_all() -> None:
    incomplete = slice_("p1", [device("a")], count=2)
    assert picks(run([incomplete, slice_("p2", [device("b")])], claim("c", r=want()))) == ["r→b"]
    assert none(run([incomplete], claim("c", r=want())))
    other = slice_("p1", [device("a")], count=2, driver="other.example")
    message = fatal(run([other, slice_("p2", [device("b")])], claim("c", r=want(mode="All"))))
    assert message == (
        "claim default/c, request r: asks for all devices, but resource pool other.example/p1 is currently being"
        " updated"
    )


def test_17_a_newer_generation_elsewhere_hides_the_pool_unless_the_old_one_is_whole() -> None:
    newer = slice_("p", [device("b")], name="s2", count=2, generation=2, nodeName="node-2")
    assert none(run([slice_("p", [device("a")], name="s1", count=2), newer], claim("c", r=want())))
    whole = [slice_("p", [device(one)], name=f"s-{one}", count=2) for one in "ac"]
    assert picks(run([*whole, newer], claim("c", r=want()))) == ["r→a"]


def test_18_an_invalid_pool_is_skipped_and_named_when_nothing_else_fits() -> None:
    twice = [slice_("p1", [device("a")], name=f"s{one}", count=2) for one in "12"]
    slices = [*twice, slice_("p2", [device("b")])]
    assert picks(run(slices, claim("c", r=want()))) == ["r→b"]
    outcome = run(slices, claim("c", r=want()), allocated=[taken("b", "p2")])
    assert isinstance(outcome, AllocationError)
    assert (outcome.kind, outcome.message) == ("node", "invalid resource pools were encountered")


def test_19_all_means_all_of_this_node() -> None:
    slices = [
        slice_("p", [device("a")], name="s1", count=2),
        slice_("p", [device("b")], name="s2", count=2, nodeName="node-2"),
    ]
    assert picks(run(slices, claim("c", r=want(mode="All")))) == ["r→a"]


def test_20_taints_block_unless_tolerated_and_tolerations_are_recorded() -> None:
    def tainted(name: str, effect: str) -> dict[str, Any]:
        return device(name, extra={"taints": [{"key": "k", "value": "v", "effect": effect}]})

    slices = [slice_("p", [tainted("a", "NoSchedule"), tainted("b", "NoExecute"), tainted("c", "None")])]
    toleration = {"operator": "Exists", "effect": "NoExecute"}
    outcome = run(slices, claim("c", r=want(count=2, tolerations=[toleration])))
    assert picks(outcome) == ["r→b", "r→c"]
    assert isinstance(outcome, Allocation)
    assert [entry["tolerations"] for entry in outcome.devices] == [[toleration], [toleration]]
    only = [slice_("p", [tainted("a", "NoSchedule")])]
    assert none(run(only, claim("c", r=want(adminAccess=True))))


def test_21_bare_attribute_names_belong_to_the_driver() -> None:
    slices = [slice_("p", [device("a", numa=1)])]
    selector = f'device.attributes["{DRIVER}"].numa == 1'
    assert picks(run(slices, claim("c", [match("numa")], r=want(selector)))) == ["r→a"]
    assert none(run(slices, claim("c", [{"matchAttribute": "other.example/numa"}], r=want())))
    qualified = device("a", extra={})
    qualified["attributes"] = {f"{DRIVER}/numa": {"int": 1}}
    assert picks(run([slice_("p", [qualified])], claim("c", [match("numa")], r=want(selector)))) == ["r→a"]


def test_22_a_failing_selector_only_matters_on_devices_that_are_reached() -> None:
    has, lacks = device("a", model="X"), device("b")
    selector = f'device.attributes["{DRIVER}"].model == "X"'
    ask, error = claim("c", r=want(selector)), "no such key: model"
    assert picks(run([slice_("p", [has, lacks])], ask)) == ["r→a"]
    assert error in fatal(run([slice_("p", [lacks, has])], ask))
    assert picks(run([slice_("p", [lacks, has])], ask, allocated=[taken("b")])) == ["r→a"]
    assert error in fatal(run([slice_("p", [has, lacks])], claim("c", r=want(selector, mode="All"))))
    absorbed = want(f'{selector} && device.driver == "zzz"')
    assert none(run([slice_("p", [lacks])], claim("c", r=absorbed)))


def test_23_a_wrong_domain_is_an_empty_map() -> None:
    slices = [slice_("p", [device("a", model="X")])]
    wrong = 'device.attributes["typo.example"].model'
    assert "no such key: model" in fatal(run(slices, claim("c", r=want(f'{wrong} == "X"'))))
    assert none(run(slices, claim("c", r=want(f'has({wrong}) && {wrong} == "X"'))))


def shared_gpu(value: str, policy: dict[str, Any] | None = None, name: str = "gpu") -> dict[str, Any]:
    capacity: dict[str, Any] = {"value": value}
    if policy:
        capacity["requestPolicy"] = policy
    return device(name, extra={"allowMultipleAllocations": True, "capacity": {"memory": capacity}})


RANGE = {"default": "2", "validRange": {"min": "2", "step": "2", "max": "4"}}


def needs(memory: str, name: str = "memory") -> dict[str, Any]:
    return want(capacity={"requests": {name: memory}})


def test_24_requests_for_capacity_are_rounded_to_the_policy() -> None:
    def consumed(outcome: Outcome) -> list[str]:
        assert isinstance(outcome, Allocation)
        return [entry["consumedCapacity"]["memory"] for entry in outcome.devices]

    gpu = [slice_("p", [shared_gpu("4", RANGE)])]
    assert consumed(run(gpu, claim("c", r=needs("1")), claim("d", r=needs("1")))) == ["2", "2"]
    assert consumed(run(gpu, claim("c", r=needs("3")))) == ["4"]
    assert none(run([slice_("p", [shared_gpu("10", RANGE)])], claim("c", r=needs("6"))))
    whole = [slice_("p", [shared_gpu("4"), shared_gpu("4", name="gpu2")])]
    assert picks(run(whole, claim("c", r=want()), claim("d", r=want()))) == ["r→gpu", "r→gpu2"]
    assert none(run(gpu, claim("c", r=needs("1", "cap"))))


def test_25_one_request_never_shares_a_device_with_itself() -> None:
    gpu = [slice_("p", [shared_gpu("100", {"default": "1", "validRange": {"min": "1"}})])]
    assert none(run(gpu, claim("c", r=want(count=2))))
    outcome = run(gpu, claim("c", r=want(), s=want()))
    assert picks(outcome) == ["r→gpu", "s→gpu"]
    assert isinstance(outcome, Allocation)
    assert len({entry["shareID"] for entry in outcome.devices}) == 2
    named = shared_gpu("100", {"default": "1", "validRange": {"min": "1"}})
    named["attributes"] = {"uuid": {"string": "x"}}
    assert none(run([slice_("p", [named])], claim("c", [distinct("uuid")], r=want(), s=want())))


def partition(name: str, memory: str) -> dict[str, Any]:
    counters = [{"counterSet": "cs", "counters": {"mem": {"value": memory}}}]
    return device(name, extra={"consumesCounters": counters})


COUNTERS = slice_("p", [], name="s0", count=2, sharedCounters=[{"name": "cs", "counters": {"mem": {"value": "18Gi"}}}])


def test_26_shared_counters_limit_partitions() -> None:
    COUNTERS["spec"].pop("devices", None)
    slices = [COUNTERS, slice_("p", [partition("a", "4Gi"), partition("b", "20Gi")], name="s1", count=2)]
    assert none(run(slices, claim("c", r=want()), allocated=[taken("b")]))
    assert picks(run(slices, claim("c", r=want()))) == ["r→a"]
    tens = [COUNTERS, slice_("p", [partition(one, "10Gi") for one in "ab"], name="s1", count=2)]
    outcome = run(tens, claim("c", r=want()), claim("d", r=want()))
    assert none(outcome)
    assert outcome.steps == 7


def test_27_a_claim_gets_at_most_32_devices() -> None:
    slices = [slice_("p", [device(f"d{number:02d}") for number in range(40)])]
    message = fatal(run(slices, claim("c", r=want(mode="All"))))
    assert message == (
        "claim default/c, request r: adding 40 devices exceeds the claim limit of 32, with 0 already accounted for"
    )
    fallback = claim("c", r=[("all", want(mode="All")), ("one", want())])
    assert picks(run(slices, fallback)) == ["r/one→d00"]


def test_28_a_constraint_may_name_a_single_alternative() -> None:
    slices = [slice_("p", [device("a", numa=1), device("b", numa=2)])]
    ask = claim("c", [match("numa", "g", "x/s0")], g=want(), x=[("s0", want()), ("s1", want())])
    assert picks(run(slices, ask)) == ["g→a", "x/s1→b"]


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_29_configuration_of_classes_comes_first(version: str) -> None:
    def config(text: str) -> dict[str, Any]:
        return {"opaque": {"driver": DRIVER, "parameters": {"from": text}}}

    classes = [class_("A", config=[config("A")]), class_("B", config=[config("B")])]
    ask = claim("c", r0=want(cls="A"), r1=want(cls="A"), r2=want(cls="B"))
    ask["spec"]["devices"]["config"] = [{"requests": ["r0"], **config("claim")}]
    slices = [slice_("p", [device(one) for one in "abc"])]
    outcome = run(slices, ask, classes=classes, version=version)
    assert isinstance(outcome, Allocation)
    entries = outcome.results[0]["devices"]["config"]
    assert [(one["source"], one["requests"], one["opaque"]["parameters"]["from"]) for one in entries] == [
        ("FromClass", ["r0", "r1"], "A"), ("FromClass", ["r2"], "B"), ("FromClaim", ["r0"], "claim"),
    ]  # fmt: skip
    single = run(slices, claim("c", r0=want(cls="A")), classes=classes, version=version)
    assert isinstance(single, Allocation)
    assert ("requests" in single.results[0]["devices"]["config"][0]) is (version == "1.36")


def test_30_the_node_selector_follows_the_devices() -> None:
    region = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}]}
    regional = slice_("a", [device("a")], nodeSelector=region)
    node = {"name": "node-1", "labels": {"region": "eu"}}

    def selector(slices: list[Any], count: int) -> Any:
        outcome = ClusterDevices(slices, [class_()], version="1.37").allocate(node, [claim("c", r=want(count=count))])
        assert isinstance(outcome, Allocation)
        return outcome.results[0].get("nodeSelector")

    local = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    both = [regional, slice_("b", [device("b")])]
    assert selector(both, 2) == {"nodeSelectorTerms": [{"matchFields": [local]}]}
    assert selector([regional], 1) == region
    assert selector([slice_("a", [device("a")], allNodes=True)], 1) is None


def test_31_list_attributes_do_not_match_while_their_gate_is_off() -> None:
    slices = [slice_("p", [device(one) for one in "ab"])]
    for entry in slices[0]["spec"]["devices"]:
        entry["attributes"] = {"v": {"strings": ["v1", "v2"]}}
    free = {"metadata": {"name": "free"}, "spec": {}}
    assert none(run(slices, claim("c", [match("v")], r=want(count=2, cls="free")), classes=[free]))
    assert picks(run(slices, claim("c", [match("v")], r=want(cls="free")), classes=[free])) == ["r→a"]


LIMIT = {
    "1.36": "claim default/c: number of requested devices 39 exceeds the claim limit of 32",
    "1.37": "claim default/c, request b: adding 33 devices exceeds the claim limit of 32, with 5 already accounted for",
}


@pytest.mark.parametrize("version", LIMIT)
def test_the_limit_of_a_claim_is_worded_as_in_the_release(version: str) -> None:
    ask = claim("c", a=want(count=5), b=want(count=33), d=want())
    assert fatal(run([slice_("p", [device("a")])], ask, version=version)) == LIMIT[version]


@pytest.mark.parametrize(
    ("version", "text"), [("1.36", "could not retrieve device class none"), ("1.37", LIMIT["1.37"])]
)
def test_1_37_checks_the_limit_before_the_next_request(version: str, text: str) -> None:
    ask = claim("c", a=want(count=5), b=want(count=33), d=want(cls="none"))
    assert text in fatal(run([slice_("p", [device("a")])], ask, version=version))


@pytest.mark.parametrize(("version", "found"), [("1.36", ["r→a"]), ("1.37", [])])
def test_1_37_ignores_pools_with_compatibility_groups(version: str, found: list[str]) -> None:
    consumed = {"counterSet": "set", "counters": {"n": {"value": "1"}}}
    grouped = {"consumesCounters": [{**consumed, "compatibilityGroups": ["g"]}]}
    slices = [
        slice_("p", [], name="counters", count=3),
        slice_("p", [device("a")], name="plain", count=3),
        slice_("p", [device("b", extra=grouped)], name="with-groups", count=3),
    ]
    del slices[0]["spec"]["devices"]
    slices[0]["spec"]["sharedCounters"] = [{"name": "set", "counters": {"n": {"value": "4"}}}]
    outcome = run(slices, claim("c", r=want()), version=version)
    assert (picks(outcome) if found else []) == found
    assert none(outcome) is not bool(found)


@pytest.mark.parametrize("alternative", [False, True])
def test_1_37_rejects_derived_attributes(alternative: bool) -> None:
    derived = {**want(), "derivedAttributes": [{"name": "x", "expression": "1"}]}
    ask = claim("c", r=[("s", derived)] if alternative else derived)
    slices = [slice_("p", [device("a")])]
    name = "s" if alternative else "r"
    assert fatal(run(slices, ask)) == (
        f"claim default/c, request {name}: cannot handle request with derived attributes, the feature is disabled"
    )
    assert isinstance(run(slices, ask, version="1.36"), Allocation), "the field is unknown there"


def test_32_requests_of_one_claim_never_overlap() -> None:
    slices = [slice_("p", [device(one) for one in "abc"])]
    assert picks(run(slices, claim("c", r1=want(), r2=want(count=2)))) == ["r1→a", "r2→b", "r2→c"]


@pytest.mark.parametrize(("version", "steps"), [("1.37", 16), ("1.35", 65)])
def test_steps_of_five_devices_wanted_of_four(version: str, steps: int) -> None:
    slices = [slice_("p", [device(one) for one in "abcd"])]
    assert run(slices, claim("c", r=want(count=5)), version=version).steps == steps


@pytest.mark.parametrize(("version", "steps"), [("1.37", 12), ("1.35", 14)])
def test_steps_of_a_pick_that_has_to_move(version: str, steps: int) -> None:
    slices = [slice_("p", [device("1", k="X"), device("2", k="Y"), device("3", k="Y")])]
    ask = claim("c", r1=want(count=2), r2=want(f'device.attributes["{DRIVER}"].k == "X"'))
    outcome = run(slices, ask, version=version)
    assert picks(outcome) == ["r1→2", "r1→3", "r2→1"]
    assert outcome.steps == steps
