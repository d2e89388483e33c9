"""Pods of a check without a cluster: network namespaces with NICs on rails, and `dranet check pair` in each.

A pod has `eth0` on a shared network and one NIC for each rail. Every rail is a bridge in a separate namespace. tbf
limits both ends of every veth pair, so that rates do not depend on the load of the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from dranet.linux.namespaces import Namespace

RATE = "200mbit"
NO_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


class Pod:
    """A namespace with its metadata files."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number, self.node, self.folder = number, f"n{number + 1}", folder / f"pod{number}"
        self.namespace = Namespace.create()
        self.address = f"10.99.0.{number + 1}"
        self.nics: dict[str, str] = {}

    def write_metadata(self) -> None:
        """Write the file that the driver mounts into a container."""
        devices = [
            {
                "driver": "dra.net",
                "pool": self.node,
                "name": name,
                "attributes": {},
                "networkData": {"interfaceName": name, "ips": [f"{address}/24"]},
            }
            for name, address in self.nics.items()
        ]
        metadata = {
            "apiVersion": "metadata.resource.k8s.io/v1beta1",
            "kind": "DeviceMetadata",
            "requests": [{"name": "nics", "devices": devices}],
        }
        file = self.folder / "resourceclaims/job/nics/dra.net-metadata.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(metadata))


class Fabric:
    """Pods, and bridges for their rails."""

    def __init__(self, pods: int, rails: int, folder: Path, *, mtu: int = 1500) -> None:
        self._switches = Namespace.create()
        self.pods = [Pod(number, folder) for number in range(pods)]
        self._running: list[subprocess.Popen[str]] = []
        inside(self._switches, "ip link set lo up")
        self._bridge("pods", 1500)
        for rail in range(rails):
            self._bridge(f"rail{rail}", mtu)
        for pod in self.pods:
            inside(pod.namespace, "ip link set lo up")
            self._plug(pod, "pods", "eth0", pod.address, 1500)
            for rail in range(rails):
                pod.nics[f"gpu{rail}rdma0"] = f"10.{rail}.0.{pod.number + 1}"
                self._plug(pod, f"rail{rail}", f"gpu{rail}rdma0", f"10.{rail}.0.{pod.number + 1}", mtu)
                self.limit(pod, f"gpu{rail}rdma0", RATE)
            pod.write_metadata()

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for pod in self.pods:
            pod.namespace.close()
        self._switches.close()

    def limit(self, pod: Pod, nic: str, rate: str, *, both: bool = True) -> None:
        """Limit what the NIC sends, and with `both` what the switch sends to it."""
        shape = f"root tbf rate {rate} burst 32k latency 20ms"
        inside(pod.namespace, f"tc qdisc replace dev {nic} {shape}")
        if both:
            inside(self._switches, f"tc qdisc replace dev {self.port(pod, nic)} {shape}")

    def on_switch(self, command: str) -> None:
        inside(self._switches, command)

    def port(self, pod: Pod, nic: str) -> str:
        return f"p{pod.number}-{nic[:10]}"

    def start(self, pod: Pod, *more: str, members: int | None = None) -> subprocess.Popen[str]:
        """Start the command in the pod without capabilities, like the containers of the Job."""
        arguments = [
            "check",
            "pair",
            "-n",
            str(members or len(self.pods)),
            "--rank",
            str(pod.number),
            "--node",
            pod.node,
        ]
        arguments += ["--first", self.pods[0].address, "--base", str(pod.folder), *more]
        command = [*entering(pod.namespace), *NO_CAPABILITIES, sys.executable, "-m", "dranet", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._running.append(process)
        return process

    def _bridge(self, name: str, mtu: int) -> None:
        inside(self._switches, f"ip link add {name} type bridge")
        inside(self._switches, f"ip link set {name} mtu {mtu} up")

    def _plug(self, pod: Pod, bridge: str, nic: str, address: str, mtu: int) -> None:
        port, at = self.port(pod, nic), f"/proc/{os.getpid()}/fd/{pod.namespace.fd}"
        inside(
            self._switches,
            f"ip link add {port} mtu {mtu} master {bridge} type veth peer name {nic} mtu {mtu} netns {at}",
        )
        inside(self._switches, f"ip link set {port} up")
        inside(pod.namespace, f"ip addr add {address}/24 dev {nic}")
        inside(pod.namespace, f"ip link set {nic} up")


def entering(namespace: Namespace) -> list[str]:
    return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{namespace.fd}"]


def inside(namespace: Namespace, command: str) -> str:
    done = subprocess.run([*entering(namespace), *command.split()], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
