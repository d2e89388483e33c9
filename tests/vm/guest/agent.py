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
STUCK = 124
"""The exit code of tests that the agent ended."""
BLOCKED_SECONDS = 60
"""A process that waits in the kernel without interruption (state D) for this long never comes back."""
SAMPLE_SECONDS = 5
WIRES = "/run/wires"
"""A FIFO for tests that want a cable pulled: each line, such as `nic0 off`, is passed on to the host."""


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


def run_tests(port: Port, project: str, arguments: list[str], silent_seconds: float) -> None:
    """Forks a test run, passes on what it prints and then its report."""
    REPORT.unlink(missing_ok=True)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        become_tests(write, project, arguments)
    os.close(write)
    wires = os.open(WIRES, os.O_RDWR)
    code = pass_on_until_exit(port, {read: "output", wires: "wire"}, child, silent_seconds)
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


def pass_on_until_exit(port: Port, sources: dict[int, str], child: int, silent_seconds: float) -> int:
    """A process the tests left behind may keep the pipe open, so the end is the child's, not the pipe's."""
    code: int | None = None
    watch = Watch(silent_seconds)
    while True:
        ready, _, _ = select.select(list(sources), [], [], 0.1 if code is None else 0)
        for source in ready:
            if piece := os.read(source, 65536):
                watch.output()
                port.send(**{sources[source]: base64.b64encode(piece).decode()})
            else:
                del sources[source]
        if watch.is_due():
            port.send(alive=True)
            if code is None and watch.is_stuck():
                port.send(output=base64.b64encode(stacks(child).encode()).decode())
                return STUCK
        if not ready and code is not None:
            return code
        if not ready:
            pid, status = os.waitpid(-1, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid == child else None


class Watch:
    """Decides that tests are stuck: a process blocked in the kernel for a minute, or no output for too long."""

    def __init__(self, silent_seconds: float) -> None:
        self._silent_seconds = silent_seconds
        self._blocked_since: dict[str, float] = {}
        self._sampled = 0.0
        self.output()

    def output(self) -> None:
        self._last_output = time.monotonic()

    def is_due(self) -> bool:
        due = time.monotonic() - self._sampled > SAMPLE_SECONDS
        if due:
            self._sampled = time.monotonic()
            blocked = _blocked_processes()
            self._blocked_since = {pid: self._blocked_since.get(pid, self._sampled) for pid in blocked}
        return due

    def is_stuck(self) -> bool:
        now = time.monotonic()
        blocked = any(now - since > BLOCKED_SECONDS for since in self._blocked_since.values())
        return blocked or now - self._last_output > self._silent_seconds


def _blocked_processes() -> list[str]:
    """Processes with arguments in state D; kernel threads wait that way by design."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            if state == "D" and (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def stacks(child: int) -> str:
    """The kernel stack of every process, the blocked tasks (sysrq w) and what each processor runs (sysrq l)."""
    trigger = Path("/proc/sysrq-trigger")
    for command in "wl":
        trigger.write_text(command)
    log = subprocess.run(["dmesg", "--notime"], capture_output=True, text=True, timeout=20).stdout
    lines = ["\n\nThe tests are stuck. Processes, their kernel stacks, and the kernel's log:"]
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        lines += _kernel_stack(process, child)
    return "\n".join([*lines, *log.splitlines()[-400:], ""])


def _kernel_stack(process: Path, child: int) -> list[str]:
    """One process with arguments (kernel threads have none); those that run or sleep in poll are not interesting."""
    try:
        words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        stack = (process / "stack").read_text().splitlines()
    except OSError:
        return []
    if not words:
        return []
    mark = " (the tests)" if process.name == str(child) else ""
    return [f"{process.name}{mark} {words[:160]}", *(f"    {line}" for line in stack)]


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
                run_tests(port, job["project"], job["arguments"], job["silent_seconds"])
        except Exception as error:
            port.send(failed=repr(error))


main()
