"""Settings for communication libraries, from the devices that a pod has. Opt-in, for each library by name.

Each library has one function that sets its variables and records why it leaves a variable unset. Names of RDMA devices
are exact, because NCCL takes `mlx5_1` for `mlx5_10` as well. A container's own settings win: NCCL's settings go into
/etc/nccl.conf, which everything else overrides; the other libraries have no such file and get variables.

A container may name several claims of its pod, and the runtime lets the last CDI spec win where two of them set the
same file or variable. So every spec of the pod carries the same settings, for all devices of the pod whose
NetworkConfig names the library.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from dranet.core.attributes import PCI_BUS_ID
from dranet.core.logs import get_logger
from dranet.linux.sysfs import Sysfs
from dranet.node.edits.container_edits import ContainerEdits, Mount, write_file
from dranet.node.edits.pod_device import EFA, ROCE, PodDevice
from dranet.node.records.plan import ClaimPlan

log = get_logger(__name__)

NCCL_CONF, MPI_CONF = "/etc/nccl.conf", "/root/.openmpi/mca-params.conf"
NCCL_TOPOLOGY = "/etc/dranet/nccl-topology.xml"

_NCCL, _MPI = "NCCL_", "OMPI_MCA_"
_LINE = 1023
"""The longest line that NCCL reads from its file."""


class Settings(msgspec.Struct):
    """Variables by name, and the variables that stay unset with the reason."""

    variables: dict[str, str] = msgspec.field(default_factory=dict)
    skipped: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of containers: all except those that NCCL reads from its file."""
        return {name: value for name, value in self.variables.items() if not name.startswith(_NCCL)}

    def skip(self, names: Collection[str]) -> None:
        """Leave variables unset that the pod's containers set; they override NCCL's file anyway."""
        for name in set(names) & set(self.environment):
            del self.variables[name]
            self.skipped[name] = "a container of the pod sets it"


def settings(devices: Mapping[str, Sequence[PodDevice]], *, primary: str = "", topology: str = "") -> Settings:
    """The settings for a pod, from the devices of each library.

    ``primary`` is the interface of the pod network, or empty. ``topology`` is the path of NCCL's topology file in
    containers, or empty.
    """
    found = Settings()
    for library, own in devices.items():
        if own:
            LIBRARIES[library](found, own, primary)
    if devices.get("nccl") and topology:
        found.variables["NCCL_TOPO_FILE"] = topology
    elif devices.get("nccl"):
        found.skipped["NCCL_TOPO_FILE"] = "the claim has no GPU with a known PCI address, or its devices are EFA"
    return found


def nccl_conf(found: Settings) -> bytes:
    """The content of /etc/nccl.conf: one NAME=value per line, without quoting."""
    lines = [f"{name}={value}" for name, value in found.variables.items() if name.startswith(_NCCL)]
    reasons = [f"# {name}: {why}"[:_LINE] for name, why in found.skipped.items() if name.startswith(_NCCL)]
    return "".join(f"{line}\n" for line in [*reasons, *lines]).encode()


def mpi_conf(found: Settings) -> bytes:
    """Open MPI's parameter file: ssh starts its ranks often, and then a container's variables are missing."""
    own = {name.removeprefix(_MPI): value for name, value in found.variables.items() if name.startswith(_MPI)}
    return "".join(f"{name} = {value}\n" for name, value in own.items()).encode()


def _interfaces(devices: Sequence[PodDevice]) -> list[str]:
    return [device.interface for device in devices if device.interface and device.addresses]


def _no_address(found: Settings, *names: str) -> None:
    found.skipped |= dict.fromkeys(names, "no device has an interface with a known address")


def _nccl(found: Settings, devices: Sequence[PodDevice], primary: str) -> None:
    verbs = [device for device in devices if device.rdma_device and device.fabric != EFA]
    names = _interfaces(devices)
    if verbs:
        found.variables["NCCL_IB_HCA"] = "=" + ",".join(device.verbs_name for device in verbs)
    if verbs and primary:
        # Without it NCCL takes the first interface it finds for its bootstrap, which may be on another network.
        found.variables["NCCL_SOCKET_IFNAME"] = f"={primary}"
    elif verbs:
        found.skipped["NCCL_SOCKET_IFNAME"] = "the pod has no interface except its devices"
    elif names:
        found.variables["NCCL_SOCKET_IFNAME"] = "=" + ",".join(names)
    else:
        _no_address(found, "NCCL_SOCKET_IFNAME")
    _nccl_gids(found, [device for device in verbs if device.fabric == ROCE])


def _nccl_gids(found: Settings, roce: Sequence[PodDevice]) -> None:
    if not roce:
        return
    missing = [device.rdma_device for device in roce if device.gid is None]
    indexes = {device.gid.index for device in roce if device.gid}
    if missing:
        found.skipped["NCCL_IB_GID_INDEX"] = f"no RoCE v2 GID of its own address for {', '.join(missing)}"
    elif len(indexes) == 1:
        found.variables["NCCL_IB_GID_INDEX"] = str(indexes.pop())
    else:
        each = ", ".join(f"{device.rdma_device} {device.gid.index}" for device in roce if device.gid)
        found.skipped["NCCL_IB_GID_INDEX"] = f"the GID indexes of the devices differ: {each}"
    if all(device.gid and device.gid.address.version == 6 for device in roce):
        found.variables["NCCL_IB_ADDR_FAMILY"] = "AF_INET6"


def _ucx(found: Settings, devices: Sequence[PodDevice], primary: str) -> None:
    verbs = [device.verbs_name for device in devices if device.rdma_device and device.fabric != EFA]
    # The list excludes everything it does not name: with RDMA devices alone, TCP would be gone.
    names = [*verbs, *_interfaces(devices)]
    if names:
        found.variables["UCX_NET_DEVICES"] = ",".join(names)
    else:
        _no_address(found, "UCX_NET_DEVICES")
    indexes = {device.gid.index for device in devices if device.gid}
    if len(indexes) == 1 and all(device.gid for device in devices if device.fabric == ROCE):
        found.variables["UCX_IB_GID_INDEX"] = str(indexes.pop())
    elif indexes:
        found.skipped["UCX_IB_GID_INDEX"] = "the GID indexes of the devices differ; UCX chooses for each"


def _mpi(found: Settings, devices: Sequence[PodDevice], primary: str) -> None:
    names = _interfaces(devices)
    if names:
        found.variables["OMPI_MCA_btl_tcp_if_include"] = ",".join(names)
    else:
        _no_address(found, "OMPI_MCA_btl_tcp_if_include")
    found.skipped["OMPI_MCA_oob_tcp_if_include"] = "the launcher connects over the pod network"


def _gloo(found: Settings, devices: Sequence[PodDevice], primary: str) -> None:
    names = _interfaces(devices)
    if names:
        found.variables["GLOO_SOCKET_IFNAME"] = ",".join(names)
        found.variables["TP_SOCKET_IFNAME"] = names[0]
    else:
        _no_address(found, "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def _efa(found: Settings, devices: Sequence[PodDevice], primary: str) -> None:
    if any(device.fabric == EFA for device in devices):
        found.variables["FI_PROVIDER"] = "efa"
    else:
        found.skipped["FI_PROVIDER"] = "no device is an EFA"


LIBRARIES: dict[str, Callable[[Settings, Sequence[PodDevice], str], None]] = {
    "nccl": _nccl,
    "ucx": _ucx,
    "mpi": _mpi,
    "gloo": _gloo,
    "efa": _efa,
}


class LibrarySettingsWriter:
    """Writes the settings below a folder that the runtime sees under the same path."""

    def __init__(self, folder: Path, sysfs_root: str) -> None:
        self._folder = folder
        self._sysfs_root = sysfs_root

    def write(
        self, plans: Sequence[ClaimPlan], devices: Sequence[tuple[Sequence[str], PodDevice]], primary: str
    ) -> dict[str, ContainerEdits]:
        """The edits by claim UID, for the claims that request settings. Each device comes with its libraries."""
        by_library = {library: [device for names, device in devices if library in names] for library in LIBRARIES}
        gpus = {address for plan in plans for address in plan.gpus}
        topology = self._topology(by_library["nccl"], gpus)
        found = settings(by_library, primary=primary, topology=NCCL_TOPOLOGY if topology else "")
        found.skip({name for plan in plans for name in plan.own_variables})
        for name, why in found.skipped.items():
            log.info("Left a library setting unset for containers", setting=name, reason=why)
        files = {NCCL_CONF: nccl_conf(found), MPI_CONF: mpi_conf(found), NCCL_TOPOLOGY: topology}
        return {plan.uid: self._edits(plan, files, found) for plan in plans if plan.sets_environment}

    def _edits(self, plan: ClaimPlan, files: Mapping[str, bytes], found: Settings) -> ContainerEdits:
        mounts = []
        for container, content in files.items():
            if content:
                path = self._folder / plan.uid / Path(container).name
                write_file(path, content)
                mounts.append(Mount(str(path), container))
        return ContainerEdits(tuple(mounts), found.environment)

    def _topology(self, devices: Sequence[PodDevice], gpus: set[str]) -> bytes:
        """Empty without GPUs, to which the file shows the distance, and for EFA, whose plugin has its own file."""
        if not gpus or not devices or any(device.fabric == EFA for device in devices):
            return b""
        from dranet.node.edits.nccl_topology import topology_file  # lazily: the XML library takes 0.5 MB of memory

        names = {_pci_address(device): device.rdma_device or device.interface for device in devices}
        nets = {**dict.fromkeys(gpus, ""), **{address: name for address, name in names.items() if address}}
        content, missing = topology_file(Sysfs(self._sysfs_root), nets)
        for address in missing:
            log.warning("Left a PCI function out of NCCL's topology file: not found in sysfs", pci_address=address)
        return content


def _pci_address(device: PodDevice) -> str:
    return str((device.attributes.get(PCI_BUS_ID) or {}).get("string", ""))
