"""Shares of NICs in the output of `plan`, `explain` and `suggest`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dranet.advise.explain import explain
from dranet.advise.explain import explanation_text as explained
from dranet.advise.lint import Finding, lint_manifests
from dranet.advise.manifests import Manifests, must_read, read_text
from dranet.advise.plan.hardware import Hardware, hardware_of_slices
from dranet.advise.plan.planning import plan
from dranet.advise.plan.render import plan_json, plan_text
from dranet.advise.suggest import suggest, suggestion_text
from dranet.core.device import Device
from dranet.core.errors import InvalidInput
from dranet.core.quantity import parse_quantity
from dranet.core.slices import resource_slices
from dranet.node.inventory.sharing import make_shareable
from dranet.node.inventory.snapshot import Netdev, NetdevLocation, NodeDevice

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


def nic(plain: Device) -> Device:
    """The device as the driver publishes it where NICs are shared."""
    netdev = Netdev(location=NetdevLocation.HOST, name="eth1", index=2)
    return make_shareable(NodeDevice(device=plain, netdev=netdev)).device


def node(*, share: bool = True, names: tuple[str, ...] = ("n1",)) -> Hardware:
    attributes = {"dra.net/encapsulation": "ether", "dra.net/ifName": "eth1", "dra.net/pciAddress": "0000:3b:00.0"}
    plain = Device(name="nic0", attributes=attributes, capacity={"dra.net/linkSpeed": "100G"})
    published = [nic(plain) if share else plain]
    return hardware_of_slices([slice_ for name in names for slice_ in resource_slices(published, node=name)])


def asked(amount: str, pods: int) -> Manifests:
    return Manifests(read_text(CLAIM.format(amount=amount, pods=pods), "asked.yaml")[0])


def test_a_plan_lists_shares_and_what_is_left() -> None:
    found = plan(asked("30G", 2), node())
    text = plan_text(found, wide=True)
    assert text.count("nic0") >= 2
    assert "30G bandwidth" in text
    assert "40G of 100G bandwidth of dra.net nic0 in n1" in text
    made = json.loads(json.dumps(plan_json(found)))
    (device,) = made["pods"][0]["claims"][0]["devices"]
    given = parse_quantity(device["consumedCapacity"]["dra.net/bandwidth"])
    assert given == parse_quantity("30G")
    assert made["left_of_shared"] == ["40G of 100G bandwidth of dra.net nic0 in n1"]


@pytest.mark.parametrize("amounts", [("100G", "13G"), ("13G", "100G")])
def test_a_full_nic_does_not_answer_for_one_of_which_something_is_left(amounts: tuple[str, str]) -> None:
    texts = [CLAIM.format(amount=amount, pods=1).replace("share", f"of-{amount}") for amount in amounts]
    workers = [text.replace("worker", f"worker-{i}") for i, text in enumerate(texts)]
    last = CLAIM.format(amount="50G", pods=2).replace("worker", "last")
    manifests = Manifests(read_text("---\n".join([*workers, last]), "asked.yaml")[0])
    found = plan(manifests, node(names=("n1", "n2")))
    assert [refusal.pod.name for refusal in found.unschedulable] == ["last-1"]
    (left,) = found.left_of_shared
    assert left.startswith("37G of 100G bandwidth of dra.net nic0 in ")


def test_a_refused_share_lists_how_much_is_left() -> None:
    reports = explain(asked("30G", 4), node())
    refused = [one for one in reports if one.placed is None]
    assert len(refused) == 1
    assert "dra.net/bandwidth: 30G wanted, 10G of 100G bandwidth left" in explained(refused)


def test_a_share_is_suggested_and_fits_as_often_as_the_nic_has_capacity() -> None:
    found = suggest(node(), 0, 1, "25G")
    assert "dra.net/bandwidth: 25G" in found.manifest
    assert found.per_node == 4
    assert "interface.addresses" in suggestion_text(found)


def test_no_share_is_suggested_of_nics_that_are_not_shared() -> None:
    with pytest.raises(InvalidInput, match="--shared-cards"):
        suggest(node(share=False), 0, 1, "25G")


def findings(manifests: Manifests, hardware: Hardware) -> list[Finding]:
    return [one for one in lint_manifests(manifests, (), hardware) if one.rule == "share-of-no-card"]


def test_lint_finds_a_share_larger_than_every_nic() -> None:
    (found,) = findings(asked("200G", 1), node())
    assert "200G requested, but the fastest NIC has 100G" in found.message
    assert findings(asked("100G", 1), node()) == []


def test_lint_finds_a_share_of_nics_that_are_not_shared() -> None:
    (found,) = findings(asked("10G", 1), node(share=False))
    assert "--shared-cards" in found.fix


EXAMPLES = Path(__file__).resolve().parents[3] / "examples/sharing"
ROOT = "resource.kubernetes.io/pcieRoot"


def four_gpus_one_nic() -> Hardware:
    attributes = {"dra.net/encapsulation": "ether", "dra.net/ifName": "eth1", ROOT: "pci0000:3a"}
    shared = nic(Device(name="nic0", attributes=attributes, capacity={"dra.net/linkSpeed": "400G"}))
    nics = resource_slices([shared], node="n1")
    known = {ROOT: "pci0000:3a", "gpu.nvidia.com/type": "gpu"}
    gpus = resource_slices([Device(name=f"gpu-{i}", attributes=known) for i in range(5)], node="n1")
    for one in gpus:
        one["spec"]["driver"] = "gpu.nvidia.com"
        one["metadata"]["name"] = "gpus"
    return hardware_of_slices([*nics, *gpus])


def test_the_example_gives_four_gpus_a_quarter_of_one_nic_each() -> None:
    asked = must_read([EXAMPLES / "claims.yaml", EXAMPLES / "four-gpus-one-card.yaml"])
    found = plan(Manifests([one for one in asked if one.kind != "ResourceClaim"]), four_gpus_one_nic())
    given = [result for one in found.pods for group in one.placement.devices for result in group]
    assert len(found.pods) == 4
    assert [result.device for result in given if result.driver == "dra.net"] == ["nic0"] * 4
    assert found.unschedulable == () and found.left_of_shared == ()
