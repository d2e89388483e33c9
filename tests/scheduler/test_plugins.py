"""Rules of single plugins, each with the outcome that the sources of kube-scheduler 1.36 give."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.scheduler import PodInfoReader, Scheduler, ScheduleResult, read_node
from dranet.scheduler.resources import read_pod_requests

Object = dict[str, Any]


def node(name: str, *, labels: Object | None = None, **allocatable: str) -> Object:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10", **allocatable}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    return {"metadata": metadata, "spec": {}, "status": {"allocatable": amounts}}


def pod(name: str = "p", *, requests: Object | None = None, labels: Object | None = None, **spec: Any) -> Object:
    containers = [{"name": "c", "image": "i", "resources": {"requests": requests or {}}}]
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"containers": containers, **spec}}


def decide(nodes: list[Object], *pods: Object, **classes: list[Object]) -> ScheduleResult:
    """About the last pod, when the others have been placed."""
    scheduler, reader = Scheduler([read_node(raw) for raw in nodes]), PodInfoReader(**classes)
    for raw in pods[:-1]:
        verdict = scheduler.decide(reader.read_pod(raw))
        if chosen := scheduler.select_host(verdict):
            scheduler.bind(verdict.pod, chosen)
    return scheduler.decide(reader.read_pod(pods[-1]))


def container(restart: str = "", **requests: str) -> Object:
    return {"resources": {"requests": requests}} | ({"restartPolicy": restart} if restart else {})


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container(cpu="1"), container(cpu="500m")]}, 1500),
        ({"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]}, 3000),
        (
            {"containers": [container(cpu="1")], "initContainers": [container("Always", cpu="1"), container(cpu="2")]},
            3000,
        ),
        (
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="2"), container("Always", cpu="1")]},
            2000,
        ),
        ({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "3"}}}, 3000),
        ({"containers": [container(cpu="1")], "resources": {"limits": {"cpu": "3"}}}, 1000),
        ({"containers": [container()], "resources": {"limits": {"cpu": "3"}}}, 3000),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2000),
        ({"containers": [container(cpu="0.1m")]}, 1),
    ],
)
def test_the_cpu_of_a_pod_is_what_it_needs_at_its_peak(spec: Object, cpu: int) -> None:
    assert read_pod_requests(spec).resources["cpu"] == cpu


def test_a_container_that_says_nothing_counts_for_a_tenth_of_a_cpu_in_scores() -> None:
    assert read_pod_requests({"containers": [container(), container(memory="1Gi")]}).non_zero == (
        200,
        1224 * 1024 * 1024,
    )


def test_reasons_are_sorted_as_texts_numbers_included() -> None:
    nodes = [node(f"n{i}", labels={"zone": "a" if i < 10 else "b"}) for i in range(19)]
    text = decide(nodes, pod(requests={"cpu": "9"}, nodeSelector={"zone": "a"})).message
    assert text.startswith("0/19 nodes are available: 10 Insufficient cpu, 9 node(s) didn't match Pod's node affinity")


def test_everything_that_is_short_is_counted() -> None:
    text = decide([node("n")], pod(requests={"cpu": "9", "memory": "9Gi", "example.com/x": "1"})).message
    assert "1 Insufficient cpu, 1 Insufficient example.com/x, 1 Insufficient memory." in text


def terms(*fields: str) -> Object:
    wanted = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in fields]
    required = {"nodeSelectorTerms": [{"matchFields": wanted}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def test_nodes_that_are_not_named_are_counted_before_every_other_reason() -> None:
    tainted = node("b") | {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
    text = decide([node("a"), tainted], pod(requests={"cpu": "9"}, affinity=terms("a"))).message
    assert text.startswith(
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_names_that_exclude_each_other_end_before_preemption_is_prepared() -> None:
    text = decide([node("a")], pod(affinity=terms("a", "b"))).message
    assert text == "0/1 nodes are available: pod affinity terms conflict. not found"


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ({"hostPort": 80}, {"hostPort": 80}, False),
        ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80}, False),
        ({"containerPort": 80}, {"hostPort": 80}, True),
    ],
)
def test_ports_of_a_node_collide_by_address_protocol_and_number(first: Object, second: Object, together: bool) -> None:
    both = [pod(name) for name in "ab"]
    for raw, port in zip(both, (first, second), strict=True):
        raw["spec"]["containers"][0]["ports"] = [port]
    assert bool(decide([node("n")], *both).feasible) is together


def test_every_pod_tolerates_nodes_that_have_just_gone_away() -> None:
    gone = node("n") | {"spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}}
    assert decide([gone], pod()).best_nodes == ["n"]


def priority(name: str, value: int, **more: str) -> Object:
    return {"metadata": {"name": name}, "value": value, **more}


def test_the_least_important_pods_leave() -> None:
    classes = [priority("low", 1), priority("mid", 2), priority("high", 3)]
    before = [pod(name, requests={"cpu": "3"}, priorityClassName=name) for name in ("mid", "low")]
    verdict = decide(
        [node("a"), node("b")], *before, pod(requests={"cpu": "3"}, priorityClassName="high"), priority_classes=classes
    )
    assert verdict.message == "0/2 nodes are available: 2 Insufficient cpu."
    assert [[victim.priority for victim in one.victims] for one in verdict.preemptions] == [[1]]


def test_a_modest_pod_makes_nobody_leave() -> None:
    classes = [priority("low", 1), priority("high", 3, preemptionPolicy="Never")]
    low = pod("low", requests={"cpu": "3"}, priorityClassName="low")
    high = pod("high", requests={"cpu": "3"}, priorityClassName="high")
    text = decide([node("a")], low, high, priority_classes=classes).message
    assert text.endswith("no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.")


def test_nodes_with_more_left_are_preferred() -> None:
    assert decide([node("small"), node("large", cpu="16", memory="32Gi")], pod(requests={"cpu": "1"})).best_nodes == [
        "large"
    ]


def test_services_spread_pods_that_say_nothing() -> None:
    service = {"metadata": {"name": "s"}, "spec": {"selector": {"app": "a"}}}
    nodes = [node("a", cpu="100", memory="800Gi"), node("b", cpu="99", memory="792Gi")]
    pods = [pod(name, labels={"app": "a"}) for name in "pq"]
    assert decide(nodes, *pods, services=[service]).best_nodes == ["b"]
    assert set(decide(nodes, *pods).best_nodes) == {"a", "b"}
