"""The processes of a bed: started with a log file, recorded at once, ended by what was recorded.

A record is a process number and the kernel's start time of that process. A number alone is not enough: after a crash
it may belong to another program, and the bed ends only what it started. The record is written the moment a process
exists, so a tester that is killed leaves a list the next `down` or `up` can work from.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from .cache import BedError

POLL_SECONDS = 0.05
ENTRY = ":entry"
T = TypeVar("T")


@dataclass(frozen=True)
class Record:
    name: str
    pid: int
    started: int

    def alive(self) -> bool:
        return start_time(self.pid) == self.started


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of `pid`; None if there is no such process or only its zombie."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def state(pid: int) -> str | None:
    """The kernel's letter for what the process does: `S` sleeps, `T` is stopped; None if there is no such process."""
    fields = _stat(pid)
    return fields[0] if fields else None


def _stat(pid: int) -> list[str]:
    """The fields after the command's name, which itself may hold spaces and parentheses."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def this_process(name: str) -> Record:
    return Record(name, os.getpid(), start_time(os.getpid()) or 0)


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def wait_until(check: Callable[[], T], what: str, seconds: float) -> T:
    """The first true answer of `check`; the bed has no better event for a daemon becoming ready than asking it."""
    deadline = time.monotonic() + seconds
    while not (answer := check()):
        if time.monotonic() > deadline:
            raise BedError(f"waited {seconds:.0f} s for {what}")
        time.sleep(POLL_SECONDS)
    return answer


class Processes:
    """What one bed has running; the file survives the process that wrote it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "processes.json"
        self._logs = folder / "logs"

    def records(self) -> list[Record]:
        """In the order of starting. Records of an earlier boot do not count."""
        try:
            saved = json.loads(self._file.read_text())
        except FileNotFoundError:
            return []
        return [Record(**entry) for entry in saved["processes"]] if saved["boot"] == _boot_id() else []

    def find(self, name: str) -> Record:
        for record in reversed(self.records()):
            if record.name == name:
                return record
        raise BedError(f"no process {name!r} was started in this bed; there are {[r.name for r in self.records()]}")

    def running(self, name: str) -> Record | None:
        """The process of that name if it lives."""
        return next((record for record in self.records() if record.name == name and record.alive()), None)

    def start(self, name: str, command: Iterable[str | Path], env: dict[str, str] | None = None) -> Record:
        """Run `command` in the background, its output in `logs/<name>.log`."""
        self._logs.mkdir(parents=True, exist_ok=True)
        words = [str(part) for part in command]
        log = str(self.log(name))
        files = (
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        )
        # Not subprocess: its objects complain when a child outlives them, which here is the point.
        pid = os.posix_spawnp(words[0], words, {**os.environ, **(env or {})}, file_actions=files, setsid=True)
        return self._record(name, pid)

    def start_in(self, name: str, entry: list[str], command: Iterable[str | Path], env: dict[str, str]) -> Record:
        """Run `command` in a node. `entry` (nsenter) forks to change process namespace: its child is recorded too."""
        outer = self.start(name + ENTRY, [*entry, *command], env)
        (inner,) = wait_until(lambda: children(outer.pid) or self._ended(outer), f"{name} to start", 60)
        return self._record(name, inner)

    def stop(self, *names: str, patience: float = 10) -> None:
        """Ask the named processes to end, wait, and kill those that do not listen."""
        victims = [record for record in self.records() if record.name.removesuffix(ENTRY) in names]
        self.signal(victims, signal.SIGTERM)
        if not self._gone_within(victims, patience):
            self.signal(victims, signal.SIGKILL)
            self._gone_within(victims, 10)
        self._save([record for record in self.records() if record not in victims])

    def signal(self, records: Iterable[Record], number: signal.Signals) -> None:
        for record in records:
            if record.alive():
                os.kill(record.pid, number)

    def log(self, name: str) -> Path:
        return self._logs / f"{name.removesuffix(ENTRY)}.log"

    def explain(self, name: str, lines: int = 15) -> str:
        """The end of a process's log, for error messages."""
        try:
            tail = self.log(name).read_text(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:
            tail = ["(no log)"]
        return f"end of {self.log(name)}:\n" + "\n".join(tail)

    def _ended(self, record: Record) -> list[int]:
        if not record.alive():
            raise BedError(f"{record.name} ended at once; {self.explain(record.name)}")
        return []

    def _gone_within(self, records: list[Record], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while any(record.alive() for record in records):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        for record in records:
            # Its first thread is gone. Only when all are does the kernel let go of its ports, and the wait end.
            with contextlib.suppress(ChildProcessError):  # started by another process, or reaped before
                os.waitpid(record.pid, 0)
        return True

    def _record(self, name: str, pid: int) -> Record:
        started = start_time(pid)
        if started is None:
            raise BedError(f"{name} ended at once; {self.explain(name)}")
        record = Record(name, pid, started)
        self._save([*(old for old in self.records() if old.name != name), record])
        return record

    def _save(self, records: list[Record]) -> None:
        saved = {"boot": _boot_id(), "processes": [asdict(record) for record in records]}
        scratch = self._file.with_suffix(".new")
        scratch.write_text(json.dumps(saved, indent=1))
        scratch.replace(self._file)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
