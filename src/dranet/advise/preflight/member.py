"""One pod of a check: it finds its NICs, connects to the coordinator and runs the tasks that it receives."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dranet.advise.preflight.connection import Connection, ConnectionLost
from dranet.advise.preflight.model import Member, Nic, NicPair, Result, Task, TaskResults
from dranet.advise.preflight.probes import (
    Responder,
    measure_rdma,
    probe,
    reach,
    send_all,
    send_each,
    start_rdma_server,
)
from dranet.core import podinfo
from dranet.core.errors import DranetError, NotFound
from dranet.linux.ethtool import Ethtool
from dranet.linux.links import list_links
from dranet.linux.netlink import NetlinkSocket

_IDLE_TIMEOUT = 600.0
"""Longest time without a task, while other pods measure."""


def nics_of_pod(base: str = podinfo.BASE) -> tuple[list[Nic], list[str]]:
    """NICs with an address, from the pod's metadata files and its kernel; and notes about those without."""
    devices = [device for device in podinfo.devices(base) if device["interface"] or device["rdmaDevice"]]
    if not devices:
        raise NotFound(f"no NIC in the metadata files under {base}; name the claim in the container's resources.claims")
    links = _link_settings()
    nics = [_nic(device, *links.get(device["interface"], (1500, None))) for device in devices if _has_address(device)]
    without = [device["device"] for device in devices if not _has_address(device)]
    return nics, [f"{device} is not measured: it has no interface with an address" for device in without]


def _has_address(device: dict[str, Any]) -> bool:
    return bool(device["interface"] and device["addresses"])


def _link_settings() -> dict[str, tuple[int, int | None]]:
    """MTU and speed in Mbit/s of every link."""
    with NetlinkSocket() as route, Ethtool() as ethtool:
        speeds = ethtool.speeds()
        return {link.name: (link.mtu, speeds.get(link.index)) for link in list_links(route)}


def _nic(device: dict[str, Any], mtu: int, speed: int | None) -> Nic:
    return Nic(
        name=device["interface"],
        address=device["addresses"][0].partition("/")[0],
        mtu=mtu,
        rail=str(device["attributes"].get("rail") or ""),
        gbits=speed / 1000 if speed else None,
        rdma=device["rdmaDevice"],
        rdma_port=device["rdmaPort"],
        gid=device["gidIndex"],
    )


def run_member(me: Member, coordinator: str, port: int, timeout: float) -> None:
    """Run tasks until the coordinator reports that the check is complete."""
    with contextlib.closing(Responder(me.nics, port + 1)) as responder:
        with (
            contextlib.closing(Connection(_connect(coordinator, port, timeout))) as connection,
            contextlib.closing(_TaskRunner(port, responder)) as runner,
        ):
            try:
                connection.send(me)
                while (task := connection.receive(Task, _IDLE_TIMEOUT)).action != "done":
                    connection.send(TaskResults(tuple(runner.run(task))))
            except ConnectionLost as error:
                raise DranetError(
                    f"connection to the coordinator ({coordinator}) lost: {error}; see the log of the pod of rank 0"
                ) from error


def _connect(coordinator: str, port: int, timeout: float) -> socket.socket:
    """Retry: the pod of rank 0 may not run yet, and its DNS name may not exist yet."""
    end = time.monotonic() + timeout
    while True:
        try:
            return socket.create_connection((coordinator, port), timeout=5)
        except OSError as error:
            if time.monotonic() > end:
                raise DranetError(
                    f"cannot connect to the coordinator ({coordinator} port {port}) within {timeout:.0f} s: {error}; "
                    "check that the pod of rank 0 runs"
                ) from error
            time.sleep(0.2)


class _TaskRunner:
    def __init__(self, port: int, responder: Responder) -> None:
        self._echo_port, self._rdma_port, self._unusable = port + 1, port + 2, responder.errors
        self._servers: list[subprocess.Popen[str]] = []
        self._actions: dict[str, Callable[[Task], list[Result]]] = {
            "reach": self._reach,
            "probe": lambda task: [probe(pair, self._echo_port) for pair in task.pairs],
            "send": lambda task: send_each(task, self._echo_port),
            "send-all": lambda task: send_all(task, self._echo_port),
            "rdma-serve": self._serve_rdma,
            "rdma-send": lambda task: [measure_rdma(pair, self._rdma_port) for pair in task.pairs],
        }

    def run(self, task: Task) -> list[Result]:
        if task.action not in self._actions:
            raise DranetError(f"unknown task {task.action!r}; use the same image in all pods")
        return self._actions[task.action](task)

    def _reach(self, task: Task) -> list[Result]:
        # In parallel, so that NICs that do not reply cost one timeout together.
        with ThreadPoolExecutor(max(1, len(task.pairs))) as pool:
            return list(pool.map(self._reach_one, task.pairs))

    def _reach_one(self, pair: NicPair) -> Result:
        if error := self._unusable.get(pair.local.name):
            return Result(False, f"the local NIC cannot be used: {error}")
        return reach(pair, self._echo_port)

    def _serve_rdma(self, task: Task) -> list[Result]:
        self.close()
        self._servers = [start_rdma_server(pair, self._rdma_port) for pair in task.pairs]
        time.sleep(0.5)  # ib_write_bw does not report when it listens
        return [Result(server.poll() is None) for server in self._servers]

    def close(self) -> None:
        """Kill servers whose client never came; they would wait forever."""
        for server in self._servers:
            server.kill()
            server.wait()
