"""What the hook gives to single containers: leave to pin memory, to those with RDMA devices, if the driver may."""

from __future__ import annotations

import pytest

from dranet.driver.moving.receipt import cdi_name, variable_of
from dranet.driver.records.plan import CharDevice, ClaimPlan, DevicePlan, PodRef, RdmaRecord
from dranet.driver.serving.containers import adjustment
from dranet.nri.messages import CDIDevice, Container

NODES = (CharDevice(path="/dev/infiniband/uverbs1", major=231, minor=1),)


def plan(uid: str, *, rdma: bool = True, named: bool = True) -> ClaimPlan:
    device = DevicePlan(name="d", pool="n", request="r", rdma=RdmaRecord(device="m", char_devices=NODES))
    plain = DevicePlan(name="d", pool="n", request="r")
    user = PodRef(uid="p", name="p", namespace="d")
    return ClaimPlan(uid=uid, namespace="d", name=uid, pod=user, devices=(device if rdma else plain,), named=named)


BY_DEVICE = Container(CDI_devices=[CDIDevice(name=cdi_name("a"))])
BY_VARIABLE = Container(env=["PATH=/bin", f"{variable_of('a')}=net1"])


def limits(container: Container, *plans: ClaimPlan, lift: bool = True) -> list[tuple[str, int, int]]:
    answer = adjustment(plans, container, lift_memlock=lift)
    return [(limit.type, limit.soft, limit.hard) for limit in answer.adjust.rlimits]


@pytest.mark.parametrize("container", [BY_DEVICE, BY_VARIABLE], ids=["by CDI device", "by its variable"])
def test_a_container_that_names_a_claim_with_rdma_may_pin_all_it_wants(container: Container) -> None:
    assert limits(container, plan("a")) == [("RLIMIT_MEMLOCK", 2**64 - 1, 2**64 - 1)]


def test_other_containers_of_the_pod_keep_their_limit() -> None:
    assert limits(Container(), plan("a")) == []
    assert limits(BY_DEVICE, plan("b")) == []


def test_where_no_container_names_the_claim_all_have_its_devices_and_may_pin() -> None:
    assert [name for name, *_ in limits(Container(), plan("a", named=False))] == ["RLIMIT_MEMLOCK"]


def test_a_claim_without_rdma_lifts_nothing() -> None:
    assert limits(BY_DEVICE, plan("a", rdma=False)) == []


def test_without_the_flag_nothing_is_lifted() -> None:
    assert limits(BY_DEVICE, plan("a"), lift=False) == []
    assert limits(Container(), plan("a", named=False), lift=False) == []
