"""The pieces of a check by themselves: lost datagrams, a peer that talks nonsense, perftest's words, the Job."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dranet.cli.check import check
from dranet.cli.lint import lint
from dranet.pairing import perftest
from dranet.pairing.answering import Answering
from dranet.pairing.asking import COUNT, look, reach
from dranet.pairing.sending import send
from dranet.pairing.values import Answer, Card, Lane, Order
from dranet.pairing.wire import Line, Lost

HERE = Card("lo", "127.0.0.1", 1500)
TABLE = """\
                    RDMA_Write BW Test
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    94112            0.00               394.71             0.047053
"""


@pytest.fixture
def losing_every_third() -> Iterator[int]:
    """A peer that answers two of three small questions, and every large one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind((HERE.address, 0))
        stop = threading.Event()

        def answer() -> None:
            small = 0
            peer.settimeout(0.1)
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    asked, sender = peer.recvfrom(1 << 16)
                    small += len(asked) < 100
                    if len(asked) >= 100 or small % 3:
                        peer.sendto(asked[:16], sender)

        thread = threading.Thread(target=answer)
        thread.start()
        yield peer.getsockname()[1]
        stop.set()
        thread.join()


def test_what_is_lost_is_counted_and_the_rest_is_timed(losing_every_third: int) -> None:
    seen = look(Lane(HERE, HERE), losing_every_third)
    assert (seen.sent, seen.lost, seen.path_mtu) == (COUNT, COUNT // 3, 1500)
    assert seen.rtt_us is not None and seen.rtt_us > 0


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_card_answers_and_takes_tcp_by_either_family(address: str) -> None:
    card = Card("lo", address, 1500)
    answering = Answering([card], 17472)
    try:
        if "::" in address and answering.troubles:
            pytest.skip(f"no IPv6 on loopback: {answering.troubles}")
        seen = look(Lane(card, card), 17472)
        (sent,) = send(Order("send", (Lane(card, card),), 0.05, 2), 17472)
    finally:
        answering.close()
    assert (seen.path_mtu, seen.lost, sent.reached) == (1500, 0, True)
    assert sent.gbits is not None and sent.gbits > 0


def test_tcp_to_a_port_that_is_closed_is_said() -> None:
    (sent,) = send(Order("send", (Lane(HERE, HERE),), 0.05, 2), 17473)
    assert (sent.reached, sent.trouble) == (False, "TCP: refused: nobody listens there")


def test_a_port_that_is_closed_is_no_time_out() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind((HERE.address, 0))
        port = unused.getsockname()[1]
    seen = reach(Lane(HERE, HERE), port)
    assert (seen.reached, seen.trouble) == (False, "refused: nobody listens there")


def test_an_interface_that_the_pod_does_not_have_is_said() -> None:
    seen = reach(Lane(Card("nosuch0", "127.0.0.1", 1500), HERE), 9)
    assert (seen.reached, seen.trouble) == (False, "the pod has no such interface")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"hello\n", "it said what is not understood"),
        (b'{"seen": 3}\n', "it said what is not understood"),
        (b"half a li", "it closed its connection"),
        (b"x" * (5 << 20), "its line does not end"),
    ],
)
def test_a_peer_that_talks_nonsense_is_lost_in_words(said: bytes, words: str) -> None:
    ours, theirs = socket.socketpair()

    def talk() -> None:
        with theirs, contextlib.suppress(OSError):  # nobody listens to the end of a line that does not end
            theirs.sendall(said)

    speaker = threading.Thread(target=talk)
    speaker.start()
    with ours, pytest.raises(Lost, match=words):
        Line(ours).hear(Answer, 5)
    speaker.join(5)


def test_a_peer_that_says_nothing_is_lost_after_the_patience() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(Lost, match="did not answer within 0 s"):
        Line(ours).hear(Answer, 0.05)


def program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `ib_write_bw` that writes down how it was called."""
    file = folder / "ib_write_bw"
    file.write_text(f'#!/bin/sh\necho "$@" >> {folder}/called\n{text}\n')
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "called"


def test_perftest_is_called_for_one_card_and_its_average_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = program(tmp_path, f"cat <<'END'\n{TABLE}END", monkeypatch)
    near = Card("gpu0rdma0", "10.0.0.1", 9000, rdma="mlx5_3", gid=5)
    assert perftest.available()
    seen = perftest.measure(Lane(near, Card("gpu0rdma0", "10.0.0.2", 9000, rdma="mlx5_7", gid=3)), 7473)
    assert (seen.reached, seen.rdma_gbits) == (True, 394.71)
    assert called.read_text() == "-d mlx5_3 -i 1 -x 5 -s 1048576 -q 2 -D 2 -F --report_gbits -p 7473 10.0.0.2\n"


def test_what_perftest_complains_of_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, 'echo "Couldn\'t allocate MR" >&2; exit 1', monkeypatch)
    seen = perftest.measure(Lane(HERE, HERE), 7473)
    assert seen.trouble == "ib_write_bw ended with 1: Couldn't allocate MR"


def emitted(*more: str) -> list[dict]:
    done = CliRunner().invoke(check, ["--emit-job", *more])
    assert done.exit_code == 0, done.output
    return list(yaml.safe_load_all(done.output))


def test_the_job_has_a_pod_a_node_with_its_claim_and_the_service_gives_them_names() -> None:
    service, job = emitted("-n", "8", "--template", "eight-cards", "--job-name", "fit")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (job["spec"]["completionMode"], job["spec"]["completions"], job["spec"]["parallelism"]) == ("Indexed", 8, 8)
    assert service["spec"]["clusterIP"] == "None" and service["metadata"]["name"] == pod["subdomain"] == "fit"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    assert pod["resourceClaims"] == [{"name": "cards", "resourceClaimTemplateName": "eight-cards"}]
    assert container["resources"]["claims"] == [{"name": "cards"}]
    assert container["command"][:3] == ["/dranet", "check", "pair"] and "fit-0.fit" in container["command"]


def test_lint_has_nothing_against_the_job(tmp_path: Path) -> None:
    exactly = {"deviceClassName": "dra.net", "allocationMode": "ExactCount", "count": 8}
    requests = {"devices": {"requests": [{"name": "nics", "exactly": exactly}]}}
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "eight-cards"}, "spec": {"spec": requests}}
    file = tmp_path / "job.yaml"
    known = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "dra.net"}, "spec": {}}
    objects = [
        known,
        {"apiVersion": "resource.k8s.io/v1", **template},
        *emitted("-n", "8", "--template", "eight-cards"),
    ]
    file.write_text(yaml.safe_dump_all(objects))
    done = CliRunner().invoke(lint, [str(file)])
    assert "0 errors, 0 warnings" in done.output, done.output


def test_a_job_without_a_template_is_refused_in_words() -> None:
    done = CliRunner().invoke(check, ["--emit-job"])
    assert done.exit_code == 2
    assert "--emit-job needs --template" in done.output
