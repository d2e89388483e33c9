"""A provider of device attributes, configuration and profiles, as a user would write one. It runs in a pod of its own.

It stands for the two webhooks of the reference's scenarios: one that answers from a table (`python-profile`), and one
that gives addresses out of a range and takes them back (`whereabouts-profile`). It needs nothing but Python.
"""

import ipaddress
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

RANGE = ipaddress.ip_network("192.168.100.0/24")
LEASES: dict[str, str] = {}


def answer(path: str, body: dict[str, Any]) -> dict[str, Any]:
    device = body.get("device", body)
    if path == "/GetDeviceAttributes":
        return {"dra.net/webhook_attr": {"string": "python"}} if device["name"] == "dummy1" else {}
    if path == "/GetDeviceConfig":
        return {"interface": {"mtu": 1450}} if device["name"] == "dummy1" else {}
    if path == "/GetProfileConfig":
        return {"interface": {"addresses": [address_for(body["claim_uid"], body["config"]["profile"])]}}
    if path == "/ReleaseProfileConfig":
        LEASES.pop(body["claim_uid"], None)
        return {}
    raise KeyError(path)


def address_for(claim: str, profile: str) -> str:
    if profile == "python-profile":
        return "10.200.200.200/24"
    free = (str(host) for host in RANGE.hosts() if str(host) not in LEASES.values())
    return f"{LEASES.setdefault(claim, next(free))}/{RANGE.prefixlen}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found: dict[str, dict[str, Any]] = {
            "/health": {"cloudProvider": True, "profileProvider": True},
            "/leases": LEASES,
        }
        self.reply(found[self.path])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.reply(answer(self.path, body))

    def reply(self, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
