"""What the hook gives to single containers: leave to pin memory, to those with RDMA devices, if the driver may."""

from __future__ import annotations

import pytest

from dranet.kubernetes.nri.messages import CDIDevice, Container
from dranet.node.edits.container_edits import cdi_device_name, claim_variable
from dranet.node.records.plan import CharDevice, ClaimPlan, DevicePlan, RdmaRecord
from dranet.node.server.runtime import container_adjustment

from .conftest import claim_plan

NODES = (CharDevice(path="/dev/infiniband/uverbs1", major=231, minor=1),)


def plan(uid: str, *, rdma: bool = True, named: bool = True) -> ClaimPlan:
    device = DevicePlan(name="d", pool="n", request="r", rdma=RdmaRecord(device="m", char_devices=NODES))
    plain = DevicePlan(name="d", pool="n", request="r")
    return claim_plan(device if rdma else plain, uid=uid, named=named)


BY_DEVICE = Container(CDI_devices=[CDIDevice(name=cdi_device_name("a"))])
BY_VARIABLE = Container(env=["PATH=/bin", f"{claim_variable('a')}=net1"])


def limits(container: Container, *plans: ClaimPlan, lift: bool = True) -> list[tuple[str, int, int]]:
    answer = container_adjustment(plans, container, lift_memlock=lift)
    return [(limit.type, limit.soft, limit.hard) for limit in answer.adjust.rlimits]


@pytest.mark.parametrize("container", [BY_DEVICE, BY_VARIABLE], ids=["by CDI device", "by its variable"])
def test_container_with_rdma_may_pin_memory(container: Container) -> None:
    assert limits(container, plan("a")) == [("RLIMIT_MEMLOCK", 2**64 - 1, 2**64 - 1)]


def test_other_containers_keep_their_limit() -> None:
    assert limits(Container(), plan("a")) == []
    assert limits(BY_DEVICE, plan("b")) == []


def test_unnamed_claim_gives_all_containers_the_devices() -> None:
    assert [name for name, *_ in limits(Container(), plan("a", named=False))] == ["RLIMIT_MEMLOCK"]


def test_claim_without_rdma_lifts_no_limit() -> None:
    assert limits(BY_DEVICE, plan("a", rdma=False)) == []


def test_limit_stays_without_the_flag() -> None:
    assert limits(BY_DEVICE, plan("a"), lift=False) == []
    assert limits(Container(), plan("a", named=False), lift=False) == []
