"""Write network sysctls of a namespace, through a configurable `/proc`.

The thread that opens a file in `/proc/sys/net` decides the namespace, so a thread inside the namespace does it. The
host's `/proc` may be mounted elsewhere (in a container the usual one is often read-only). Interface names come from
users, so a path is refused unless every part is a plain name below `net/`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dranet.core.errors import KernelError
from dranet.linux import namespaces
from dranet.linux.files import write_existing


class SysctlError(KernelError):
    """A sysctl has an invalid path or cannot be written."""


def interface_path(family: str, interface: str, key: str) -> str:
    """The path of a setting of one interface: `net/ipv4/conf/eth0/arp_ignore`."""
    if interface in ("all", "default"):
        raise SysctlError(f"{interface} is not an interface in sysctl paths; give the interface another name")
    return _checked(f"net/{family}/conf/{_one_part(interface)}/{_one_part(key)}")


def _one_part(name: str) -> str:
    if "/" in name:
        raise SysctlError(f"{name!r} cannot be part of a sysctl path: it contains a slash")
    return name


def write_all(namespace_fd: int | None, values: Mapping[str, str], *, proc_root: str = "/proc") -> None:
    """Write settings (`net/ipv4/...` to text) in order inside a namespace; raises with all refusals."""
    if refused := write_each(namespace_fd, values, proc_root=proc_root):
        raise SysctlError("; ".join(refused))


def write_each(namespace_fd: int | None, values: Mapping[str, str], *, proc_root: str = "/proc") -> list[str]:
    """Like `write_all`, but returns the refusals.

    One thread for all settings, because starting it costs more than the writes.
    """
    # Check all first: an invalid path must fail before anything is written.
    checked = {_checked(path): value for path, value in values.items()}
    refused: list[str] = []

    def work() -> None:
        for path, value in checked.items():
            try:
                _write(f"{proc_root}/sys/{path}", path, value)
            except SysctlError as error:
                refused.append(str(error))

    if namespace_fd is None:
        work()
    else:
        namespaces.run_inside(namespace_fd, work)
    return refused


def _checked(path: str) -> str:
    parts = path.split("/")
    if parts[0] != "net" or len(parts) < 3 or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise SysctlError(f"{path!r} is not the path of a network sysctl; expected plain names below net/")
    return path


def _write(full: str, path: str, value: str) -> None:
    try:
        write_existing(full, value)
    except OSError as error:
        raise SysctlError(f"cannot set sysctl {path} to {value!r}: {error.strerror} ({full})") from error
