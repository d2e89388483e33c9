"""Which fabric a card is plugged into. Cards of different fabrics never reach each other, and some behave differently.

infiniband   InfiniBand
roce         RDMA over Ethernet
gce-roce     the same on Google Cloud, through its own plugin (gIB)
tcpxo        Google Cloud's GPUDirect-TCPXO: no RDMA device, but GPU memory is read directly
efa          AWS Elastic Fabric Adapter
ethernet     a card without RDMA
"""

from __future__ import annotations

from dranet.model import attributes as attr
from dranet.model.device import Device
from dranet.topology.shape import Nic, Shape

_TCPXO = ("a3-megagpu-8g",)


def fabric_of_shape(shape: Shape, nic: Nic) -> str:
    """Of a card of a known machine."""
    kind = shape.nic_kind(nic)
    machine = str(shape.cloud_attributes.get("gce.dra.net/machineType", ""))
    return _fabric(kind.link_layer, kind.kernel_driver == "efa", machine, bool(nic.rdma))


def fabric_of_device(device: Device) -> str:
    """Of a card in a ResourceSlice; empty where it says nothing of its link."""
    values = device.attributes
    layer = "infiniband" if values.get(attr.IB_ONLY) is True else str(values.get(attr.ENCAPSULATION, ""))
    is_efa = "Elastic Fabric" in str(values.get(attr.PCI_DEVICE, ""))
    if not layer and not is_efa:
        return ""
    machine = values.get("gce.dra.net/machineType") or values.get("gce.dra.net/networkName") or ""
    return _fabric(layer, is_efa, str(machine), values.get(attr.RDMA) is True)


def _fabric(layer: str, is_efa: bool, google_machine: str, rdma: bool) -> str:
    if is_efa:
        return "efa"
    if layer == "infiniband":
        return "infiniband"
    if google_machine:
        return "gce-roce" if rdma else "tcpxo" if google_machine in _TCPXO else "ethernet"
    return "roce" if rdma else "ethernet"
