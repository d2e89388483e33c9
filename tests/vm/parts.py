"""The driver's own parts on this machine, without the daemon around them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dranet.driver.claims.allotment import Allotted
from dranet.driver.claims.planner import Planner, Wish
from dranet.driver.moving.cards import Attached, Cards
from dranet.driver.moving.receipt import Receipts
from dranet.driver.namespaces import Host
from dranet.driver.records.plan import ClaimPlan, PodRef
from dranet.driver.store import Store
from dranet.inventory import Inventory, LiveKernel, NodeDevice, Options, Snapshot
from dranet.inventory.pciids import PciIds
from dranet.kernel.sysfs import Sysfs
from dranet.model.names import pci_device_name
from dranet.model.netconfig_parse import parse
from dranet.model.pci import PciAddress
from tests.vm import container
from tests.vm.world import NamedNamespace

PATIENCE_SECONDS = 30
"""An attach has 1.5 s on a real machine; this one is emulated and twenty times slower."""
_PCI_IDS = PciIds()


def look(in_use: dict[str, NodeDevice] | None = None, offer: tuple[str, ...] = ()) -> Snapshot:
    with LiveKernel() as kernel:
        return Inventory(Options(offer_interfaces=offer), kernel, pci_ids=_PCI_IDS).look(lambda: in_use or {})


def name_at(address: str) -> str:
    """The published name of the card at a PCI address."""
    pci = PciAddress.find(address)
    assert pci is not None
    return pci_device_name(pci)


def found_at(address: str, snapshot: Snapshot | None = None) -> NodeDevice:
    device = (snapshot or look()).find(name_at(address))
    assert device is not None, f"nothing offered at {address}"
    return device


@dataclass
class Driver:
    """Prepares claims and carries them out."""

    host: Host
    store: Store
    cards: Cards
    receipts: Receipts

    def prepare(
        self, name: str, claim: str = "claim", config: dict[str, Any] | None = None, *, admin: bool = False
    ) -> ClaimPlan:
        """A stored plan that gives the device to the pod of the claim's name."""
        return self.prepare_all({name: config}, claim, admin=admin)

    def prepare_all(
        self, configs: Mapping[str, dict[str, Any] | None], claim: str = "claim", *, admin: bool = False
    ) -> ClaimPlan:
        """A stored plan that gives these devices to the pod of the claim's name, each as it is configured."""
        snapshot = look()
        wishes = []
        for name, config in configs.items():
            found = snapshot.find(name)
            assert found is not None, f"{name} is not offered: {snapshot.skipped}"
            wishes.append(Wish(Allotted(f"nic-{name}", "node", name, None, admin), found, parse(config)))
        devices = tuple(Planner(self.host, Sysfs()).plan(wishes))
        user = PodRef(uid=f"pod-{claim}", name=claim, namespace="default")
        boot = self.host.boot
        plan = ClaimPlan(uid=claim, namespace="default", name=claim, pod=user, devices=devices, boot=boot)
        self.store.put(plan)
        self.cards.ready(plan)
        return plan

    def attach(self, plan: ClaimPlan, pod: NamedNamespace) -> list[Attached]:
        return self.cards.attach(plan.pod.uid, f"/run/netns/{pod.name}", seconds=PATIENCE_SECONDS)

    def bring_home(self, plan: ClaimPlan) -> list[str]:
        return self.cards.bring_home(plan.uid)

    def nodes(self, plan: ClaimPlan) -> list[container.Node]:
        return container.nodes_of(self.receipts.path(plan.uid))
