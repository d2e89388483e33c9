"""Reading claims."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.driver.claims.allotment import ClaimError, allotted, config_for, consumers, named_by_containers
from dranet.model.errors import InvalidInput
from dranet.model.netconfig_parse import parse


def claim(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "c", "namespace": "d", "uid": "u"}, "status": status}


def config(*entries: dict[str, Any]) -> dict[str, Any]:
    return claim(allocation={"devices": {"config": list(entries)}})


def entry(parameters: Any, source: str = "FromClaim", driver: str = "dra.net", requests: Any = ()) -> dict[str, Any]:
    return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def test_a_claim_nobody_reserved_has_no_consumer() -> None:
    assert consumers(claim()) == []


def test_every_pod_a_claim_is_reserved_for_is_a_consumer() -> None:
    users = [{"resource": "pods", "name": n, "uid": n} for n in ("one", "two")]
    assert [pod.name for pod in consumers(claim(reservedFor=users))] == ["one", "two"]


def test_a_consumer_that_is_no_pod_is_refused() -> None:
    with pytest.raises(ClaimError, match="only pods"):
        consumers(claim(reservedFor=[{"resource": "jobs", "apiGroup": "batch", "name": "j", "uid": "j"}]))


def test_only_our_devices_count_in_the_order_of_the_allocation() -> None:
    results = [
        {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0", "request": "gpu"},
        {"driver": "dra.net", "pool": "n", "device": "b", "request": "nic"},
        {"driver": "dra.net", "pool": "n", "device": "a", "request": "nic"},
    ]
    assert [item.device for item in allotted(claim(allocation={"devices": {"results": results}}))] == ["b", "a"]


def test_a_claim_without_allocation_is_refused() -> None:
    with pytest.raises(ClaimError, match="not allocated"):
        allotted(claim())


def test_config_of_other_drivers_and_other_requests_is_not_ours() -> None:
    found = config(
        entry({"interface": {"mtu": 1000}}, driver="other"),
        entry({"interface": {"mtu": 2000}}, requests=["else"]),
        entry({"interface": {"mtu": 3000}}, requests=["nic"]),
    )
    assert config_for(found, "nic") == parse({"interface": {"mtu": 3000}})


def test_config_for_a_request_holds_for_its_subrequests_too() -> None:
    found = config(entry({"interface": {"mtu": 3000}}, requests=["nic"]))
    assert config_for(found, "nic/fast") == parse({"interface": {"mtu": 3000}})


def test_of_two_entries_of_the_claim_the_first_wins_field_by_field() -> None:
    found = config(entry({"interface": {"mtu": 1}}) | {}, entry({"interface": {"mtu": 3000}}))
    with pytest.raises(InvalidInput, match=r"config\[0\] \(FromClaim\) interface\.mtu"):
        config_for(found, "nic")
    found = config(entry({"interface": {"mtu": 1500}}), entry({"interface": {"mtu": 3000, "arpIgnore": 1}}))
    assert config_for(found, "nic") == parse({"interface": {"mtu": 1500, "arpIgnore": 1}})


@pytest.mark.parametrize("named", [True, False])
def test_whether_a_container_names_the_claim_is_read_from_the_pod(named: bool) -> None:
    uses = [{"name": "nics"}] if named else []
    pod = {
        "spec": {
            "resourceClaims": [{"name": "nics", "resourceClaimTemplateName": "t"}],
            "containers": [{"name": "main", "resources": {"claims": uses}}],
        },
        "status": {"resourceClaimStatuses": [{"name": "nics", "resourceClaimName": "pod-nics-abc"}]},
    }
    assert named_by_containers(pod, "pod-nics-abc") is named
    assert named_by_containers(pod, "another") is False
