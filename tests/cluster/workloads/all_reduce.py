"""An all-reduce over MPI that any image with mpi4py runs; prints what nccl-tests prints, so the same tools read it.

Every rank adds its number plus one, so every sum is known. At the end each rank says how many bytes the kernel counted
on each link of its pod meanwhile: those lines prove which NICs the data took.

    mpirun -np 2 python3 all_reduce.py [smallest [largest [rounds]]]
"""

from __future__ import annotations

import array
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from mpi4py import MPI  # type: ignore[import-not-found,unused-ignore]

LINKS = "/sys/class/net"
HEADER = (
    "#       size         count      type   redop    root"
    "      time   algbw   busbw #wrong       time   algbw   busbw #wrong"
)


def counters() -> dict[str, int]:
    """Bytes of every link so far, both ways."""
    links = sorted(link for link in os.listdir(LINKS) if link != "lo")
    return {link: sum(counter(link, way) for way in ("rx_bytes", "tx_bytes")) for link in links}


def counter(link: str, name: str) -> int:
    with open(f"{LINKS}/{link}/statistics/{name}") as file:
        return int(file.read())


def measure(world: Any, size: int, rounds: int) -> list[tuple[float, int]]:
    """Seconds a round and wrong sums, out of place and in place."""
    count = size // 4
    mine = array.array("f", [world.rank + 1]) * count
    total = array.array("f", [0]) * count
    expected = array.array("f", [world.size * (world.size + 1) / 2]) * count
    world.Allreduce(mine, total)
    wrong = mistakes(world, total, expected)
    apart = timed(world, rounds, lambda: world.Allreduce(mine, total))
    mine_again = array.array("f", mine)
    world.Allreduce(MPI.IN_PLACE, mine_again)
    wrong_in_place = mistakes(world, mine_again, expected)
    return [(apart, wrong), (timed(world, rounds, lambda: world.Allreduce(MPI.IN_PLACE, total)), wrong_in_place)]


def mistakes(world: Any, got: array.array[float], expected: array.array[float]) -> int:
    bad = 0 if got == expected else sum(one != other for one, other in zip(got, expected, strict=True))
    return int(world.allreduce(bad))


def timed(world: Any, rounds: int, operation: Callable[[], None]) -> float:
    """The slowest rank's time for one round."""
    world.Barrier()
    started = time.perf_counter()
    for _ in range(rounds):
        operation()
    return float(world.allreduce(time.perf_counter() - started, MPI.MAX)) / rounds


def bus(seconds: float, size: int, ranks: int) -> float:
    return size / seconds / 1e9 * 2 * (ranks - 1) / ranks


def sweep(world: Any, say: Callable[[str], None], sizes: list[int], rounds: int) -> None:
    """The table and its two closing lines; ends the program with 1 where a sum was wrong."""
    rates, bad = [], 0
    for size in sizes:
        measured = measure(world, size, rounds)
        ways = [
            f"{seconds * 1e6:9.1f} {size / seconds / 1e9:7.3f} {bus(seconds, size, world.size):7.3f} {wrong:6d}"
            for seconds, wrong in measured
        ]
        say(f"{size:12d} {size // 4:13d}     float     sum      -1 {'  '.join(ways)}")
        rates += [bus(seconds, size, world.size) for seconds, _ in measured]
        bad += sum(wrong for _, wrong in measured)
    say(f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}")
    say(f"# Avg bus bandwidth    : {sum(rates) / len(rates):.4f}")
    if bad:
        world.Abort(1)


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    smallest, largest, rounds = given + [1024, 8 << 20, 10][len(given) :]
    world, before = MPI.COMM_WORLD, counters()
    hosts = world.allgather(socket.gethostname())

    def say(line: str) -> None:
        if world.rank == 0:
            print(line, flush=True)

    say("# Collective: all_reduce")
    say(f"# nThread 1 nGpus 0 minBytes {smallest} maxBytes {largest} step: 2(factor) warmup iters: 1 iters: {rounds}")
    for number, host in enumerate(hosts):
        say(f"#  Rank {number:2d} Group  0 Pid {os.getpid():6d} on {host}")
    say(HEADER)
    sizes = [smallest]
    while sizes[-1] * 2 <= largest:
        sizes.append(sizes[-1] * 2)
    sweep(world, say, sizes, rounds)
    carried = world.allgather({link: now - before.get(link, 0) for link, now in counters().items()})
    for host, links in zip(hosts, carried, strict=True):
        say(f"# Traffic of {host}: " + " ".join(f"{link} {number}" for link, number in links.items()))


if __name__ == "__main__":
    main()
