"""The socket: batches, errors with the kernel's message, repeated dumps, sharing between threads."""

from __future__ import annotations

import errno
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dranet.linux import addresses, links, routes, virtual_links
from dranet.linux.codec import NLM_F_DUMP_INTR, Message
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import DumpInterrupted, NetlinkError, NetlinkSocket

HEADER = struct.Struct("=IHHII")
MULTI, DONE, ERROR = 2, 3, 2


class Kernel:
    """The other end of a socket: answers each request with the datagrams a function gives."""

    def __init__(self, answer: Callable[[int, int], list[bytes]]) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours = ours
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self._answer = answer
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self.asked = 0

    def _serve(self) -> None:
        while data := self._ours.recv(65536):
            self.asked += 1
            (_, _, _, number, _) = HEADER.unpack_from(data)
            for reply in self._answer(self.asked, number):
                self._ours.send(reply)

    def close(self) -> None:
        self._ours.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._ours.close()


def message(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    return HEADER.pack(16 + len(payload), kind, flags, number, 0) + payload


Play = Callable[[Callable[[int, int], list[bytes]]], tuple[Kernel, NetlinkSocket]]


@pytest.fixture
def fake_kernel() -> Iterator[Play]:
    opened: list[tuple[Kernel, NetlinkSocket]] = []

    def start(answer: Callable[[int, int], list[bytes]]) -> tuple[Kernel, NetlinkSocket]:
        kernel = Kernel(answer)
        opened.append((kernel, NetlinkSocket(transport=kernel.theirs)))
        return opened[-1]

    yield start
    for kernel, ours in opened:
        kernel.close()
        ours.close()


def test_an_interrupted_dump_is_repeated(fake_kernel: Play) -> None:
    def answer(asked: int, number: int) -> list[bytes]:
        mark = NLM_F_DUMP_INTR if asked == 1 else 0
        return [message(16, MULTI | mark, number, bytes([asked] * 4)), message(DONE, MULTI, number, bytes(4))]

    kernel, ours = fake_kernel(answer)
    assert [reply.payload for reply in ours.dump(Message(18, 0, b""))] == [b"\2\2\2\2"]
    assert kernel.asked == 2


def test_a_dump_that_never_settles_fails_after_five_attempts(fake_kernel: Play) -> None:
    kernel, ours = fake_kernel(lambda _, number: [message(DONE, MULTI | NLM_F_DUMP_INTR, number, bytes(4))])
    with pytest.raises(DumpInterrupted, match=r"list things.*5 attempts"):
        ours.dump(Message(18, 0, b"", "list things"))
    assert kernel.asked == 5


def test_an_error_at_the_end_of_a_dump_is_raised(fake_kernel: Play) -> None:
    _, ours = fake_kernel(lambda _, number: [message(DONE, MULTI, number, struct.pack("=i", -errno.EACCES))])
    with pytest.raises(NetlinkError) as caught:
        ours.dump(Message(18, 0, b""))
    assert caught.value.errno == errno.EACCES


def test_answers_to_an_older_request_are_ignored(fake_kernel: Play) -> None:
    _, ours = fake_kernel(
        lambda _, number: [
            message(16, 0, number - 1, b"old!"),
            message(16, 0, number, b"new!"),
            message(ERROR, 0, number, bytes(20)),
        ]
    )
    assert [reply.payload for reply in ours.request(Message(18, 0, b""))] == [b"new!"]


def test_an_answer_larger_than_the_buffer_is_an_error_not_a_cut_record(fake_kernel: Play) -> None:
    _, ours = fake_kernel(lambda _, number: [message(16, 0, number, bytes(300_000))])
    with pytest.raises(NetlinkError, match="does not fit"):
        ours.request(Message(18, 0, b""))


def test_a_batch_reports_each_message_and_does_not_stop_at_a_refusal(route: NetlinkSocket) -> None:
    outcome = route.batch(
        [
            virtual_links.create_bridge("br0"),
            virtual_links.create_bridge("br0"),
            links.delete(4711),
            virtual_links.create_bridge("br1"),
        ]
    )
    assert [error and error.errno for error in outcome] == [None, errno.EEXIST, errno.ENODEV, None]
    assert links.get_link(route, "br1") is not None


def test_an_empty_batch_asks_nothing(route: NetlinkSocket) -> None:
    assert route.batch([]) == []
    assert route.requests_sent == 0


def test_a_batch_of_hundreds_gets_every_acknowledgement(route: NetlinkSocket, veth: links.Link) -> None:
    wanted = [addresses.from_cidr(f"10.{n // 250}.{n % 250}.1/32", veth.index) for n in range(700)]
    assert route.batch([addresses.add(address) for address in wanted]) == [None] * 700
    assert len([a for a in addresses.list_addresses(route, veth.index) if a.family == socket.AF_INET]) == 700


def test_an_error_says_what_was_asked_and_what_the_kernel_answered(route: NetlinkSocket, veth: links.Link) -> None:
    (error,) = route.batch([routes.add(routes.to("10.8.0.0/16", gateway="192.0.2.1", index=veth.index))])
    assert error is not None
    assert str(error) == (
        f"cannot add the route 10.8.0.0/16 via 192.0.2.1 on link {veth.index}: "
        "Network is unreachable (ENETUNREACH): Nexthop has invalid gateway"
    )
    assert error.kernel_text == "Nexthop has invalid gateway"


def test_a_refused_request_raises(route: NetlinkSocket) -> None:
    with pytest.raises(NetlinkError) as caught:
        route.request(links.delete(4711))
    assert caught.value.errno == errno.ENODEV


def test_listing_costs_one_request_however_many_links_there_are(route: NetlinkSocket) -> None:
    counts = []
    for number in (5, 60):
        assert not any(
            route.batch([virtual_links.create_veth(f"a{number}-{n}", f"b{number}-{n}") for n in range(number)])
        )
        before = route.requests_sent
        found = links.list_links(route)
        counts.append((route.requests_sent - before, len(found)))
    assert counts == [(1, 11), (1, 131)]


def test_a_socket_opened_in_a_namespace_can_be_used_from_any_thread(route: NetlinkSocket, veth: links.Link) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: links.get_link(route, "v0"), range(40)))
    assert {link.index for link in found if link is not None} == {veth.index}
    assert None not in found


def test_a_closed_socket_says_so(netns: Namespace) -> None:
    socket_ = NetlinkSocket(namespace_fd=netns.fd)
    socket_.close()
    with pytest.raises(NetlinkError, match="EBADF"):
        links.list_links(socket_)
