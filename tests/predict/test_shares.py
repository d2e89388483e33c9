"""Shares of cards in what `plan`, `explain` and `suggest` say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dranet.inventory.sharing import shared
from dranet.inventory.snapshot import Netdev, NodeDevice, Place
from dranet.lint.linting import lint_world
from dranet.lint.rules import Finding
from dranet.manifests.claim_views import World, world_of
from dranet.manifests.reading import must_read, read_text
from dranet.model.device import Device
from dranet.model.errors import InvalidInput
from dranet.model.quantity import parse_quantity
from dranet.model.slices import resource_slices
from dranet.predict.explain.explain_text import to_text as explained
from dranet.predict.explain.explaining import explain
from dranet.predict.hardware import Hardware, hardware_of_slices
from dranet.predict.plan_text import plan_text
from dranet.predict.planning import plan, to_json
from dranet.predict.suggest.suggesting import suggest, to_text

CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: share}}
spec:
  spec:
    devices:
      requests:
      - name: nic
        exactly: {{deviceClassName: dranet, capacity: {{requests: {{dra.net/bandwidth: {amount}}}}}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: worker}}
spec:
  replicas: {pods}
  template:
    spec:
      containers: [{{name: main, image: none}}]
      resourceClaims: [{{name: nic, resourceClaimTemplateName: share}}]
"""


def node(*, share: bool = True, names: tuple[str, ...] = ("n1",)) -> Hardware:
    attributes = {"dra.net/encapsulation": "ether", "dra.net/ifName": "eth1", "dra.net/pciAddress": "0000:3b:00.0"}
    plain = Device(name="card0", attributes=attributes, capacity={"dra.net/linkSpeed": "100G"})
    found = shared(NodeDevice(device=plain, netdev=Netdev(place=Place.HERE, name="eth1", index=2))).device
    card = found if share else plain
    return hardware_of_slices([slice_ for name in names for slice_ in resource_slices([card], node=name)])


def asked(amount: str, pods: int) -> World:
    return world_of(read_text(CLAIM.format(amount=amount, pods=pods), "asked.yaml")[0])


def test_a_plan_says_who_gets_how_much_and_what_is_left() -> None:
    found = plan(asked("30G", 2), node())
    text = plan_text(found)
    assert text.count("card0") >= 2
    assert "30G bandwidth" in text
    assert "40G of 100G bandwidth of dra.net card0 in n1" in text
    made = json.loads(json.dumps(to_json(found)))
    (device,) = made["pods"][0]["claims"][0]["devices"]
    given = parse_quantity(device["consumedCapacity"]["dra.net/bandwidth"])
    assert given == parse_quantity("30G")
    assert made["left_of_shared"] == ["40G of 100G bandwidth of dra.net card0 in n1"]


@pytest.mark.parametrize("amounts", [("100G", "13G"), ("13G", "100G")])
def test_a_full_card_does_not_answer_for_one_of_which_something_is_left(amounts: tuple[str, str]) -> None:
    texts = [CLAIM.format(amount=amount, pods=1).replace("share", f"of-{amount}") for amount in amounts]
    workers = [text.replace("worker", f"worker-{i}") for i, text in enumerate(texts)]
    last = CLAIM.format(amount="50G", pods=2).replace("worker", "last")
    world = world_of(read_text("---\n".join([*workers, last]), "asked.yaml")[0])
    found = plan(world, node(names=("n1", "n2")))
    assert [refusal.pod.name for refusal in found.unschedulable] == ["last-1"]
    (left,) = found.left_of_shared
    assert left.startswith("37G of 100G bandwidth of dra.net card0 in ")


def test_whoever_does_not_fit_is_told_how_much_is_left() -> None:
    reports = explain(asked("30G", 4), node())
    refused = [one for one in reports if one.placed is None]
    assert len(refused) == 1
    assert "dra.net/bandwidth: 30G wanted, 10G of 100G bandwidth left" in explained(refused)


def test_a_share_is_suggested_and_fits_as_often_as_the_card_has_room() -> None:
    found = suggest(node(), 0, 1, "25G")
    assert "dra.net/bandwidth: 25G" in found.manifest
    assert found.per_node == 4
    assert "interface.addresses" in to_text(found)


def test_no_share_is_suggested_of_cards_that_are_not_shared() -> None:
    with pytest.raises(InvalidInput, match="--shared-cards"):
        suggest(node(share=False), 0, 1, "25G")


def findings(world: World, hardware: Hardware) -> list[Finding]:
    return [one for one in lint_world(world, (), hardware) if one.rule == "share-of-no-card"]


def test_lint_finds_a_share_larger_than_every_card() -> None:
    (found,) = findings(asked("200G", 1), node())
    assert "200G wanted, and the largest card has 100G" in found.message
    assert findings(asked("100G", 1), node()) == []


def test_lint_finds_a_share_of_cards_that_are_not_shared() -> None:
    (found,) = findings(asked("10G", 1), node(share=False))
    assert "--shared-cards" in found.fix


EXAMPLES = Path(__file__).resolve().parents[2] / "examples/sharing"
ROOT = "resource.kubernetes.io/pcieRoot"


def four_gpus_one_card() -> Hardware:
    attributes = {"dra.net/encapsulation": "ether", "dra.net/ifName": "eth1", ROOT: "pci0000:3a"}
    plain = Device(name="card0", attributes=attributes, capacity={"dra.net/linkSpeed": "400G"})
    card = shared(NodeDevice(device=plain, netdev=Netdev(place=Place.HERE, name="eth1", index=2))).device
    cards = resource_slices([card], node="n1")
    known = {ROOT: "pci0000:3a", "gpu.nvidia.com/type": "gpu"}
    gpus = resource_slices([Device(name=f"gpu-{i}", attributes=known) for i in range(5)], node="n1")
    for one in gpus:
        one["spec"]["driver"] = "gpu.nvidia.com"
        one["metadata"]["name"] = "gpus"
    return hardware_of_slices([*cards, *gpus])


def test_the_example_gives_four_gpus_a_quarter_of_one_card_each() -> None:
    asked = must_read([EXAMPLES / "claims.yaml", EXAMPLES / "four-gpus-one-card.yaml"])
    found = plan(world_of([one for one in asked if one.kind != "ResourceClaim"]), four_gpus_one_card())
    given = [result for one in found.pods for group in one.placement.devices for result in group]
    assert len(found.pods) == 4
    assert [result["device"] for result in given if result["driver"] == "dra.net"] == ["card0"] * 4
    assert found.unschedulable == () and found.left_of_shared == ()
