"""Probes between NICs, the control connection, the output of perftest and the Job."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from dranet.advise.preflight.connection import Connection, ConnectionLost
from dranet.advise.preflight.model import Nic, NicPair, Task, TaskResults
from dranet.advise.preflight.probes import PROBES, Responder, has_perftest, measure_rdma, probe, reach, send_each
from dranet.cli.check import check
from dranet.cli.lint import lint
from dranet.testing.waiting import wait_until

LOOPBACK = Nic("lo", "127.0.0.1", 1500)
TABLE = """\
                    RDMA_Write BW Test
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    94112            0.00               394.71             0.047053
"""


@pytest.fixture
def lossy_peer() -> Iterator[int]:
    """A peer that replies to two of three small datagrams, and to every large one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind((LOOPBACK.address, 0))
        stop = threading.Event()

        def reply() -> None:
            small = 0
            peer.settimeout(0.1)
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    received, sender = peer.recvfrom(1 << 16)
                    small += len(received) < 100
                    if len(received) >= 100 or small % 3:
                        peer.sendto(received[:16], sender)

        thread = threading.Thread(target=reply)
        thread.start()
        yield peer.getsockname()[1]
        stop.set()
        thread.join()


def test_counts_lost_packets_and_measures_latency(lossy_peer: int) -> None:
    result = probe(NicPair(LOOPBACK, LOOPBACK), lossy_peer)
    assert (result.sent, result.lost, result.path_mtu) == (PROBES, PROBES // 3, 1500)
    assert result.rtt_us is not None and result.rtt_us > 0


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_responder_accepts_udp_and_tcp_over_ipv4_and_ipv6(address: str) -> None:
    nic = Nic("lo", address, 1500)
    responder = Responder([nic], 17472)
    try:
        if "::" in address and responder.errors:
            pytest.skip(f"no IPv6 on loopback: {responder.errors}")
        result = probe(NicPair(nic, nic), 17472)
        task = Task("send", (NicPair(nic, nic),), 0.05, 2)
        # A busy machine may send nothing in so short a time: repeat until it does.
        (sent,) = wait_until(lambda: [one for one in send_each(task, 17472) if one.gbits], "bytes sent")
    finally:
        responder.close()
    assert (result.path_mtu, result.lost, sent.reached) == (1500, 0, True)
    assert sent.gbits is not None and sent.gbits > 0


def test_reports_a_closed_tcp_port() -> None:
    (sent,) = send_each(Task("send", (NicPair(LOOPBACK, LOOPBACK),), 0.05, 2), 17473)
    assert (sent.reached, sent.error) == (False, "TCP: connection refused: the port is not open")


def test_reports_a_closed_udp_port_without_a_timeout() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind((LOOPBACK.address, 0))
        port = unused.getsockname()[1]
    result = reach(NicPair(LOOPBACK, LOOPBACK), port)
    assert (result.reached, result.error) == (False, "connection refused: the port is not open")


def test_reports_a_missing_interface() -> None:
    result = reach(NicPair(Nic("nosuch0", "127.0.0.1", 1500), LOOPBACK), 9)
    assert (result.reached, result.error) == (False, "the pod has no such interface")


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"hello\n", "unknown message"),
        (b'{"results": 3}\n', "unknown message"),
        (b"half a li", "connection closed"),
        (b"x" * (5 << 20), "message larger than"),
    ],
)
def test_an_invalid_message_ends_the_connection(message: bytes, error: str) -> None:
    ours, theirs = socket.socketpair()

    def write() -> None:
        with theirs, contextlib.suppress(OSError):  # the reader closes before the end of a line that is too long
            theirs.sendall(message)

    writer = threading.Thread(target=write)
    writer.start()
    with ours, pytest.raises(ConnectionLost, match=error):
        Connection(ours).receive(TaskResults, 5)
    writer.join(5)


def test_a_silent_peer_times_out() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(ConnectionLost, match="no reply within 0 s"):
        Connection(ours).receive(TaskResults, 0.05)


def program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install an `ib_write_bw` that records its arguments."""
    file = folder / "ib_write_bw"
    file.write_text(f'#!/bin/sh\necho "$@" >> {folder}/called\n{text}\n')
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "called"


def test_runs_perftest_and_reads_its_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = program(tmp_path, f"cat <<'END'\n{TABLE}END", monkeypatch)
    local = Nic("gpu0rdma0", "10.0.0.1", 9000, rdma="mlx5_3", gid=5)
    assert has_perftest()
    result = measure_rdma(NicPair(local, Nic("gpu0rdma0", "10.0.0.2", 9000, rdma="mlx5_7", gid=3)), 7473)
    assert (result.reached, result.rdma_gbits) == (True, 394.71)
    assert called.read_text() == "-d mlx5_3 -i 1 -x 5 -s 1048576 -q 2 -D 2 -F --report_gbits -p 7473 10.0.0.2\n"


def test_reports_the_error_of_perftest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, 'echo "Couldn\'t allocate MR" >&2; exit 1', monkeypatch)
    result = measure_rdma(NicPair(LOOPBACK, LOOPBACK), 7473)
    assert result.error == "ib_write_bw exited with 1: Couldn't allocate MR"


def emitted(*more: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(check, ["--emit-job", *more])
    assert done.exit_code == 0, done.output
    return list(yaml.safe_load_all(done.output))


def test_job_runs_one_pod_a_node_with_the_claim_and_dns_names() -> None:
    service, job = emitted("-n", "8", "--template", "eight-nics", "--job-name", "fit")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (job["spec"]["completionMode"], job["spec"]["completions"], job["spec"]["parallelism"]) == ("Indexed", 8, 8)
    assert service["spec"]["clusterIP"] == "None" and service["metadata"]["name"] == pod["subdomain"] == "fit"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    assert pod["resourceClaims"] == [{"name": "nics", "resourceClaimTemplateName": "eight-nics"}]
    assert container["resources"]["claims"] == [{"name": "nics"}]
    assert container["command"][:3] == ["/dranet", "check", "pair"] and "fit-0.fit" in container["command"]


def test_lint_accepts_the_job(tmp_path: Path) -> None:
    exactly = {"deviceClassName": "dra.net", "allocationMode": "ExactCount", "count": 8}
    requests = {"devices": {"requests": [{"name": "nics", "exactly": exactly}]}}
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "eight-nics"}, "spec": {"spec": requests}}
    file = tmp_path / "job.yaml"
    known = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "dra.net"}, "spec": {}}
    objects = [
        known,
        {"apiVersion": "resource.k8s.io/v1", **template},
        *emitted("-n", "8", "--template", "eight-nics"),
    ]
    file.write_text(yaml.safe_dump_all(objects))
    done = CliRunner().invoke(lint, [str(file)])
    assert "0 errors, 0 warnings" in done.output, done.output


def test_emit_job_requires_a_template() -> None:
    done = CliRunner().invoke(check, ["--emit-job"])
    assert done.exit_code == 2
    assert "--emit-job needs --template" in done.output
