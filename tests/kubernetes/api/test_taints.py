"""From faults to taints, as the flag says."""

from __future__ import annotations

import pytest

from dranet.core.device import Device, FaultKind, Taint
from dranet.core.errors import InvalidInput
from dranet.core.slices import device_problems
from dranet.kubernetes.api.taints import TaintPolicy


def test_every_fault_becomes_a_taint_with_the_chosen_effect() -> None:
    policy = TaintPolicy.parse("NoExecute")
    assert policy.taints([FaultKind.RDMA_PORT_DOWN, FaultKind.LINK_DOWN]) == (
        Taint(key="dra.net/link-down", effect="NoExecute"),
        Taint(key="dra.net/rdma-port-down", effect="NoExecute"),
    )


def test_one_fault_may_have_another_effect_or_none_at_all() -> None:
    policy = TaintPolicy.parse("NoSchedule,link-down=None,driver-unbound=off")
    faults = (FaultKind.LINK_DOWN, FaultKind.DRIVER_UNBOUND, FaultKind.RDMA_PORT_DOWN)
    assert [(taint.key, taint.effect) for taint in policy.taints(faults)] == [
        ("dra.net/link-down", "None"),
        ("dra.net/rdma-port-down", "NoSchedule"),
    ]


def test_off_means_no_taints() -> None:
    device = Device(name="a")
    assert TaintPolicy.parse("off").tainted(device, FaultKind) is device


def test_our_taints_pass_the_api_limits() -> None:
    assert device_problems(TaintPolicy().tainted(Device(name="a"), FaultKind)) == []


@pytest.mark.parametrize("text", ["noschedule", "link-up=NoSchedule", "link-down=", "", "NoSchedule,"])
def test_a_wrong_flag_says_what_is_allowed(text: str) -> None:
    with pytest.raises(InvalidInput, match="use one of"):
        TaintPolicy.parse(text)
