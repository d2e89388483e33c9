"""Runs jobs inside the guest: tests or a shell, asked for over a virtio serial port.

It is started before the machine's state is saved, with pytest and the libraries already imported: each job is a fork
of it, and so begins where the imports end. One line of JSON asks, lines of JSON answer; a shell is raw bytes
after its line. It is process 1 and therefore also buries orphans.
"""

import base64
import json
import os
import pty
import select
import subprocess
import sys
import time
import traceback
from pathlib import Path

import google.protobuf.descriptor_pool
import grpclib.client
import grpclib.server
import msgspec
import prometheus_client
import pytest

PRELOADED = (google.protobuf.descriptor_pool, grpclib.client, grpclib.server, msgspec, prometheus_client)
WARM_UP = "async def test_nothing(tmp_path): assert tmp_path\n"
PORT = "/dev/virtio-ports/dranet.control"
REPORT = Path("/tmp/report.xml")
WIRES = "/run/wires"
"""A FIFO for tests that want a cable pulled: each line, such as `card0 off`, is passed on to the host."""


class Port:
    """The serial port. Reading it answers nothing while no host is connected, as after a restored state."""

    def __init__(self) -> None:
        self.fd = os.open(_port_node(), os.O_RDWR)

    def line(self) -> bytes:
        text = b""
        while not text.endswith(b"\n"):
            piece = os.read(self.fd, 65536)
            if not piece:
                time.sleep(0.02)
            text += piece
        return text

    def send(self, **message: object) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self.fd, data) :]


def _port_node() -> str:
    """There is no udev to make the named link, so the name is looked up in sysfs."""
    for node in sorted(Path("/sys/class/virtio-ports").iterdir()):
        if (node / "name").read_text().strip() == Path(PORT).name:
            return f"/dev/{node.name}"
    raise SystemExit("no control port in this machine")


def warm_up() -> None:
    """Has pytest import itself and its plugins by a first run; importing them by hand would escape its rewriting."""
    folder = Path("/tmp/warm-up")
    folder.mkdir()
    (folder / "test_nothing.py").write_text(WARM_UP)
    if pytest.main(["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--rootdir", str(folder), str(folder)]):
        raise SystemExit("the guest's own pytest does not work")
    del sys.modules["test_nothing"]


def mount_project(path: str, tag: str) -> None:
    """Mounts the project at the path it has on the host, so that messages name files that exist there.

    What is written there (compiled modules, mostly) stays in the guest's memory.
    """
    for folder in (path, "/mnt/project", "/tmp/changes", "/tmp/work"):
        os.makedirs(folder, exist_ok=True)
    wait_for_share(tag)
    layers = "lowerdir=/mnt/project,upperdir=/tmp/changes,workdir=/tmp/work"
    subprocess.run(["mount", "-t", "overlay", "-o", layers, "project", path], check=True)


def wait_for_share(tag: str) -> None:
    options = "ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose"
    for _ in range(200):
        command = ["mount", "-t", "9p", "-o", options, tag, "/mnt/project"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return
        time.sleep(0.05)
    raise RuntimeError(f"the project share did not appear: {done.stderr}")


def run_tests(port: Port, project: str, arguments: list[str]) -> None:
    """Forks a test run, passes on what it prints and then its report."""
    REPORT.unlink(missing_ok=True)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        become_tests(write, project, arguments)
    os.close(write)
    wires = os.open(WIRES, os.O_RDWR)
    code = pass_on_until_exit(port, {read: "output", wires: "wire"}, child)
    os.close(wires)
    os.close(read)
    report = REPORT.read_text() if REPORT.exists() else ""
    port.send(exit=code, report=report, seconds_up=time.monotonic())


def become_tests(output: int, project: str, arguments: list[str]) -> None:
    code = 3
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(project)
        sys.path[:0] = [f"{project}/src", project]
        os.environ["PYTHONPATH"] = f"/site:{project}/src:{project}"
        code = int(pytest.main(["-p", "no:cacheprovider", f"--junitxml={REPORT}", *arguments]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def pass_on_until_exit(port: Port, sources: dict[int, str], child: int) -> int:
    """A process the tests left behind may keep the pipe open, so the end is the child's, not the pipe's."""
    code: int | None = None
    while True:
        ready, _, _ = select.select(list(sources), [], [], 0.1 if code is None else 0)
        for source in ready:
            if piece := os.read(source, 65536):
                port.send(**{sources[source]: base64.b64encode(piece).decode()})
            else:
                del sources[source]
        if not ready and code is not None:
            return code
        if not ready:
            pid, status = os.waitpid(-1, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid == child else None


def run_shell(port: Port, project: str) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(project)
        os.environ.update(PYTHONPATH=f"/site:{project}/src:{project}", TERM="xterm", PS1="guest:\\w# ")
        os.execvp("bash", ["bash", "--norc"])
    relay(port.fd, terminal)
    bury_until(child)
    port.send(shell_ended=True)


def relay(outside: int, terminal: int) -> None:
    while True:
        ready, _, _ = select.select([outside, terminal], [], [])
        for source in ready:
            try:
                piece = os.read(source, 65536)
            except OSError:
                return
            if not piece:
                return
            os.write(terminal if source == outside else outside, piece)


def bury_until(child: int) -> int:
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def main() -> None:
    warm_up()
    os.mkfifo(WIRES)
    port = Port()
    port.send(ready=True)
    while True:
        job = json.loads(port.line())
        time.clock_settime(time.CLOCK_REALTIME, job["now"])
        try:
            mount_project(job["project"], job["tag"])
            port.send(started=True)
            if job["shell"]:
                run_shell(port, job["project"])
            else:
                run_tests(port, job["project"], job["arguments"])
        except Exception as error:
            port.send(failed=repr(error))


main()
