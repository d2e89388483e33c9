"""RDMA bandwidth with `ib_write_bw`, where the image has it: our own image does not.

Regions are small enough (2 queue pairs of 1 MiB) for the 8 MiB of locked memory that runtimes give by default.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from dranet.pairing.values import Card, Lane, Seen
from dranet.reports import perftest as output
from dranet.reports.runs import GBYTE

PROGRAM = "ib_write_bw"
_SECONDS = 2


def available() -> bool:
    return shutil.which(PROGRAM) is not None


def command(card: Card, port: int, target: str = "") -> list[str]:
    """The server's, or with a target the client's; both sides must be told the same."""
    index = ["-x", str(card.gid)] if card.gid is not None else []
    return [
        *(PROGRAM, "-d", card.rdma, "-i", str(card.rdma_port), *index),
        *("-s", "1048576", "-q", "2", "-D", str(_SECONDS), "-F", "--report_gbits", "-p", str(port)),
        *([target] if target else []),
    ]


def serve(lane: Lane, port: int) -> subprocess.Popen[str]:
    """Start the side that waits; it ends by itself after one client."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command(lane.card, port), stdout=quiet, stderr=quiet, text=True)


def measure(lane: Lane, port: int) -> Seen:
    """The client's side, to its end."""
    asked = command(lane.card, port, lane.target.address)
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_SECONDS + 15)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Seen(False, f"{PROGRAM}: {error}")
    rate = read_gbits(done.stdout.splitlines())
    if rate is None:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        return Seen(False, f"{PROGRAM} ended with {done.returncode}: {''.join(last) or 'it said nothing'}")
    return Seen(True, rdma_gbits=round(rate, 3))


def read_gbits(lines: Sequence[str]) -> float | None:
    """The average of the last row of its table."""
    unit = next((unit for line in lines if (unit := output.read_unit(line)) is not None), None)
    if unit is None:
        return None
    rows = [row for line in lines if (row := output.read_row(line, unit)) is not None]
    return rows[-1].out_of_place.busbw * GBYTE * 8 / 1e9 if rows else None
