"""Objects there and back between the versions of the resource API."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.core.device import Device, Taint
from dranet.core.slices import resource_slices
from dranet.kubernetes.api.errors import ConfigError
from dranet.kubernetes.api.resources import choose_version, from_version, to_version

DEVICE = Device(name="a", attributes={"dra.net/mtu": 1}, capacity={"dra.net/linkSpeed": "1G"}, taints=(Taint(key="k"),))
SLICE = resource_slices([DEVICE], node="n")[0]
EXACT = {"deviceClassName": "nic", "selectors": [{"cel": {"expression": "true"}}], "count": 2}
CLAIM_SPEC = {"devices": {"requests": [{"name": "r", "exactly": EXACT}, {"name": "s", "firstAvailable": []}]}}
CLAIM = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": CLAIM_SPEC}
TEMPLATE = {**CLAIM, "kind": "ResourceClaimTemplate", "spec": {"spec": CLAIM_SPEC}}


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@pytest.mark.parametrize("obj", [SLICE, CLAIM, TEMPLATE], ids=["slice", "claim", "template"])
def test_an_object_comes_back_as_it_went(obj: dict[str, Any], version: str) -> None:
    assert from_version(to_version(obj, version), version) == obj


def test_v1beta1_keeps_device_fields_under_basic() -> None:
    [device] = to_version(SLICE, "v1beta1")["spec"]["devices"]
    assert sorted(device) == ["basic", "name"]
    assert device["basic"]["taints"] == [{"key": "k", "effect": "NoSchedule"}]


def test_v1beta1_keeps_request_fields_flat() -> None:
    [request, _] = to_version(CLAIM, "v1beta1")["spec"]["devices"]["requests"]
    assert request == {"name": "r", **EXACT}


def test_a_v1beta1_device_without_basic_has_no_attributes() -> None:
    beta = {**SLICE, "spec": {**SLICE["spec"], "devices": [{"name": "a"}]}}
    assert from_version(beta, "v1beta1")["spec"]["devices"] == [{"name": "a"}]


def test_v1_wins_over_the_betas_and_alpha_is_refused() -> None:
    assert choose_version(["v1beta1", "v1beta2", "v1"]) == "v1"
    with pytest.raises(ConfigError, match="v1alpha3"):
        choose_version(["v1alpha3"])
