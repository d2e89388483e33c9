"""System call numbers, which differ between processors, and struct layouts, which must not."""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import pkgutil
import platform
import struct

import pytest

import dranet.linux
from dranet.core import file_locks
from dranet.linux import sysfs
from dranet.linux.traffic import bpf

KERNELS_OWN = {"x86_64": 321, "aarch64": 280}
"""The number of bpf(2), from the kernel's tables of system calls (arm64 has the generic one)."""
SAME_EVERYWHERE = {"_FSOPEN": 430, "_FSCONFIG": 431, "_FSMOUNT": 432}
"""From 424 on all processors share their numbers."""
MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(dranet.linux.__path__, f"{dranet.linux.__name__}.")
]
LAYOUTS = {
    f"{module.__name__}.{name}": value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, struct.Struct)
}


@pytest.mark.parametrize("machine", KERNELS_OWN)
def test_bpf_has_the_number_of_the_machine(machine: str) -> None:
    assert bpf.SYSCALLS[machine] == KERNELS_OWN[machine]


def test_this_machine_is_one_of_them_and_its_kernel_knows_the_number() -> None:
    assert platform.machine() in KERNELS_OWN
    with pytest.raises(bpf.BpfError) as refused:
        bpf.call(9999, b"", "a command that no kernel has")
    assert refused.value.errno in (errno.EINVAL, errno.EPERM)


@pytest.mark.parametrize("name", SAME_EVERYWHERE)
def test_a_mount_call_has_the_number_of_every_machine(name: str) -> None:
    number = getattr(sysfs, name)
    assert number == SAME_EVERYWHERE[name]
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(ctypes.c_long(number), ctypes.c_long(-1), ctypes.c_long(-1), ctypes.c_long(-1)) == -1
    assert ctypes.get_errno() != errno.ENOSYS, os.strerror(ctypes.get_errno())


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_the_same_on_every_machine(name: str) -> None:
    """Standard sizes and no padding of the compiler's: `=` is the machine's byte order, `!` the wire's."""
    assert LAYOUTS[name].format[0] in "=!<>"


def test_the_kernels_lock_is_as_large_as_on_every_64_bit_machine() -> None:
    """The one in the compiler's own layout: 2 + 2 and 4 to fill, 8, 8, 4 and 4 to fill."""
    assert file_locks._FLOCK.size == 32
    assert file_locks._FLOCK.unpack(bytes([1, 0, 2, 0, *[0] * 4, 3, *[0] * 7, 4, *[0] * 7, 5, *[0] * 7])) == (
        1,
        2,
        3,
        4,
        5,
    )
