"""Process 1 of a node: lays out the node's file system, then only reaps orphans.

Run by `unshare` in fresh mount, network, host-name, IPC and process namespaces, with two arguments: the node's folder
and its name. Being process 1, its end takes every process of the node along, which is what makes a bed
easy to clear away. It starts without the package around it, so it imports nothing of ours.

What a node does not share with the machine: /run, /dev, /sys, /proc, /var/lib, /var/log, and what it writes to /etc
and /opt. The rest of the root file system is the machine's own.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

MEMORY_DEVICES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9, "kmsg": 11}
DEVICES = {**{name: (1, minor) for name, minor in MEMORY_DEVICES.items()}, "tty": (5, 0)}
DEVICE_LINKS = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
DEVICE_MOUNTS = {
    "pts": ("devpts", "newinstance,ptmxmode=0666,mode=620"),
    "shm": ("tmpfs", "mode=1777"),
    "mqueue": ("mqueue", "rw"),
}
# The kubelet writes these for the whole machine when they differ from what it wants: it gets copies with that value.
SHIELDED_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def lay_out_files(folder: Path) -> None:
    for name in ("lib", "log", "etc-upper", "etc-work", "opt-upper", "opt-work", "sysfs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    mount("-t", "tmpfs", "tmpfs", "/run")
    mount("--bind", folder / "lib", "/var/lib")
    mount("--bind", folder / "log", "/var/log")
    for name in ("etc", "opt"):
        layers = f"lowerdir=/{name},upperdir={folder}/{name}-upper,workdir={folder}/{name}-work"
        mount("-t", "overlay", "overlay", "-o", layers, f"/{name}")
    Path("/run/bed/sysfs").mkdir(parents=True)
    mount("--bind", folder / "sysfs", "/run/bed/sysfs")


def lay_out_sys() -> None:
    """A sysfs mounted in the node's network namespace shows the node's links; the cgroups are the machine's."""
    Path("/run/cgroup").mkdir()
    mount("--rbind", "/sys/fs/cgroup", "/run/cgroup")
    mount("-t", "sysfs", "sysfs", "/sys")
    mount("--rbind", "/run/cgroup", "/sys/fs/cgroup")
    subprocess.run(["umount", "-l", "-R", "/run/cgroup"], check=True)


def lay_out_proc() -> None:
    mount("-t", "proc", "proc", "/proc")
    for name, value in SHIELDED_SYSCTLS.items():
        if not Path("/proc/sys", name).exists():
            continue
        copy = Path("/run/bed/sysctl", name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(value + "\n")
        mount("--bind", copy, Path("/proc/sys", name))


def lay_out_dev() -> None:
    """A small /dev of its own: a privileged pod sees no disk of the machine, and stand-in devices stay in the node."""
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/dev")
    for name, (major, minor) in DEVICES.items():
        os.mknod(f"/dev/{name}", 0o020666, os.makedev(major, minor))
        os.chmod(f"/dev/{name}", 0o666)
    for name, (kind, options) in DEVICE_MOUNTS.items():
        os.mkdir(f"/dev/{name}")
        mount("-t", kind, "-o", options, kind, f"/dev/{name}")
    for link, target in DEVICE_LINKS.items():
        os.symlink(target, f"/dev/{link}")


def reap_forever() -> None:
    """Orphans of the node become children of process 1; unread, they would pile up as zombies."""
    signals = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    while signal.sigwait(signals) != signal.SIGTERM:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    subprocess.run(["hostname", name], check=True)
    lay_out_files(folder)
    lay_out_sys()
    lay_out_proc()
    lay_out_dev()
    mount("--make-rshared", "/")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    (folder / "ready").touch()
    reap_forever()


if __name__ == "__main__":
    main()
