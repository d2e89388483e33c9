"""A profile provider that takes addresses from any CNI IPAM plugin: host-local, whereabouts, static, a vendor's own.

One file that needs only Python, to use or to change. docs/tasks/profiles.md has the protocol. A
profile is a JSON file with the name people write in claims and the plugin's part of a CNI configuration:

    {"cniVersion": "1.0.0", "name": "rail0", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.20.0.0/24"}]]}}

The driver may ask twice for the same device of the same claim and must hear the same address. Plugins differ there
(host-local refuses the second time), so each answer is kept in a file until it is released. A plugin that was asked and
whose answer was lost, because we died in between, is called with DEL before it is asked again.
"""

import argparse
import hashlib
import http.server
import json
import os
import socketserver
import subprocess
import threading
from pathlib import Path
from typing import Any

PLUGIN_SECONDS = 8
"""Below the driver's timeout of ten seconds."""


class Refused(Exception):
    """An error answer, with its HTTP status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Ipam:
    """The profiles of one folder, served by the plugins of another."""

    def __init__(self, profiles: Path, plugins: Path, state: Path) -> None:
        self.profiles = {str(found["name"]): found for found in map(_profile, sorted(profiles.glob("*.json")))}
        self.plugins = plugins
        self.state = state
        state.mkdir(parents=True, exist_ok=True)
        self._one_at_a_time = threading.Lock()

    def get(self, body: dict[str, Any]) -> dict[str, Any]:
        profile = self._named(body)
        claim, interface = _uid(body), interface_name(_device(body))
        pod = _pod(body, needed=True)
        with self._one_at_a_time:
            kept = self._answer_file(claim, interface)
            if not kept.exists():
                self._run("DEL", profile, claim, interface, pod)
                answer = network_config(self._run("ADD", profile, claim, interface, pod))
                _write(kept, json.dumps(answer))
            found: dict[str, Any] = json.loads(kept.read_text())
            return found

    def release(self, body: dict[str, Any]) -> dict[str, Any]:
        claim, interface = _uid(body), interface_name(_device(body))
        profile = self.profiles.get(_profile_name(body))
        with self._one_at_a_time:
            if profile is not None:  # an unknown profile has nothing to release
                self._run("DEL", profile, claim, interface, _pod(body, needed=False))
            self._answer_file(claim, interface).unlink(missing_ok=True)
        return {}

    def _named(self, body: dict[str, Any]) -> dict[str, Any]:
        name = _profile_name(body)
        if name not in self.profiles:
            known = ", ".join(self.profiles) or "none"
            raise Refused(404, f"no profile is called {name!r}; known are: {known}")
        return self.profiles[name]

    def _answer_file(self, claim: str, interface: str) -> Path:
        return self.state / f"{hashlib.sha256(claim.encode()).hexdigest()[:32]}-{interface}.json"

    def _run(self, command: str, profile: dict[str, Any], claim: str, interface: str, pod: dict[str, str]) -> Any:
        """Call the plugin as a runtime would, but without a namespace: it assigns addresses and moves nothing."""
        plugin = self.plugins / str(profile["ipam"]["type"])
        arguments = {"IgnoreUnknown": "1", **pod, "K8S_POD_INFRA_CONTAINER_ID": claim}
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": claim,
            "CNI_NETNS": "/dev/null",
            "CNI_IFNAME": interface,
            "CNI_PATH": str(self.plugins),
            "CNI_ARGS": ";".join(f"{key}={value}" for key, value in arguments.items()),
        }
        try:
            done = subprocess.run(
                [plugin],
                input=json.dumps(profile).encode(),
                env=environment,
                capture_output=True,
                timeout=PLUGIN_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Refused(500, f"{plugin}: {error}") from error
        if done.returncode:
            raise Refused(500, f"{plugin} {command}: {_complaint(done.stdout) or done.stderr.decode(errors='replace')}")
        return json.loads(done.stdout) if done.stdout.strip() else {}


def network_config(result: dict[str, Any]) -> dict[str, Any]:
    """Convert a plugin's result for the driver. A route without a gateway uses the gateway of the address."""
    addresses = result.get("ips") or []
    gateways = {":" in ip["address"]: ip["gateway"] for ip in reversed(addresses) if ip.get("gateway")}
    routes = []
    for route in result.get("routes") or []:
        gateway = route.get("gw") or gateways.get(":" in route["dst"])
        way = {"gateway": gateway} if gateway else {"scope": 253}
        routes.append({"destination": route["dst"], **way})
    found: dict[str, Any] = {"interface": {"addresses": [ip["address"] for ip in addresses]}}
    return {**found, "routes": routes} if routes else found


def interface_name(device: str) -> str:
    """The interface name for the plugin: at most 15 characters, and devices may have longer names."""
    if len(device) <= 15 and not set(device) & set("/: "):
        return device
    return "dra" + hashlib.sha256(device.encode()).hexdigest()[:12]


def _profile(file: Path) -> dict[str, Any]:
    found = json.loads(file.read_text())
    if not isinstance(found, dict) or not found.get("name") or not (found.get("ipam") or {}).get("type"):
        raise SystemExit(f"{file}: a profile has a name and an ipam with a type")
    return found


def _profile_name(body: dict[str, Any]) -> str:
    return str((body.get("config") or {}).get("profile") or "")


def _device(body: dict[str, Any]) -> str:
    name = (body.get("device") or {}).get("name")
    if not name:
        raise Refused(400, "the request names no device")
    return str(name)


def _uid(body: dict[str, Any]) -> str:
    """Newer drivers send the claim, older ones its UID, this one both."""
    uid = body.get("claim_uid") or ((body.get("claim") or {}).get("metadata") or {}).get("uid")
    if not uid:
        raise Refused(400, "the request names no claim: neither claim.metadata.uid nor claim_uid")
    return str(uid)


def _pod(body: dict[str, Any], *, needed: bool) -> dict[str, str]:
    """The pod that gets the address, for plugins that record it. The claim must be reserved for exactly one."""
    claim = body.get("claim") or {}
    users = (claim.get("status") or {}).get("reservedFor") or []
    pods = [user for user in users if user.get("resource") == "pods" and not user.get("apiGroup")]
    if len(users) != 1 or len(pods) != 1:
        if needed:
            raise Refused(400, f"the claim must be reserved for exactly one pod, not for {len(users)} users")
        return {}
    namespace = str((claim.get("metadata") or {}).get("namespace", ""))
    return {"K8S_POD_NAMESPACE": namespace, "K8S_POD_NAME": pods[0]["name"], "K8S_POD_UID": pods[0]["uid"]}


def _complaint(output: bytes) -> str:
    try:
        error = json.loads(output)
    except ValueError:
        return output.decode(errors="replace")
    return f"{error.get('msg', '')} {error.get('details', '')}".strip()


def _write(file: Path, text: str) -> None:
    """Replace the file atomically."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


def handler(ipam: Ipam) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/health"
            self._reply(200 if known else 404, {"cloudProvider": False, "profileProvider": True} if known else {})

        def do_POST(self) -> None:
            calls = {"/GetProfileConfig": ipam.get, "/ReleaseProfileConfig": ipam.release}
            if self.path not in calls:
                return self._reply(404, f"nothing is at {self.path}")
            try:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                if not isinstance(body, dict):
                    raise Refused(400, "the request is no object")
                self._reply(200, calls[self.path](body))
            except Refused as refused:
                self._reply(refused.status, str(refused))
            except ValueError as error:
                self._reply(400, f"the request is not JSON: {error}")

        def _reply(self, status: int, content: Any) -> None:
            data = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def address_string(self) -> str:
            return "driver"  # a Unix socket has no peer address

    return Handler


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def server(listen: str, ipam: Ipam) -> socketserver.BaseServer:
    """Listen on HOST:PORT or on unix:///path."""
    if listen.startswith("unix://"):
        path = Path(listen.removeprefix("unix://"))
        path.unlink(missing_ok=True)
        return UnixServer(str(path), handler(ipam))
    host, _, port = listen.rpartition(":")
    return http.server.ThreadingHTTPServer((host, int(port)), handler(ipam))


def main() -> None:
    parser = argparse.ArgumentParser(description="A profile provider for DRANET on top of CNI IPAM plugins.")
    parser.add_argument("--listen", default="127.0.0.1:8081", help="HOST:PORT or unix:///path")
    parser.add_argument("--profiles", type=Path, default=Path("/etc/dranet/ipam"), help="folder of *.json")
    parser.add_argument("--plugins", type=Path, default=Path("/opt/cni/bin"), help="folder of the IPAM plugins")
    parser.add_argument("--state", type=Path, default=Path("/var/lib/dranet-ipam"), help="folder for given addresses")
    args = parser.parse_args()
    ipam = Ipam(args.profiles, args.plugins, args.state)
    print(f"profiles: {', '.join(ipam.profiles) or 'none'}; listening on {args.listen}", flush=True)
    server(args.listen, ipam).serve_forever()


if __name__ == "__main__":
    main()
