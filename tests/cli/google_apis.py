"""Google's Compute and Container APIs as far as networks, clusters and node pools go: a server on loopback.

It keeps what was made and refuses what Google refuses: names that are taken or malformed, a network that is not there,
ranges that overlap, an RDMA profile that the zone does not have, a node pool whose NICs and networks do not fit.
Every operation is done when it is answered.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Body = dict[str, Any]
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
RDMA_ZONES = ("us-central1-a", "europe-west1-b")
"""Those that offer a profile for RDMA networks here."""
NETWORK_CARDS = {"a3-highgpu-8g": (5, 0), "a3-megagpu-8g": (9, 0), "a3-ultragpu-8g": (2, 8), "a4-highgpu-8g": (2, 8)}
"""By machine type: Ethernet NICs, the first among them, and RDMA NICs."""
CREATE = re.compile(
    r"/(?:compute/)?v1/projects/[^/]+/(?:global|regions/(?P<region>[^/]+)|(?:zones|locations)/(?P<zone>[^/]+))"
    r"/(?:clusters/(?P<cluster>[^/]+)/)?(?P<kind>[a-zA-Z]+)"
)


class Refused(Exception):
    """An answer with a status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Google:
    """A project: what was made, by kind and name; node pools are named within their cluster."""

    def __init__(self) -> None:
        self.made: dict[str, dict[str, Body]] = {
            kind: {} for kind in ("networks", "subnetworks", "firewalls", "clusters", "nodePools")
        }

    def create(self, path: str, body: Body) -> None:
        matched = CREATE.fullmatch(path)
        if matched is None or matched["kind"] not in self.made:
            raise Refused(404, f"no such method: {path}")
        kind = matched["kind"]
        wrapped = {"clusters": "cluster", "nodePools": "nodePool"}.get(kind)
        wanted = {
            **(body[wrapped] if wrapped else body),
            **{key: value for key, value in matched.groupdict().items() if value and key != "kind"},
        }
        if not NAME.fullmatch(wanted["name"]):
            raise Refused(400, f"Invalid value for field 'resource.name': {wanted['name']!r}")
        key = "/".join(wanted[part] for part in ("cluster", "name") if part in wanted)
        if key in self.made[kind]:
            raise Refused(409, f"The resource {wanted['name']!r} already exists")
        _RULES[kind](self, wanted)
        self.made[kind][key] = wanted

    def network(self, wanted: Body) -> Body:
        found = self.made["networks"].get(str(wanted.get("network")))
        if found is None:
            raise Refused(404, f"The resource networks/{wanted.get('network')} was not found")
        return found


def _network(google: Google, wanted: Body) -> None:
    profile = wanted.get("networkProfile", "")
    if wanted.get("autoCreateSubnetworks") is not False:
        raise Refused(400, "a network for NICs has its subnets made by hand")
    if profile and profile not in {f"{zone}-vpc-roce" for zone in RDMA_ZONES}:
        raise Refused(400, f"networkProfiles/{profile} was not found")
    if profile and wanted.get("mtu", 8896) != 8896:
        raise Refused(400, "the network profile requires an MTU of 8896")
    wanted.setdefault("mtu", 8896 if profile else 1460)
    if not 1300 <= wanted["mtu"] <= 8896:
        raise Refused(400, f"Invalid value for field 'resource.mtu': {wanted['mtu']}")


def _subnetwork(google: Google, wanted: Body) -> None:
    google.network(wanted)
    range_ = ipaddress.ip_network(wanted["ipCidrRange"])
    for other in google.made["subnetworks"].values():
        if other["network"] == wanted["network"] and range_.overlaps(ipaddress.ip_network(other["ipCidrRange"])):
            raise Refused(400, f"{range_} conflicts with the range of {other['name']}")


def _firewall(google: Google, wanted: Body) -> None:
    if google.network(wanted).get("networkProfile"):
        raise Refused(400, "the network profile does not allow VPC firewall rules")


def _cluster(google: Google, wanted: Body) -> None:
    network = wanted.get("networkConfig", {})
    if network.get("enableMultiNetworking") and network.get("datapathProvider") != "ADVANCED_DATAPATH":
        raise Refused(400, "multi-networking needs Dataplane V2")


def _node_pool(google: Google, wanted: Body) -> None:
    cluster = google.made["clusters"].get(wanted["cluster"])
    if cluster is None or cluster["zone"] != wanted["zone"]:
        raise Refused(404, f"clusters/{wanted['cluster']} was not found in {wanted['zone']}")
    more = wanted.get("networkConfig", {}).get("additionalNodeNetworkConfigs", [])
    if more and not cluster["networkConfig"].get("enableMultiNetworking"):
        raise Refused(400, f"clusters/{wanted['cluster']} does not have multi-networking")
    ethernet = [one for one in more if not _attached(google, wanted, one).get("networkProfile")]
    if len({one["network"] for one in ethernet}) != len(ethernet):
        raise Refused(400, "two NICs of a node in one network")
    most, most_rdma = NETWORK_CARDS[wanted["config"]["machineType"]]
    if 1 + len(ethernet) > most or len(more) - len(ethernet) > most_rdma:
        raise Refused(400, f"{wanted['config']['machineType']} does not have so many NICs")


def _attached(google: Google, pool: Body, one: Body) -> Body:
    subnetwork = google.made["subnetworks"].get(one["subnetwork"])
    if subnetwork is None or subnetwork["network"] != one["network"]:
        raise Refused(404, f"subnetworks/{one['subnetwork']} was not found in networks/{one['network']}")
    if not pool["zone"].startswith(subnetwork["region"]):
        raise Refused(400, f"subnetworks/{one['subnetwork']} is in another region than {pool['zone']}")
    return google.network(one)


_RULES: dict[str, Callable[[Google, Body], None]] = {
    "networks": _network,
    "subnetworks": _subnetwork,
    "firewalls": _firewall,
    "clusters": _cluster,
    "nodePools": _node_pool,
}


@contextmanager
def serving(google: Google) -> Iterator[str]:
    """The address of both APIs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                google.create(self.path, body)
            except Refused as refused:
                self._answer(refused.status, {"error": {"code": refused.status, "message": str(refused)}})
            else:
                self._answer(200, {"kind": "operation", "status": "DONE"})

        def _answer(self, status: int, answer: Body) -> None:
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
