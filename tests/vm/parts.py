"""The driver's own parts on this machine, without the daemon around them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dranet.core.names import pci_device_name
from dranet.core.netconfig_parse import parse
from dranet.core.pci import PciAddress
from dranet.core.pciids import PciIds
from dranet.linux.sysfs import Sysfs
from dranet.node.claims.allocation import AllocatedDevice
from dranet.node.claims.planner import DeviceRequest, Planner
from dranet.node.edits.readiness_gate import ReadinessGates
from dranet.node.inventory import Inventory, InventoryOptions, LiveKernel, NodeDevice, Snapshot
from dranet.node.lifecycle.device_lifecycle import AttachedDevice, DeviceLifecycle
from dranet.node.namespaces import Host
from dranet.node.records.plan import ClaimPlan, PodRef
from dranet.node.store import Store
from tests.vm import container
from tests.vm.world import NamedNamespace

PATIENCE_SECONDS = 30
"""An attach has 1.5 s on a real machine; this one is emulated and twenty times slower."""
_PCI_IDS = PciIds()


def scan(in_use: dict[str, NodeDevice] | None = None, offer: tuple[str, ...] = ()) -> Snapshot:
    with LiveKernel() as kernel:
        return Inventory(InventoryOptions(offer_interfaces=offer), kernel, pci_ids=_PCI_IDS).scan(lambda: in_use or {})


def name_at(address: str) -> str:
    """The published name of the NIC at a PCI address."""
    pci = PciAddress.find(address)
    assert pci is not None
    return pci_device_name(pci)


def found_at(address: str, snapshot: Snapshot | None = None) -> NodeDevice:
    device = (snapshot or scan()).find(name_at(address))
    assert device is not None, f"nothing offered at {address}"
    return device


@dataclass
class Driver:
    """Prepares claims and carries them out."""

    host: Host
    store: Store
    lifecycle: DeviceLifecycle
    gates: ReadinessGates

    def prepare(
        self, name: str, claim: str = "claim", config: dict[str, Any] | None = None, *, admin: bool = False
    ) -> ClaimPlan:
        """A stored plan that gives the device to the pod of the claim's name."""
        return self.prepare_all({name: config}, claim, admin=admin)

    def prepare_all(
        self,
        configs: Mapping[str, dict[str, Any] | None],
        claim: str = "claim",
        *,
        admin: bool = False,
        offer: tuple[str, ...] = (),
    ) -> ClaimPlan:
        """A stored plan that gives these devices to the pod of the claim's name, each as it is configured."""
        snapshot = scan(offer=offer)
        requests = []
        for name, config in configs.items():
            found = snapshot.find(name)
            assert found is not None, f"{name} is not offered: {snapshot.skipped}"
            requests.append(
                DeviceRequest(AllocatedDevice(f"nic-{name}", "node", name, None, admin), found, parse(config))
            )
        devices = tuple(Planner(self.host, Sysfs()).plan(requests, others=self.store.devices_of_others(claim)))
        user = PodRef(uid=f"pod-{claim}", name=claim, namespace="default")
        boot = self.host.boot
        plan = ClaimPlan(uid=claim, namespace="default", name=claim, pod=user, devices=devices, boot=boot)
        self.store.put(plan)
        self.lifecycle.set_up(plan)
        return plan

    def attach(self, plan: ClaimPlan, pod: NamedNamespace) -> list[AttachedDevice]:
        return self.lifecycle.attach(plan.pod.uid, f"/run/netns/{pod.name}", seconds=PATIENCE_SECONDS)

    def detach(self, plan: ClaimPlan) -> list[str]:
        return self.lifecycle.detach(plan.uid)

    def nodes(self, plan: ClaimPlan) -> list[container.Node]:
        return container.nodes_of(self.gates.path(plan.uid))
