"""A fake gcloud: its commands for networks, clusters and node pools send requests to the APIs.

It knows no other commands. The addresses of the APIs come from the variables of gcloud. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any


def parser() -> argparse.ArgumentParser:
    """Exactly the commands and flags that gcloud has, of those we use."""
    root = argparse.ArgumentParser(prog="gcloud", allow_abbrev=False)
    groups = root.add_subparsers(required=True)

    def command(
        words: Sequence[str], handler: Callable[[argparse.Namespace], None], *flags: str, **typed: dict[str, Any]
    ) -> None:
        at, here = known, groups
        for word in words[:-1]:
            if word not in at:
                added = here.add_parser(word, allow_abbrev=False)
                at[word] = ({}, added.add_subparsers(required=True))
            at, here = at[word]
        made = here.add_parser(words[-1], allow_abbrev=False)
        made.add_argument("name")
        made.add_argument("--project", required=True)
        for flag in flags:
            made.add_argument(flag, **typed.get(flag, {}))
        made.set_defaults(handler=handler)

    known: dict[str, Any] = {}
    switch = {"action": "store_true"}
    many: dict[str, Any] = {"action": "append", "default": []}
    command(["compute", "networks", "create"], network, "--subnet-mode", "--mtu", "--network-profile")
    command(["compute", "networks", "subnets", "create"], subnet, "--region", "--network", "--range")
    command(["compute", "firewall-rules", "create"], firewall, "--network", "--action", "--rules", "--source-ranges")
    command(
        ["container", "clusters", "create"],
        cluster,
        "--zone",
        "--cluster-version",
        "--enable-dataplane-v2",
        "--enable-multi-networking",
        **{"--enable-dataplane-v2": switch, "--enable-multi-networking": switch},
    )
    command(["container", "clusters", "get-credentials"], lambda given: None, "--zone")
    command(
        ["container", "node-pools", "create"],
        node_pool,
        "--zone",
        "--cluster",
        "--machine-type",
        "--accelerator",
        "--num-nodes",
        "--additional-node-network",
        **{"--additional-node-network": many},
    )
    return root


def network(given: argparse.Namespace) -> None:
    body: dict[str, Any] = {"name": given.name, "autoCreateSubnetworks": given.subnet_mode != "custom"}
    if given.mtu:
        body["mtu"] = int(given.mtu)
    if given.network_profile:
        body["networkProfile"] = given.network_profile
    post("COMPUTE", f"compute/v1/projects/{given.project}/global/networks", body)


def subnet(given: argparse.Namespace) -> None:
    body = {"name": given.name, "network": given.network, "ipCidrRange": given.range}
    post("COMPUTE", f"compute/v1/projects/{given.project}/regions/{given.region}/subnetworks", body)


def firewall(given: argparse.Namespace) -> None:
    allowed = [{"IPProtocol": rule} for rule in given.rules.split(",")] if given.action == "ALLOW" else []
    body: dict[str, Any] = {"name": given.name, "network": given.network, "allowed": allowed}
    body["sourceRanges"] = given.source_ranges.split(",")
    post("COMPUTE", f"compute/v1/projects/{given.project}/global/firewalls", body)


def cluster(given: argparse.Namespace) -> None:
    config = {
        "datapathProvider": "ADVANCED_DATAPATH" if given.enable_dataplane_v2 else "LEGACY_DATAPATH",
        "enableMultiNetworking": given.enable_multi_networking,
    }
    body = {"name": given.name, "initialClusterVersion": given.cluster_version, "networkConfig": config}
    post("CONTAINER", f"v1/projects/{given.project}/locations/{given.zone}/clusters", {"cluster": body})


def node_pool(given: argparse.Namespace) -> None:
    more = [dict(part.split("=", 1) for part in one.split(",")) for one in given.additional_node_network]
    accelerator = dict(part.split("=", 1) for part in given.accelerator.split(","))
    body = {
        "name": given.name,
        "initialNodeCount": int(given.num_nodes),
        "config": {"machineType": given.machine_type, "accelerators": [accelerator]},
        "networkConfig": {"additionalNodeNetworkConfigs": more},
    }
    path = f"v1/projects/{given.project}/locations/{given.zone}/clusters/{given.cluster}/nodePools"
    post("CONTAINER", path, {"nodePool": body})


def post(api: str, path: str, body: dict[str, Any]) -> None:
    address = os.environ[f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{api}"] + path
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(request).close()
    except urllib.error.HTTPError as error:
        with error:
            sys.exit(f"ERROR: (gcloud) {json.load(error)['error']['message']}")


if __name__ == "__main__":
    arguments = parser().parse_args()
    arguments.handler(arguments)
