"""Physical functions that are offered whole or as their virtual ones: what is published, and when."""

from __future__ import annotations

import msgspec
import pytest

from dranet.core.device import Device
from dranet.core.names import exclude_each_other
from dranet.core.pciids import PciIds
from dranet.core.slices import resource_slices
from dranet.node.inventory import Inventory, InventoryOptions, Netdev, NetdevLocation, NodeDevice, Snapshot
from tests.node.inventory.conftest import Machine, World

PF, PF_NAME = "0000:c1:00.0", "pci-0000-c1-00-0"
VFS = 4
EVERY = "true"


def physical(machine: Machine, world: World, made: int = 0) -> None:
    """A physical function, and as many of its virtual ones as are made now."""
    path = machine.nic(PF, netdevs=["pf0"], sriov_totalvfs=VFS, sriov_numvfs=made)
    machine.write(f"{path}/net/pf0/speed", 10_000)
    world.link("pf0")
    make(machine, world, path, made)


def make(machine: Machine, world: World, path: str = f"devices/pci0000:10/{PF}", made: int = VFS) -> None:
    machine.write(f"{path}/sriov_numvfs", made)
    for number in range(made):
        own = machine.nic(f"0000:c1:10.{number}", netdevs=[f"pf0v{number}"])
        machine.link(f"{own}/physfn", path)
        machine.link(f"{path}/virtfn{number}", own)
        world.link(f"pf0v{number}")


def scan(world: World, ids: PciIds, expression: str = EVERY, held: dict[str, NodeDevice] | None = None) -> Snapshot:
    return Inventory(InventoryOptions(sriov_vfs=expression), world, pci_ids=ids).scan(lambda: held or {})


def found(snapshot: Snapshot, name: str) -> NodeDevice:
    device = snapshot.find(name)
    assert device is not None, snapshot.skipped
    return device


def test_whole_and_parts_are_counted_in_one_set_in_a_slice_of_its_own(
    machine: Machine, world: World, ids: PciIds
) -> None:
    physical(machine, world)
    devices, counters = resource_slices(scan(world, ids).published, node="n")
    taken = {d["name"]: d["consumesCounters"] for d in devices["spec"]["devices"]}
    assert taken == {
        PF_NAME: [{"counterSet": PF_NAME, "counters": {"slots": {"value": "4"}}}],
        **{f"{PF_NAME}-vf{n}": [{"counterSet": PF_NAME, "counters": {"slots": {"value": "1"}}}] for n in range(VFS)},
    }
    assert counters["spec"]["sharedCounters"] == [{"name": PF_NAME, "counters": {"slots": {"value": "4"}}}]
    assert "devices" not in counters["spec"]
    assert {s["spec"]["pool"]["resourceSliceCount"] for s in (devices, counters)} == {2}


def test_a_virtual_function_says_what_it_has_of_its_nic_and_nothing_that_may_change(
    machine: Machine, world: World, ids: PciIds
) -> None:
    physical(machine, world)
    own = found(scan(world, ids), f"{PF_NAME}-vf1").device
    assert (own.attributes["dra.net/isSriovVf"], own.attributes["dra.net/sriovPf"]) == (True, PF)
    assert own.attributes["resource.kubernetes.io/pcieRoot"] == "pci0000:10"
    assert own.capacity == {"dra.net/linkSpeed": "10G"}
    assert {"dra.net/ifName", "dra.net/mac", "dra.net/pciAddress"}.isdisjoint(own.attributes)


def test_without_the_flag_a_slice_is_as_it_was(machine: Machine, world: World, ids: PciIds) -> None:
    physical(machine, world)
    (only,) = scan(world, ids, "").published
    assert "consumesCounters" not in only.to_api()
    assert len(resource_slices([only], node="n")) == 1


@pytest.mark.parametrize("expression", ["false", 'attributes["dra.net/nothing"].StringValue == "x"'])
def test_the_expression_says_which_and_an_error_in_it_splits_nothing(
    machine: Machine, world: World, ids: PciIds, expression: str
) -> None:
    physical(machine, world)
    assert [device.name for device in scan(world, ids, expression).published] == [PF_NAME]


def test_a_nic_whose_virtual_functions_others_created_is_not_offered(
    machine: Machine, world: World, ids: PciIds
) -> None:
    physical(machine, world, made=2)
    snapshot = scan(world, ids)
    assert [device.name for device in snapshot.published] == ["pci-0000-c1-10-0", "pci-0000-c1-10-1"]
    assert "2 virtual functions" in snapshot.skip_reason(PF_NAME)


def test_once_made_they_are_published_unchanged(machine: Machine, world: World, ids: PciIds) -> None:
    physical(machine, world)
    before = scan(world, ids)
    name = f"{PF_NAME}-vf2"
    claimed = found(before, name)
    make(machine, world)
    after = scan(world, ids, held={name: claimed})
    assert [d for d in after.published if d.name != PF_NAME] == [d for d in before.published if d.name != PF_NAME]
    assert found(after, name).netdev.name == "pf0v2"
    assert str(found(after, name).pci) == "0000:c1:10.2"
    assert after.skip_reason("pci-0000-c1-10-2") == f"it is offered as {name}"


def test_while_the_whole_nic_is_in_a_pod_its_virtual_functions_stay_published(
    machine: Machine, world: World, ids: PciIds
) -> None:
    physical(machine, world)
    before = scan(world, ids)
    world.links_.clear()
    away = msgspec.structs.replace(
        found(before, PF_NAME), netdev=Netdev(location=NetdevLocation.OTHER_NETNS, name="pf0", index=1)
    )
    assert scan(world, ids, held={PF_NAME: away}).published == before.published


def test_with_the_flag_off_again_nothing_is_made_of_what_claims_still_hold(
    machine: Machine, world: World, ids: PciIds
) -> None:
    physical(machine, world)
    name = f"{PF_NAME}-vf0"
    claimed = found(scan(world, ids), name)
    make(machine, world)
    assert [device.name for device in scan(world, ids, "", {name: claimed}).published] == [name]


def test_a_device_that_takes_slots_reads_back_as_it_was_published(machine: Machine, world: World, ids: PciIds) -> None:
    physical(machine, world)
    for device in scan(world, ids).published:
        assert Device.from_api(device.to_api()) == device


@pytest.mark.parametrize(
    ("one", "other", "excluded"),
    [
        (PF_NAME, f"{PF_NAME}-vf0", True),
        (f"{PF_NAME}-vf12", PF_NAME, True),
        (f"{PF_NAME}-vf1", f"{PF_NAME}-vf1", True),
        (f"{PF_NAME}-vf1", f"{PF_NAME}-vf2", False),
        ("pci-0000-c1-00-1", f"{PF_NAME}-vf2", False),
        ("eth0", "eth1", False),
    ],
)
def test_by_their_names_it_is_known_which_devices_exclude_each_other(one: str, other: str, excluded: bool) -> None:
    assert exclude_each_other(one, other) is excluded
