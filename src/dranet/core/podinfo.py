"""The network devices of this container: one file without dependencies, to be copied into any image with Python.

Reads the device metadata files that DRA drivers mount (KEP-5304) and prints them for people, as JSON, or as `export`
lines for an entrypoint:

    python3 podinfo.py                     # a table
    python3 podinfo.py -o json
    eval "$(python3 podinfo.py -o export)" # DRANET_INTERFACES, DRANET_RDMA_DEVICES, ...

Every driver's files are shown; the variables contain only NICs, which are devices with an interface or an RDMA
device. Everything from a file is quoted for the shell. `podinfo.sh` prints the same lines in images without Python.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from typing import Any

BASE = "/var/run/kubernetes.io/dra-device-attributes"
SUFFIX = "-metadata.json"
KNOWN = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
COLUMNS = ("CLAIM", "REQUEST", "DEVICE", "INTERFACE", "ADDRESSES", "MAC", "RDMA", "GID INDEX", "PCI", "NUMA")


def first_known(text: str) -> dict[str, Any]:
    """The first object of a stream whose version is known; raises ValueError where there is none."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        found, at = decoder.raw_decode(text, at)
        if isinstance(found, dict) and found.get("apiVersion") in KNOWN and found.get("kind") == "DeviceMetadata":
            return found
    raise ValueError("no DeviceMetadata object of a known version")


def devices(base: str = BASE) -> list[dict[str, Any]]:
    """Every device of every metadata file, with the claim and request it belongs to; problems go to stderr."""
    files = (os.path.join(folder, name) for folder, _, names in os.walk(base) for name in names)
    return [device for file in sorted(files) if file.endswith(SUFFIX) for device in _devices_of(file, base)]


def _devices_of(path: str, base: str) -> list[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            document = first_known(file.read())
    except (OSError, ValueError) as error:
        print(f"pod-info: {path}: {error}", file=sys.stderr)
        return []
    claim = os.path.relpath(path, base).split(os.sep)[1]
    return [
        _facts(claim, request.get("name", ""), device)
        for request in document.get("requests") or []
        for device in request.get("devices") or []
    ]


def _facts(claim: str, request: str, device: dict[str, Any]) -> dict[str, Any]:
    network = device.get("networkData") or {}
    attributes = {name.rpartition("/")[2]: _plain(value) for name, value in (device.get("attributes") or {}).items()}
    return {
        "claim": claim,
        "request": request,
        "driver": device.get("driver", ""),
        "device": device.get("name", ""),
        "interface": network.get("interfaceName", ""),
        "addresses": network.get("ips") or [],
        "mac": network.get("hardwareAddress", ""),
        "rdmaDevice": attributes.get("rdmaDevice") or "",
        "rdmaPort": attributes.get("rdmaPort") or 1,
        "gidIndex": attributes.get("gidIndex"),
        "pci": attributes.get("pciBusID") or attributes.get("pciAddress") or "",
        "numaNode": attributes.get("numaNode"),
        "attributes": attributes,
    }


def _plain(value: object) -> object:
    return next(iter(value.values()), None) if isinstance(value, dict) else value


def exports(found: list[dict[str, Any]]) -> list[str]:
    """`export` lines for a shell, lists separated by commas as communication libraries want them."""
    nics = [nic for nic in found if nic["interface"] or nic["rdmaDevice"]]
    rdma = [nic for nic in nics if nic["rdmaDevice"]]
    indexes = {nic["gidIndex"] for nic in rdma}
    values = {
        "DRANET_CARDS": str(len(nics)),
        "DRANET_INTERFACES": ",".join(nic["interface"] for nic in nics if nic["interface"]),
        "DRANET_ADDRESSES": ",".join(a.partition("/")[0] for nic in nics for a in nic["addresses"]),
        "DRANET_RDMA_DEVICES": ",".join(nic["rdmaDevice"] for nic in rdma),
        "DRANET_RDMA_PORTS": ",".join(f"{nic['rdmaDevice']}:{nic['rdmaPort']}" for nic in rdma),
    }
    if len(indexes) == 1 and None not in indexes:
        values["DRANET_GID_INDEX"] = str(indexes.pop())
    return [f"export {name}={shlex.quote(value)}" for name, value in values.items()]


def table(found: list[dict[str, Any]]) -> list[str]:
    """Columns for people."""
    rows = [COLUMNS, *(tuple(map(_cell, _row(device))) for device in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(device: dict[str, Any]) -> tuple[Any, ...]:
    keys = ("claim", "request", "device", "interface", "addresses", "mac", "rdmaDevice", "gidIndex", "pci", "numaNode")
    return tuple(device[key] for key in keys)


def _cell(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return text or "-"


def main(arguments: list[str] | None = None) -> int:
    """Print what there is; 1 where there is nothing."""
    parser = argparse.ArgumentParser(prog="pod-info", description="List the network devices of this container.")
    parser.add_argument("-o", "--output", choices=["table", "json", "export"], default="table")
    parser.add_argument("--base", default=BASE, help="where metadata files are mounted (default %(default)s)")
    options = parser.parse_args(arguments)
    found = devices(options.base)
    if not found:
        print(
            f"pod-info: no device metadata below {options.base}; name the claim in resources.claims of the container",
            file=sys.stderr,
        )
        return 1
    if options.output == "json":
        print(json.dumps({"devices": found}, indent=2))
    else:
        print("\n".join(exports(found) if options.output == "export" else table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
