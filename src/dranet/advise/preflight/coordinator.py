"""The pod of rank 0: it waits for the members, lets pairs of pods measure round by round, and collects the results.

A slow measurement is repeated when nothing else runs, and the better one counts. If two pods leave open which end is
slow and rails reach each other, each end is measured with a NIC of another rail.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from dranet.advise.preflight.connection import ConnectionLost, RemoteMember, accept_members
from dranet.advise.preflight.diagnosis import attribute_faults, slow_paths, tcp_rate
from dranet.advise.preflight.member import run_member
from dranet.advise.preflight.model import Endpoint, Measurements, Member, Nic, NicPair, Path, Result, Total
from dranet.core.errors import DranetError
from dranet.machines.bandwidth_parameters import parameters


class Settings(msgspec.Struct, frozen=True):
    """Options of a check."""

    members: int
    port: int = 7471
    timeout: float = 120.0
    seconds: float = 0.4
    streams: int = 4
    rounds: int = 0
    slow_below: float = 0.6


def run_coordinator(me: Member, settings: Settings, notes: tuple[str, ...] = ()) -> tuple[Measurements, float]:
    """Run a check. Returns the measurements, and the seconds they took once all members were connected."""
    with contextlib.closing(_listen(settings.port)) as listener:
        own = threading.Thread(target=_run_own_member, args=(me, settings), daemon=True)
        own.start()
        members = accept_members(listener, settings.members, settings.timeout)
    begin = time.monotonic()
    try:
        measured = _Coordinator(members, settings).run()
    finally:
        for member in members:
            member.finish()
        own.join(5)
    absent = sorted(set(range(settings.members)) - {member.member.rank for member in members})
    missing = [
        f"pod {rank} did not connect within {settings.timeout:.0f} s: check that it is running" for rank in absent
    ]
    whole = msgspec.structs.replace(measured, missing=(*missing, *measured.missing), notes=(*notes, *measured.notes))
    return whole, time.monotonic() - begin


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)


def _run_own_member(me: Member, settings: Settings) -> None:
    # The coordinator notices an error here as a lost connection and reports it like that of any member.
    with contextlib.suppress(DranetError):
        run_member(me, "127.0.0.1", settings.port, settings.timeout)


Round = list[tuple[int, int]]


def all_rounds(members: int) -> list[Round]:
    """Every pair once, by the circle method: in a round each pod has one partner, and never the same twice.

    Pairs of one round share no pod, so they can measure at the same time. With an odd number, one pod pauses in each
    round.
    """
    even = members + members % 2
    circle = list(range(even))
    found = []
    for _ in range(even - 1):
        pairs = [(circle[i], circle[-1 - i]) for i in range(even // 2)]
        found.append([(min(pair), max(pair)) for pair in pairs if max(pair) < members])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return found


def default_rounds(members: int) -> int:
    """log2 N, at least two if possible; one more if a pod pauses in each round.

    After two rounds a bad NIC was slow with two partners, each of which was fast with another. More rounds tell several
    bad NICs apart.
    """
    wanted = max(2, math.ceil(math.log2(members))) + members % 2
    return min(wanted, members - 1 + members % 2)


def rounds(members: int, wanted: int = 0) -> list[Round]:
    """The first rounds; 0 for the default number."""
    return all_rounds(members)[: wanted or default_rounds(members)] if members > 1 else []


def with_unique_names(members: Sequence[Member]) -> list[Member]:
    """Append the rank to the node name of pods that share a node, because results are listed by node."""
    nodes = [member.node for member in members]
    return [
        msgspec.structs.replace(member, node=f"{member.node}#{member.rank}") if nodes.count(member.node) > 1 else member
        for member in members
    ]


def assign_rails(members: Sequence[Member]) -> tuple[list[Member], str]:
    """Members whose NICs all have a rail, and where the rails come from.

    The published rail if every NIC has one of its own; else the interface name if all pods have the same names; else
    the position in the pod's list, which is right if all claims are equal.
    """
    published = all(nic.rail for member in members for nic in member.nics)
    if published and all(len({nic.rail for nic in member.nics}) == len(member.nics) for member in members):
        return list(members), "published rail"
    if len({frozenset(nic.name for nic in member.nics) for member in members}) == 1:
        return [_with_rails(member, [nic.name for nic in member.nics]) for member in members], "interface name"
    return [_with_rails(member, map(str, range(len(member.nics)))) for member in members], "position in the claim"


def _with_rails(member: Member, rails: Iterable[str]) -> Member:
    nics = zip(member.nics, rails, strict=True)
    return msgspec.structs.replace(member, nics=tuple(msgspec.structs.replace(nic, rail=rail) for nic, rail in nics))


class _Coordinator:
    def __init__(self, members: list[RemoteMember], settings: Settings) -> None:
        self._members, self._settings = members, settings
        described, self._rails_from = assign_rails(with_unique_names([remote.member for remote in members]))
        for remote, member in zip(members, described, strict=True):
            remote.member = member
        self._paths: list[Path] = []
        self._totals: list[Total] = []
        self._notes: list[str] = []

    def run(self) -> Measurements:
        for number, pairs in enumerate(rounds(len(self._members), self._settings.rounds), 1):
            with ThreadPoolExecutor(len(pairs)) as pool:
                for done in [pool.submit(self._measure_both_ways, number, *pair) for pair in pairs]:
                    done.result()
        self._recheck_slow_paths()
        lost = [remote for remote in self._members if remote.lost]
        gone = {remote.member.node for remote in lost}
        return Measurements(
            members=tuple(remote.member for remote in self._members),
            paths=tuple(p for p in self._paths if not {p.source.node, p.target.node} & gone),
            totals=tuple(self._totals),
            missing=tuple(f"connection to {remote.member.node} lost: {remote.lost}" for remote in lost),
            notes=(f"NICs are paired by {self._rails_from}", *dict.fromkeys(self._notes)),
        )

    def _measure_both_ways(self, number: int, one: int, other: int) -> None:
        a, b = self._members[one], self._members[other]
        if a.lost or b.lost:
            return
        for sender, receiver in ((a, b), (b, a)):
            try:
                self._measure(number, sender, receiver)
            except ConnectionLost:
                return  # the member that was lost remembers why

    def _measure(self, number: int, sender: RemoteMember, receiver: RemoteMember) -> None:
        pairs = self._pairs(sender, receiver)
        results = dict(zip(pairs, self._run(sender, "reach", pairs), strict=True))
        reached = [pair for pair in pairs if results[pair].reached]
        for action in ("probe", "send"):
            for pair, result in zip(reached, self._run(sender, action, reached), strict=True):
                results[pair] = _merge(results[pair], result)
        together = self._run(sender, "send-all", reached)
        total = round(sum(result.gbits or 0 for result in together), 3)
        self._totals.append(Total(sender.member.node, receiver.member.node, total))
        for pair in self._rdma_pairs(sender, receiver, reached):
            self._run(receiver, "rdma-serve", [NicPair(pair.remote, pair.local)])
            results[pair] = _merge(results[pair], self._run(sender, "rdma-send", [pair])[0])
        self._paths += [_path(sender, receiver, pair, result, number) for pair, result in results.items()]
        self._reach_across_rails(number, sender, receiver, [p.local for p in pairs if not results[p].reached])

    def _reach_across_rails(self, number: int, sender: RemoteMember, receiver: RemoteMember, silent: list[Nic]) -> None:
        """NICs that reach no NIC on their rail try all other rails: this shows swapped cables."""
        pairs = [NicPair(nic, other) for nic in silent for other in receiver.member.nics if other.rail != nic.rail]
        results = zip(pairs, self._run(sender, "reach", pairs), strict=True)
        self._paths += [
            _path(sender, receiver, pair, result, number, cross_rail=True) for pair, result in results if result.reached
        ]

    def _pairs(self, sender: RemoteMember, receiver: RemoteMember) -> list[NicPair]:
        remote = {nic.rail: nic for nic in receiver.member.nics}
        for nic in sender.member.nics:
            if nic.rail not in remote:
                self._notes.append(
                    f"NIC {nic.name} on {sender.member.node} is not measured with {receiver.member.node}, "
                    f"which has no NIC on rail {nic.rail}"
                )
        return [NicPair(nic, remote[nic.rail]) for nic in sender.member.nics if nic.rail in remote]

    def _rdma_pairs(self, sender: RemoteMember, receiver: RemoteMember, pairs: list[NicPair]) -> list[NicPair]:
        usable = [pair for pair in pairs if pair.local.rdma and pair.remote.rdma]
        without = [remote.member.node for remote in (sender, receiver) if not remote.member.perftest]
        if usable and without:
            self._notes.append(f"RDMA is not measured: no ib_write_bw in the image on {', '.join(without)}")
        elif not usable:
            self._notes.append("RDMA is not measured: no two NICs of a rail have RDMA devices and addresses")
        return [] if without else usable

    def _run(self, remote: RemoteMember, action: str, pairs: list[NicPair]) -> list[Result]:
        return remote.run(action, pairs, self._settings.seconds, self._settings.streams)

    def _recheck_slow_paths(self) -> None:
        """Measure slow paths again without other traffic; if both ends may be at fault, also with other NICs."""
        for path in self._slow():
            self._measure_again(path)
        suspects = {(p.source, p.target) for p in self._slow()}
        for ends, paths in attribute_faults(self._paths, lambda p: (p.source, p.target) in suspects).items():
            if len(ends) == 2:
                for path in paths:
                    self._try_other_rails(path, {p.rail for p in self._paths if (p.source, p.target) in suspects})

    def _slow(self) -> list[Path]:
        """Slow paths, except those with a small path MTU: that already explains them."""
        slow = slow_paths(self._paths, tcp_rate, self._settings.slow_below)
        return [p for p in slow if p.result.path_mtu is None or p.result.path_mtu >= p.mtu]

    def _measure_again(self, path: Path) -> None:
        sender, pair = self._find_pair(path.source, path.target)
        with contextlib.suppress(ConnectionLost):
            (result,) = self._run(sender, "send", [pair])
            if (result.gbits or 0) > (path.result.gbits or 0):
                better = msgspec.structs.replace(path, result=_merge(path.result, result))
                self._paths[self._paths.index(path)] = better

    def _try_other_rails(self, path: Path, slow_rails: set[str]) -> None:
        """Send from the same NIC to another rail, and from another rail to the same NIC."""
        sender, pair = self._find_pair(path.source, path.target)
        receiver = self._find_member(path.target.node)
        remote = next((nic for nic in receiver.member.nics if nic.rail not in slow_rails), None)
        local = next((nic for nic in sender.member.nics if nic.rail not in slow_rails), None)
        if remote is None or local is None:
            return
        trials = [NicPair(pair.local, remote), NicPair(local, pair.remote)]
        with contextlib.suppress(ConnectionLost):
            results = zip(trials, self._run(sender, "reach", trials), strict=True)
            reached = [trial for trial, result in results if result.reached]
            for trial, result in zip(reached, self._run(sender, "send", reached), strict=True):
                self._paths.append(_path(sender, receiver, trial, result, 0, cross_rail=True))

    def _find_member(self, node: str) -> RemoteMember:
        return next(remote for remote in self._members if remote.member.node == node)

    def _find_pair(self, source: Endpoint, target: Endpoint) -> tuple[RemoteMember, NicPair]:
        sender, receiver = self._find_member(source.node), self._find_member(target.node)
        local = next(nic for nic in sender.member.nics if nic.name == source.nic)
        return sender, NicPair(local, next(nic for nic in receiver.member.nics if nic.name == target.nic))


def _merge(earlier: Result, later: Result) -> Result:
    """Add what a later task measured. `reached` keeps its value: one reply proves that the NIC is reachable."""
    empty = Result(False)
    fields = {name: getattr(later, name) for name in Result.__struct_fields__ if name != "reached"}
    measured = {name: value for name, value in fields.items() if value != getattr(empty, name)}
    return msgspec.structs.replace(earlier, **measured)


def _path(
    sender: RemoteMember,
    receiver: RemoteMember,
    pair: NicPair,
    result: Result,
    number: int,
    *,
    cross_rail: bool = False,
) -> Path:
    speeds = [nic.gbits for nic in (pair.local, pair.remote) if nic.gbits is not None]
    return Path(
        source=Endpoint(sender.member.node, pair.local.name),
        target=Endpoint(receiver.member.node, pair.remote.name),
        rail=pair.local.rail,
        mtu=pair.local.mtu,
        result=result,
        round=number,
        expected=round(min(speeds) * parameters().network_efficiency, 3) if speeds else None,
        cross_rail=cross_rail,
    )
