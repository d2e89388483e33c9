"""Measurements between two NICs: UDP echo, path MTU, TCP throughput and RDMA bandwidth.

Every socket is bound to the address and to the interface of its NIC. The address alone is not enough: with two NICs in
one subnet, the kernel would send through the first of them. Since Linux 5.7 binding to an interface needs no
capability.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import itertools
import random
import select
import shutil
import socket
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from dranet.advise.preflight.model import Nic, NicPair, Result, Task
from dranet.advise.report import perftest
from dranet.advise.report.runs import GBYTE

PROBES = 50
"""Small datagrams that latency and loss are measured with."""
_SMALL = 92
_GAP = 0.002
_FIRST_REPLY_TIMEOUT = 1.0
"""Longer than for later replies, because the kernel first resolves the neighbour."""
_REPLY_TIMEOUT = 0.3
_SIZES_AT_ONCE = 12
"""Sizes in flight while the path MTU is searched: a lost one costs a timeout, so a binary search would be slower."""

_ECHO = struct.Struct("!4sIQ")
"""Magic, sequence number, and a random number of the sender."""
_MAGIC = b"dnet"
_LARGEST = 1 << 16

# Options of ip(7) and ipv6(7) that Python's socket module does not name.
_MTU_DISCOVER, _MTU_DISCOVER_6, _PROBE, _DONT_FRAGMENT_6 = 10, 23, 3, 62
_TOTAL_RETRANS, _BYTES_ACKED = 100, 120
"""Offsets in the kernel's struct tcp_info."""

_CHUNK = memoryview(bytes(1 << 20))
_CONNECT_TIMEOUT = 2.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

_IB_WRITE_BW = "ib_write_bw"
_RDMA_SECONDS = 2

_REASONS = {
    errno.ECONNREFUSED: "connection refused: the port is not open",
    errno.ENETUNREACH: "no route to the address",
    errno.EHOSTUNREACH: "the neighbour does not answer",
    errno.ENODEV: "the pod has no such interface",
    errno.EADDRNOTAVAIL: "the interface does not have this address",
    errno.ENETDOWN: "the interface is down",
}


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no reply (timeout)"
    return _REASONS.get(error.errno or 0, error.strerror or str(error))


def _bound_socket(nic: Nic, kind: socket.SocketKind, port: int = 0) -> socket.socket:
    family = socket.AF_INET6 if ipaddress.ip_address(nic.address).version == 6 else socket.AF_INET
    made = socket.socket(family, kind)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, nic.name.encode())
        made.bind((nic.address, port))
    except OSError:
        made.close()
        raise
    return made


class Responder:
    """Echoes datagrams and discards TCP data on every NIC while the check runs.

    A reply carries only the header of the datagram, never its content. So a path that is narrow in one direction shows
    in that direction only.
    """

    def __init__(self, nics: Iterable[Nic], port: int) -> None:
        self._sockets: list[socket.socket] = []
        self.errors: dict[str, str] = {}
        """By name, NICs that could not be opened."""
        for nic in nics:
            try:
                self._open(nic, port)
            except OSError as error:
                self.errors[nic.name] = _reason(error)

    def close(self) -> None:
        for made in self._sockets:
            with contextlib.suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)  # wakes the thread that blocks in it; close alone does not
            made.close()

    def _open(self, nic: Nic, port: int) -> None:
        echo = _bound_socket(nic, socket.SOCK_DGRAM, port)
        self._sockets.append(echo)
        _start_thread(_echo, echo)
        sink = _bound_socket(nic, socket.SOCK_STREAM, port)
        self._sockets.append(sink)
        sink.listen(64)
        _start_thread(_accept, sink)


def _start_thread(work: Callable[[socket.socket], None], made: socket.socket) -> None:
    threading.Thread(target=work, args=(made,), daemon=True).start()


def _echo(echo: socket.socket) -> None:
    while echo.fileno() >= 0:
        with contextlib.suppress(OSError):  # a link that flaps or a sender that is gone must not end the thread
            received, sender = echo.recvfrom(_LARGEST)
            if len(received) >= _ECHO.size and received.startswith(_MAGIC):
                echo.sendto(received[: _ECHO.size], sender)


def _accept(sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            _start_thread(_discard, sink.accept()[0])


def _discard(stream: socket.socket) -> None:
    """MSG_TRUNC lets the kernel drop the bytes; copying them would cost what is measured."""
    buffer = bytearray(1 << 20)
    with contextlib.suppress(OSError), stream:
        while stream.recv_into(buffer, len(buffer), socket.MSG_TRUNC):
            pass


class _EchoClient:
    """Sends datagrams from one NIC to another. Sizes are those of the whole IP packet."""

    def __init__(self, pair: NicPair, port: int) -> None:
        self._socket = _bound_socket(pair.local, socket.SOCK_DGRAM)
        self._headers = 48 if ":" in pair.local.address else 28
        self._run, self._numbers = random.getrandbits(64), itertools.count()
        self.error = "no reply (timeout)"
        try:
            _set_dont_fragment(self._socket)
            self._socket.setblocking(False)
            self._socket.connect((pair.remote.address, port))
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> _EchoClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, sizes: Sequence[int], timeout: float, gap: float = 0.0) -> list[float | None]:
        """Seconds until the reply to each datagram; None for those without one."""
        first = next(self._numbers)
        sent: dict[int, float] = {}
        received: dict[int, float] = {}
        for number, size in enumerate(sizes, first):
            sent[number] = time.perf_counter()
            self._send(number, size)
            self._receive(sent, received, gap)
        self._numbers = itertools.count(first + len(sizes))
        end = time.perf_counter() + timeout
        while len(received) < len(sizes) and (left := end - time.perf_counter()) > 0:
            self._receive(sent, received, left)
        return [received.get(number) for number in sent]

    def _send(self, number: int, size: int) -> None:
        header = _ECHO.pack(_MAGIC, number, self._run)
        try:
            self._socket.send(header + bytes(max(0, size - self._headers - len(header))))
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                self.error = _reason(error)

    def _receive(self, sent: dict[int, float], received: dict[int, float], timeout: float) -> None:
        """Wait for one reply at most."""
        if not select.select([self._socket], [], [], timeout)[0]:
            return
        try:
            magic, number, run = _ECHO.unpack(self._socket.recv(_ECHO.size))
        except OSError as error:
            self.error = _reason(error)
            return
        if (magic, run) == (_MAGIC, self._run) and number in sent:
            received.setdefault(number, time.perf_counter() - sent[number])

    def path_mtu(self, mtu: int) -> int:
        """The largest packet that arrives, to the byte; small ones are known to arrive."""
        if self._passing([mtu]):
            return mtu
        low, high = _SMALL, mtu
        while high - low > 1:
            sizes = sorted({low + (high - low) * step // _SIZES_AT_ONCE for step in range(1, _SIZES_AT_ONCE)} - {low})
            low = max(self._passing(sizes), default=low)
            high = min((size for size in sizes if size > low), default=high)
        return low

    def _passing(self, sizes: Sequence[int]) -> set[int]:
        """Sizes of which at least one of two datagrams arrives."""
        twice = [*sizes, *sizes]
        return {size for size, rtt in zip(twice, self.send(twice, _REPLY_TIMEOUT), strict=True) if rtt is not None}


def _set_dont_fragment(made: socket.socket) -> None:
    """Set DF and ignore the kernel's own idea of the path MTU."""
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, _MTU_DISCOVER_6, _PROBE)
        made.setsockopt(socket.IPPROTO_IPV6, _DONT_FRAGMENT_6, 1)
    else:
        made.setsockopt(socket.IPPROTO_IP, _MTU_DISCOVER, _PROBE)


def reach(pair: NicPair, port: int) -> Result:
    """Whether the remote NIC replies to one of three datagrams."""
    try:
        with _EchoClient(pair, port) as client:
            replied = any(rtt is not None for rtt in client.send([_SMALL] * 3, _FIRST_REPLY_TIMEOUT, 0.01))
            return Result(replied, "" if replied else client.error)
    except OSError as error:
        return Result(False, _reason(error))


def probe(pair: NicPair, port: int) -> Result:
    """Path MTU, latency and loss to a NIC that replies."""
    try:
        with _EchoClient(pair, port) as client:
            path_mtu = client.path_mtu(pair.local.mtu)
            rtts = client.send([_SMALL] * PROBES, _REPLY_TIMEOUT, _GAP)
    except OSError as error:
        return Result(False, _reason(error))
    replied = [rtt for rtt in rtts if rtt is not None]
    median = round(statistics.median(replied) * 1e6, 1) if replied else None
    return Result(True, "", path_mtu, PROBES, PROBES - len(replied), median)


def send_each(task: Task, port: int) -> list[Result]:
    """TCP throughput of one pair after the other."""
    return [result for pair in task.pairs for result in _send([pair], task, port)]


def send_all(task: Task, port: int) -> list[Result]:
    """TCP throughput of all pairs at the same time."""
    return _send(task.pairs, task, port)


def _send(pairs: Sequence[NicPair], task: Task, port: int) -> list[Result]:
    """Send for `task.seconds` and count the bytes that the kernel saw acknowledged, so nothing has to be drained.

    One stream does not fill a fast link, so several are used, each on a thread. The CPU remains the limit: rates are
    for comparing NICs with each other, not with their line rate.
    """
    with contextlib.ExitStack() as stack:
        opened = [_connect(pair, task.streams, port, stack) for pair in pairs]
        streams = [stream for found in opened if isinstance(found, list) for stream in found]
        begin = time.perf_counter()
        threads = [threading.Thread(target=_send_until, args=(stream, begin + task.seconds)) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        elapsed = time.perf_counter() - begin
        return [Result(False, found) if isinstance(found, str) else _throughput(found, elapsed) for found in opened]


def _connect(pair: NicPair, streams: int, port: int, stack: contextlib.ExitStack) -> list[socket.socket] | str:
    """Connected sockets, or the reason why there are none."""
    made = []
    try:
        for _ in range(streams):
            stream = stack.enter_context(_bound_socket(pair.local, socket.SOCK_STREAM))
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)  # drop unsent data on close
            stream.settimeout(_CONNECT_TIMEOUT)
            stream.connect((pair.remote.address, port))
            made.append(stream)
    except OSError as error:
        return f"TCP: {_reason(error)}"
    return made


def _send_until(stream: socket.socket, end: float) -> None:
    with contextlib.suppress(OSError):
        while (left := end - time.perf_counter()) > 0:
            stream.settimeout(left)
            stream.send(_CHUNK)


def _throughput(streams: Sequence[socket.socket], elapsed: float) -> Result:
    acked = retransmitted = 0
    for stream in streams:
        info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        acked += struct.unpack_from("=Q", info, _BYTES_ACKED)[0]
        retransmitted += struct.unpack_from("=I", info, _TOTAL_RETRANS)[0]
    return Result(True, gbits=round(acked * 8 / elapsed / 1e9, 4), retransmitted=retransmitted)


def has_perftest() -> bool:
    """Whether RDMA can be measured here. Our own image does not contain `ib_write_bw`."""
    return shutil.which(_IB_WRITE_BW) is not None


def start_rdma_server(pair: NicPair, port: int) -> subprocess.Popen[str]:
    """Start `ib_write_bw` as a server; it ends after one client."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen(_perftest_command(pair.local, port), stdout=quiet, stderr=quiet, text=True)


def measure_rdma(pair: NicPair, port: int) -> Result:
    """Run `ib_write_bw` as a client and wait for its result."""
    command = _perftest_command(pair.local, port, pair.remote.address)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_RDMA_SECONDS + 15)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Result(False, f"{_IB_WRITE_BW}: {error}")
    rate = _average_gbits(done.stdout.splitlines())
    if rate is None:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        return Result(False, f"{_IB_WRITE_BW} exited with {done.returncode}: {''.join(last) or 'no output'}")
    return Result(True, rdma_gbits=round(rate, 3))


def _perftest_command(nic: Nic, port: int, target: str = "") -> list[str]:
    """The server's command or, with a target, the client's. Both sides need the same options.

    Two queue pairs of 1 MiB fit into the 8 MiB of locked memory that container runtimes allow by default.
    """
    gid = ["-x", str(nic.gid)] if nic.gid is not None else []
    return [
        *(_IB_WRITE_BW, "-d", nic.rdma, "-i", str(nic.rdma_port), *gid),
        *("-s", "1048576", "-q", "2", "-D", str(_RDMA_SECONDS), "-F", "--report_gbits", "-p", str(port)),
        *([target] if target else []),
    ]


def _average_gbits(lines: Sequence[str]) -> float | None:
    unit = next((unit for line in lines if (unit := perftest.read_unit(line)) is not None), None)
    if unit is None:
        return None
    rows = [row for line in lines if (row := perftest.read_row(line, unit)) is not None]
    return rows[-1].out_of_place.busbw * GBYTE * 8 / 1e9 if rows else None
