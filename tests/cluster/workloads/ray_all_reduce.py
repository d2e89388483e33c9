"""An all-reduce with Ray's collectives over gloo, one actor on each worker; prints what nccl-tests prints.

gloo takes the interfaces that GLOO_SOCKET_IFNAME names in the workers, in turn. The group's name must be a new one in
each run: a second run under an old name hangs on the rendezvous of the first.

    ray job submit -- python3 ray_all_reduce.py WORKERS GROUP [smallest [largest [rounds]]]
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import Any

import ray  # type: ignore[import-not-found,unused-ignore]
import torch  # type: ignore[import-not-found,unused-ignore]
from ray.util import collective  # type: ignore[import-not-found,unused-ignore]

LINKS = "/sys/class/net"
HEADER = "#       size         count      type   redop    root      time   algbw   busbw #wrong"


def counters() -> dict[str, int]:
    """Bytes of every link so far, both ways."""
    links = sorted(link for link in os.listdir(LINKS) if link != "lo")
    return {link: sum(counter(link, way) for way in ("rx_bytes", "tx_bytes")) for link in links}


def counter(link: str, name: str) -> int:
    with open(f"{LINKS}/{link}/statistics/{name}") as file:
        return int(file.read())


@ray.remote(num_cpus=1)
class Worker:
    """One rank."""

    def join(self, world: int, rank: int, group: str) -> str:
        self.world, self.rank, self.group, self.before = world, rank, group, counters()
        collective.init_collective_group(world, rank, "gloo", group)
        return socket.gethostname()

    def reduce(self, size: int, rounds: int) -> tuple[float, int]:
        """Seconds a round and wrong sums."""
        first = torch.full((size // 4,), float(self.rank + 1))
        collective.allreduce(first, self.group)
        wrong = int((first != self.world * (self.world + 1) / 2).sum())
        tensor = torch.ones(size // 4)
        started = time.perf_counter()
        for _ in range(rounds):
            collective.allreduce(tensor, self.group)
        return (time.perf_counter() - started) / rounds, wrong

    def carried(self) -> dict[str, int]:
        return {link: now - self.before.get(link, 0) for link, now in counters().items()}


def main() -> None:
    count, group, *given = sys.argv[1:]
    world = int(count)
    smallest, largest, rounds = [int(word) for word in given] + [1024, 8 << 20, 10][len(given) :]
    ray.init(address="auto", log_to_driver=False)
    actor: Any = Worker
    workers = [actor.options(scheduling_strategy="SPREAD").remote() for _ in range(world)]
    hosts = ray.get([worker.join.remote(world, rank, group) for rank, worker in enumerate(workers)])
    print("# Collective: all_reduce")
    print(f"# nThread 1 nGpus 0 minBytes {smallest} maxBytes {largest} step: 2(factor) warmup iters: 1 iters: {rounds}")
    for rank, host in enumerate(hosts):
        print(f"#  Rank {rank:2d} Group  0 Pid      0 on {host}")
    print(HEADER)
    rates, bad, size = [], 0, smallest
    while size <= largest:
        measured = ray.get([worker.reduce.remote(size, rounds) for worker in workers])
        seconds, wrong = max(one for one, _ in measured), sum(many for _, many in measured)
        alg = size / seconds / 1e9
        rates.append(alg * 2 * (world - 1) / world)
        bad += wrong
        figures = f"{seconds * 1e6:9.1f} {alg:7.3f} {rates[-1]:7.3f} {wrong:6d}"
        print(f"{size:12d} {size // 4:13d}     float     sum      -1 {figures}")
        size *= 2
    print(f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}")
    print(f"# Avg bus bandwidth    : {sum(rates) / len(rates):.4f}")
    for host, links in zip(hosts, ray.get([worker.carried.remote() for worker in workers]), strict=True):
        print(f"# Traffic of {host}: " + " ".join(f"{link} {number}" for link, number in links.items()))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
