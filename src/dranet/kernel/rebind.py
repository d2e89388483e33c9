"""A PCI function taken from its kernel driver and given back: the last way to get its netdev home.

The driver makes the netdev anew, in the machine's first network namespace, wherever the old one was and whoever kept
that namespace alive. Everything set on it is gone with it, and so is whatever else the function did: traffic, its RDMA
device, the virtual functions of a physical one.
"""

from __future__ import annotations

import os
import time

from dranet.kernel.errors import KernelError
from dranet.kernel.hardware import pci_function
from dranet.kernel.sysfs import Sysfs

WAIT_SECONDS = 10.0


class RebindError(KernelError):
    """A function that its driver did not take back; says what is left to do by hand."""


def rebind(sysfs_root: str, address: str, wait: float = WAIT_SECONDS) -> None:
    """Unbind the function and bind it to the same driver; returns when it has a netdev here again."""
    function = pci_function(Sysfs(sysfs_root), address)
    if function is None or function.driver is None:
        raise RebindError(f"{address} cannot be rebound: {'no such function' if function is None else 'no driver'}")
    if function.sriov_num_vfs:
        raise RebindError(
            f"{address} cannot be rebound: it has {function.sriov_num_vfs} virtual functions, which would vanish"
        )
    folder = f"{sysfs_root}/bus/pci/drivers/{function.driver}"
    _write(f"{folder}/unbind", address)
    _write(f"{folder}/bind", address)
    end = time.monotonic() + wait
    while not _has_netdev(sysfs_root, address):
        if time.monotonic() > end:
            raise RebindError(f"{address} was rebound to {function.driver}, but has no netdev here after {wait:g} s")
        time.sleep(0.02)


def _has_netdev(sysfs_root: str, address: str) -> bool:
    function = pci_function(Sysfs(sysfs_root), address)  # a fresh one: it remembers
    return function is not None and bool(function.netdevs)


def _write(path: str, text: str) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise RebindError(f"cannot write {text} to {path}: {error.strerror}; is sysfs mounted writable?") from error
