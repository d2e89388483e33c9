"""Network sysctls of a namespace, read and written through a `/proc` that can be elsewhere.

Which namespace a file below `/proc/sys/net` belongs to is decided by the thread that opens it, so this works on a
thread inside the namespace; the host's `/proc` mounted at another place serves as well (in a container the usual one
is often read-only). Interface names come from users: a path is taken apart and refused unless every part is a plain
name below `net/`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from dranet.kernel import namespaces
from dranet.kernel.errors import KernelError


class SysctlError(KernelError):
    """A sysctl that cannot be named, read or written."""


def interface_path(family: str, interface: str, key: str) -> str:
    """The path of a setting of one interface: `net/ipv4/conf/eth0/arp_ignore`."""
    if interface in ("all", "default"):
        raise SysctlError(f"{interface} is not an interface in sysctl paths; give the interface another name")
    return _checked(f"net/{family}/conf/{_one_part(interface)}/{_one_part(key)}")


def _one_part(name: str) -> str:
    if "/" in name:
        raise SysctlError(f"{name!r} cannot be part of a sysctl path: it holds a slash")
    return name


def write_all(namespace_fd: int | None, values: Mapping[str, str], *, proc_root: str = "/proc") -> None:
    """Write settings (`net/ipv4/...` to text) in order inside a namespace; raises with every refusal."""
    if refused := write_each(namespace_fd, values, proc_root=proc_root):
        raise SysctlError("; ".join(refused))


def write_each(namespace_fd: int | None, values: Mapping[str, str], *, proc_root: str = "/proc") -> list[str]:
    """The same for who goes on without those that are refused: the refusals, in words.

    All in one visit of the namespace: entering it means a thread of its own, which costs more than the writing.
    """
    # Checked before the visit, all of them: a name that is no name must fail while nothing is written yet.
    checked = {_checked(path): value for path, value in values.items()}
    refused: list[str] = []

    def work() -> None:
        for path, value in checked.items():
            try:
                _write(f"{proc_root}/sys/{path}", path, value)
            except SysctlError as error:
                refused.append(str(error))

    _inside(namespace_fd, work)
    return refused


def _inside(namespace_fd: int | None, work: namespaces.Work) -> None:
    if namespace_fd is None:
        work()
    else:
        namespaces.run_inside(namespace_fd, work)


def _checked(path: str) -> str:
    parts = path.split("/")
    if parts[0] != "net" or len(parts) < 3 or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise SysctlError(f"{path!r} is not the path of a network sysctl; expected plain names below net/")
    return path


def _write(full: str, path: str, value: str) -> None:
    try:
        # Not followed: a link in the place of a setting leads out of the tree that the path was checked for. And not
        # created, as Path.write_text would under a root that is no real /proc.
        fd = os.open(full, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise SysctlError(f"cannot set sysctl {path} to {value!r}: {error.strerror} ({full})") from error
