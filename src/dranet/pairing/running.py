"""A check from its beginning to its end, as the first pod runs it: it conducts, and is a member like the others."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import msgspec

from dranet.model.errors import DranetError
from dranet.pairing.conducting import Conductor
from dranet.pairing.meeting import gather
from dranet.pairing.member import take_part
from dranet.pairing.values import Member, Outcome


class Plan(msgspec.Struct, frozen=True):
    """What all pods of a check are told alike."""

    members: int
    port: int = 7471
    patience: float = 120.0
    seconds: float = 0.4
    streams: int = 4
    rounds: int = 0
    below: float = 0.6


def conduct(me: Member, plan: Plan, notes: tuple[str, ...] = ()) -> tuple[Outcome, float]:
    """The first pod's run, and how long it took from when all were there."""
    with contextlib.closing(_listener(plan.port)) as listener:
        own = threading.Thread(target=_quietly, args=(me, plan), daemon=True)
        own.start()
        guests = gather(listener, plan.members, plan.patience)
    begin = time.monotonic()
    conductor = Conductor(
        guests, seconds=plan.seconds, streams=plan.streams, below=plan.below, wanted_rounds=plan.rounds
    )
    try:
        outcome = conductor.conduct()
    finally:
        for guest in guests:
            guest.dismiss()
        own.join(5)
    missing = sorted(set(range(plan.members)) - {guest.member.rank for guest in guests})
    absent = [f"pod {rank} did not come within {plan.patience:.0f} s: does it run?" for rank in missing]
    whole = msgspec.structs.replace(outcome, absent=(*absent, *outcome.absent), notes=(*notes, *outcome.notes))
    return whole, time.monotonic() - begin


def _listener(port: int) -> socket.socket:
    """On the pod network, both families where there are both."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)


def _quietly(me: Member, plan: Plan) -> None:
    """What goes wrong here is seen by the conductor, which loses this member."""
    with contextlib.suppress(DranetError):
        take_part(me, "127.0.0.1", plan.port, plan.patience)
