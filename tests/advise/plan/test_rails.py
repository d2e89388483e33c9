"""Rails of planned jobs: which pods reach each other, the advice, and the claims that keep a job together."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dranet.advise.lint import lint
from dranet.advise.manifests import Manifests, read_text
from dranet.advise.plan.hardware import Hardware
from dranet.advise.plan.planning import plan
from dranet.advise.plan.rails import job_rails, rails_json, rails_text
from dranet.advise.suggest import same_rails_text, suggest_same_rails
from dranet.core.errors import InvalidInput
from tests.inputs import shapes

NICS = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: nic}}
spec:
  spec:
    devices:
      requests: [{{name: nic, exactly: {{deviceClassName: dranet, count: {count}{selectors}}}}}]
---
apiVersion: {api}
kind: {kind}
metadata: {{name: train}}
spec:
  {pods}
  selector: {{matchLabels: {{app: train}}}}
  template:
    metadata: {{labels: {{app: train}}}}
    spec:
      resourceClaims: [{{name: nic, resourceClaimTemplateName: nic}}]
      containers: [{{name: c, image: example, resources: {{claims: [{{name: nic}}]}}}}]
"""


def job(pods: int, count: int = 1, rail: str = "", kind: str = "StatefulSet") -> str:
    cel = f"""device.attributes["dra.net"].rail == "{rail}\""""
    selectors = f", selectors: [{{cel: {{expression: '{cel}'}}}}]" if rail else ""
    return NICS.format(count=count, selectors=selectors, api="apps/v1", kind=kind, pods=f"replicas: {pods}")


def held(hardware: Hardware, taken: list[tuple[str, str]]) -> list[str]:
    """A claim for each NIC that is taken, by node and interface."""
    found = []
    for i, (node, interface) in enumerate(taken):
        (device,) = [nic.device for nic in hardware.machines[node].nics if nic.interface == interface]
        result = f"{{request: nic, driver: dra.net, pool: {node}, device: {device}}}"
        found.append(
            f"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: held-{i}}}\nspec: {{}}\n"
            f"status: {{allocation: {{devices: {{results: [{result}]}}}}}}\n"
        )
    return found


def manifests(*texts: str, background: list[str] | None = None) -> Manifests:
    read = [read_text("---\n".join(some), "x.yaml")[0] for some in (texts, background or []) if some]
    return Manifests(read[0], read[1]) if len(read) > 1 else Manifests(read[0])


A4 = shapes("a4-highgpu-8g=2")


def test_pods_beside_a_busy_card_are_on_different_rails_and_it_is_said() -> None:
    found = plan(manifests(job(2), background=held(A4, [("a4-highgpu-8g-1", "gpu0rdma0")])), A4)
    (rails,) = job_rails(found)
    assert (rails.common, rails.apart is None) == ((), False)
    text = rails_text(rails)
    assert "different rails; not proven isolated: train-0 has 0, train-1 has 1" in text
    assert "UNREACHABLE" not in text and "suggest --same-rails" in text


def test_the_selector_it_names_keeps_the_job_together() -> None:
    found = plan(manifests(job(2, rail="1"), background=held(A4, [("a4-highgpu-8g-1", "gpu0rdma0")])), A4)
    (rails,) = job_rails(found)
    assert (rails.common, rails.apart, rails.uneven) == (("1",), None, None)


def test_pods_that_share_only_some_rails_share_a_warning() -> None:
    found = plan(manifests(job(2, count=2), background=held(A4, [("a4-highgpu-8g-1", "gpu0rdma0")])), A4)
    (entry,) = rails_json(found)
    assert (entry["common"], entry["reachable"], entry["same"]) == (["1"], True, False)
    assert "train-0 has 0, 1 and train-1 has 1, 2" in entry["text"]


def test_an_odd_number_of_nodes_with_several_rails_is_warned_of() -> None:
    (rails,) = job_rails(plan(manifests(job(3, count=8)), shapes("a4-highgpu-8g=3")))
    assert "NCCL_CROSS_NIC=0" in rails_text(rails)
    (rails,) = job_rails(plan(manifests(job(2, count=8)), A4))
    assert rails_text(rails) == "StatefulSet/train: all pods on rails 0, 1, 2, 3, 4, 5, 6, 7"


@pytest.mark.parametrize("shape", ["p5.48xlarge=2", "nd-h100-v5=2", "dgx-h200=2"])
def test_no_rails_where_nics_have_no_rails(shape: str) -> None:
    assert job_rails(plan(manifests(job(2)), shapes(shape))) == []


def test_a_lone_pod_has_no_rails_entry() -> None:
    assert job_rails(plan(manifests(job(1)), A4)) == []


H100 = shapes("bm.gpu.h100.8=2")


@pytest.mark.parametrize(
    ("text", "hardware", "severities"),
    [
        (job(2), H100, ["warning"]),
        (job(2), A4, ["info"]),
        (job(2, rail="3"), H100, []),
        (job(2, count=16), H100, []),
        (job(1), H100, []),
        (job(2, kind="Deployment"), H100, []),
        (job(2), shapes("p5.48xlarge=2"), []),
        (job(2), None, []),
    ],
)
def test_lint_warns_of_jobs_that_may_get_different_rails(
    text: str, hardware: Hardware | None, severities: list[str]
) -> None:
    objects, problems = read_text(text, "x.yaml")
    found = [one for one in lint(objects, problems, hardware) if one.rule == "rails-not-forced"]
    assert [one.severity for one in found] == severities


def test_suggest_writes_one_template_for_each_rail() -> None:
    found = suggest_same_rails(manifests(job(1)), A4, 1, 1)
    assert [one.rails for one in found] == [(str(i),) for i in range(8)]
    assert {str(one.worst) for one in found} == {"PIX"}
    text = same_rails_text(found)
    assert text.count("kind: ResourceClaimTemplate") == 8 and "all pods on rails 7" in text


def test_suggest_takes_rails_that_are_free_on_enough_nodes() -> None:
    busy = [("a4-highgpu-8g-0", f"gpu{i}rdma0") for i in (0, 1, 2)]
    busy += [("a4-highgpu-8g-1", f"gpu{i}rdma0") for i in (3, 4, 5, 6)]
    (only,) = suggest_same_rails(manifests(job(1), background=held(A4, busy)), A4, 1, 1)
    assert only.rails == ("7",)


def test_suggest_lists_what_is_free_where_no_rail_is_common() -> None:
    busy = [("a4-highgpu-8g-0", f"gpu{i}rdma0") for i in range(4)]
    busy += [("a4-highgpu-8g-1", f"gpu{i}rdma0") for i in range(4, 8)]
    with pytest.raises(InvalidInput, match="a4-highgpu-8g-0 has 4, 5, 6, 7 free; a4-highgpu-8g-1 has 0, 1, 2, 3 free"):
        suggest_same_rails(manifests(job(1), background=held(A4, busy)), A4, 1, 1)


def test_machines_without_rails_are_refused() -> None:
    with pytest.raises(InvalidInput, match="publishes dra"):
        suggest_same_rails(manifests(job(1)), shapes("p5.48xlarge=2"), 1, 1)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 2), st.randoms(use_true_random=False))
def test_where_any_common_rails_are_free_suggest_finds_them(nics: int, chance: random.Random) -> None:
    nics_of_all = [(node, f"gpu{i}rdma0") for node in A4.machines for i in range(8)]
    taken = chance.sample(nics_of_all, chance.randint(4, 12))
    free = [{i for i in range(8) if (node, f"gpu{i}rdma0") not in taken} for node in A4.machines]
    common = set.intersection(*free)
    state = manifests(job(1), background=held(A4, taken))
    if len(common) < nics:
        with pytest.raises(InvalidInput):
            suggest_same_rails(state, A4, 0, nics)
    else:
        found = suggest_same_rails(state, A4, 0, nics)
        assert all({int(rail) for rail in one.rails} <= common for one in found)
        assert len(set(itertools.chain.from_iterable(one.rails for one in found))) == len(found) * nics


def test_suggest_counts_on_the_class_it_asks_for_where_a_live_cluster_has_none() -> None:
    (claim,) = held(A4, [("a4-highgpu-8g-0", "gpu0rdma0")])
    live = Manifests(read_text(claim, "<cluster>")[0])
    assert [one.rails for one in suggest_same_rails(live, A4, 1, 1)] == [(str(i),) for i in range(1, 8)]
