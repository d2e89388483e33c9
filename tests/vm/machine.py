"""The virtual hardware, written once: QEMU is started from it and the guest's tests compare the inventory with it.

Two NUMA nodes; the chipset's own root and three more PCIe roots; under the last one a PCIe switch with a NIC and a
stand-in GPU behind it, the pair that a topology-aware choice should find. NICs on the same wire hear each other.
Bus numbers follow from the order of the root ports, which is why addresses can be written down here.
"""

from dataclasses import dataclass

from tests.vm.architecture import Architecture

MEMORY_MIB = 768
NUMA_DISTANCE = 20
CONTROL_PORT = "dranet.control"
PROJECT_TAG = "project"


@dataclass(frozen=True)
class Root:
    """A PCIe host bridge with its first bus number."""

    name: str
    bus: int
    numa_node: int


@dataclass(frozen=True)
class Nic:
    """A NIC: where it sits, what the kernel should say of it, and its wire."""

    model: str
    mac: str
    port: str
    address: str
    pcie_root: str
    numa_node: int | None
    wire: int
    driver: str


ROOTS = (Root("pxb0", 0x20, 0), Root("pxb1", 0x60, 1), Root("pxb2", 0xA0, 1))
ROOT_PORTS = (("rp00", 0), ("rp01", 0), ("rp02", 0), ("rp10", 1), ("rp11", 1), ("rp20", 2))

VIRTIO = "virtio-net-pci"
E1000E_NODE0 = Nic("e1000e", "52:54:00:00:00:10", "rp00", "0000:21:00.0", "pci0000:20", 0, 0, "e1000e")
VIRTIO_NODE0 = Nic(VIRTIO, "52:54:00:00:00:11", "rp01", "0000:22:00.0", "pci0000:20", 0, 1, "virtio_net")
VIRTIO_NODE1 = Nic(VIRTIO, "52:54:00:00:00:12", "rp10", "0000:61:00.0", "pci0000:60", 1, 1, "virtio_net")
SRIOV_NODE1 = Nic("igb", "52:54:00:00:00:13", "rp11", "0000:62:00.0", "pci0000:60", 1, 2, "igb")
E1000E_SWITCH = Nic("e1000e", "52:54:00:00:00:14", "ds0", "0000:a3:00.0", "pci0000:a0", 1, 0, "e1000e")
CHIPSET_NIC = Nic("virtio-net-pci", "52:54:00:00:00:15", "pcie.0", "0000:00:12.0", "pci0000:00", None, 2, "virtio_net")

NICS = (E1000E_NODE0, VIRTIO_NODE0, VIRTIO_NODE1, SRIOV_NODE1, E1000E_SWITCH, CHIPSET_NIC)
SRIOV_TOTAL_VFS = 7
STAND_IN_GPU = "0000:a4:00.0"
"""A plain display controller, next to E1000E_SWITCH behind the same switch."""
LINKLESS_FUNCTION = "0000:23:00.0"
"""A function with a driver and no network link; with an RDMA device shown under it, an RDMA-only NIC."""


def arguments(architecture: Architecture) -> list[str]:
    """QEMU's command line for all of the above; the backends (disk, sockets, shares) are the caller's."""
    return [*architecture.board, *_processors(), *_roots(), *_nics()]


def _option(name: str, *values: str) -> list[str]:
    return [name, ",".join(values)]


def _device(*values: str) -> list[str]:
    return _option("-device", *values)


def _processors() -> list[str]:
    words = ["-smp", "2,sockets=2,cores=1", "-m", f"{2 * MEMORY_MIB}M"]
    for node in (0, 1):
        words += _option("-object", "memory-backend-ram", f"id=m{node}", f"size={MEMORY_MIB}M")
        words += _option("-numa", "node", f"nodeid={node}", f"cpus={node}", f"memdev=m{node}")
    return [*words, *_option("-numa", "dist", "src=0", "dst=1", f"val={NUMA_DISTANCE}")]


def _roots() -> list[str]:
    words: list[str] = []
    for root in ROOTS:
        words += _device(
            "pxb-pcie", f"id={root.name}", "bus=pcie.0", f"bus_nr={root.bus}", f"numa_node={root.numa_node}"
        )
    for slot, (port, number) in enumerate(ROOT_PORTS, start=1):
        place = (f"bus={ROOTS[number].name}", f"chassis={slot}", f"slot={slot}")
        words += _device("pcie-root-port", f"id={port}", *place)
    words += _device("x3130-upstream", "id=up", "bus=rp20")
    for slot in (0, 1):
        words += _device("xio3130-downstream", f"id=ds{slot}", "bus=up", "chassis=20", f"slot={slot}")
    return [*words, *_device("bochs-display", "bus=ds1", "romfile="), *_device("virtio-rng-pci", "bus=rp02")]


def _nics() -> list[str]:
    words: list[str] = []
    for number, nic in enumerate(NICS):
        place = [f"bus={nic.port}"] + (["addr=0x12"] if nic is CHIPSET_NIC else [])
        rom = [] if nic.model == "igb" else ["romfile="]
        words += _option("-netdev", "hubport", f"id=net{number}", f"hubid={nic.wire}")
        words += _device(nic.model, f"id=nic{number}", *place, f"netdev=net{number}", f"mac={nic.mac}", *rom)
    return words
