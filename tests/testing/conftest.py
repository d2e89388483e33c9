"""Skip conditions and helpers for tests of the sandbox."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dranet.linux import KernelError
from dranet.linux.namespaces import Namespace
from dranet.testing.isolation import IsolationError, isolation_command

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def may_make_namespaces() -> None:
    try:
        Namespace.create().close()
    except KernelError as error:
        pytest.skip(f"no network namespaces here: {error}")


@pytest.fixture(scope="session")
def may_isolate() -> None:
    try:
        isolation_command()
    except IsolationError as error:
        pytest.skip(str(error))


def _interruptible() -> None:
    """Background jobs ignore interrupts, and children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class Program:
    """A command that marks every process it starts, so that the test can find them."""

    prefix: tuple[str, ...] = ()
    python: str = sys.executable
    environment: dict[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: f"DRANET_TEST_MARK={uuid.uuid4()}")

    def start(self, *arguments: str, **options: object) -> subprocess.Popen[bytes]:
        name, _, value = self.mark.partition("=")
        command = [*self.prefix, self.python, *arguments]
        environment = {**os.environ, **self.environment, name: value}
        started = {"env": environment, "cwd": "/", "preexec_fn": _interruptible, **options}
        return subprocess.Popen(command, **started)  # type: ignore[call-overload, no-any-return]

    def run(self, *arguments: str) -> tuple[int, str, str]:
        with self.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, err = process.communicate(timeout=110)
        return process.returncode, out.decode(), err.decode()

    def processes(self) -> list[int]:
        """All processes with the mark."""
        return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if self.mark in _environment(folder)]


def _environment(folder: Path) -> list[str]:
    try:
        return (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


@pytest.fixture
def program(may_isolate: None) -> Iterator[Program]:
    made = Program()
    yield made
    assert not made.processes()


@pytest.fixture
def ordinary(may_isolate: None) -> Iterator[Program]:
    """The same as an unprivileged user, with a Python that this user can start."""
    if os.geteuid() != 0:
        pytest.skip("the other tests run as an ordinary user already")
    drop = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all")
    made = Program(drop, _reachable_python(drop), {"PYTHONPATH": os.pathsep.join(_import_paths()), "HOME": "/"})
    if made.run("-c", "import dranet.cli.demo")[0] != 0:
        pytest.skip("an ordinary user cannot import this program here")
    yield made
    assert not made.processes()


def _reachable_python(drop: tuple[str, ...]) -> str:
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/python{wanted}"):
        if subprocess.run([*drop, "test", "-x", os.path.realpath(python)]).returncode == 0:
            return python
    pytest.skip(f"no Python {wanted} that an ordinary user can start")


def _import_paths() -> list[str]:
    return [path for path in sys.path if path and Path(path).is_dir() and path.startswith(str(ROOT))] + [
        str(ROOT / "src")
    ]


@pytest.fixture
def traces() -> Callable[[], set[str]]:
    """Lists what a sandbox could leave on the machine: mounts, named namespaces, interfaces, files."""

    def scan() -> set[str]:
        mounts = {line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "dranet" in line}
        shapes = ("a4-", "a3-", "nd-", "nccl-")
        named = {str(path) for path in Path("/run/netns").glob("*") if path.name.startswith(shapes)}
        links = {line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]}
        folders = {str(path) for path in Path("/run").glob("dranet*")}
        return mounts | named | {link for link in links if "rdma" in link or "rail" in link} | folders

    return scan
