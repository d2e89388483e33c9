"""Character devices below a root that can be set: their numbers, and making them where they are missing."""

from __future__ import annotations

import os
import stat

import msgspec

from dranet.kernel.errors import KernelError

INFINIBAND = "/dev/infiniband"


class CharDeviceFile(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A character device by its path inside the root."""

    path: str
    major: int
    minor: int
    mode: int
    uid: int
    gid: int


def describe(path: str, *, root: str = "/") -> CharDeviceFile | None:
    """The device at `path`; None when there is nothing or it is something else."""
    try:
        found = os.lstat(_below(root, path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise KernelError(f"cannot look at {path}: {error.strerror}") from error
    if not stat.S_ISCHR(found.st_mode):
        return None
    return CharDeviceFile(
        path=path,
        major=os.major(found.st_rdev),
        minor=os.minor(found.st_rdev),
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
    )


def rdma_devices(names: tuple[str, ...], *, root: str = "/") -> tuple[CharDeviceFile, ...]:
    """The devices of these names below /dev/infiniband, `rdma_cm` first; those that are missing are left out."""
    wanted = [name for name in dict.fromkeys(("rdma_cm", *names)) if "/" not in name]
    found = [describe(f"{INFINIBAND}/{name}", root=root) for name in wanted]
    return tuple(device for device in found if device is not None)


def make(device: CharDeviceFile, *, root: str = "/") -> None:
    """Make the device; one that is there already with the same numbers is left alone."""
    there = describe(device.path, root=root)
    if there is not None and (there.major, there.minor) == (device.major, device.minor):
        return
    full = _below(root, device.path)
    try:
        os.makedirs(os.path.dirname(full), exist_ok=True)
        os.mknod(full, stat.S_IFCHR | device.mode, os.makedev(device.major, device.minor))
        os.chmod(full, device.mode)
        os.chown(full, device.uid, device.gid)
    except OSError as error:
        raise KernelError(f"cannot make the character device {device.path}: {error.strerror}") from error


def _below(root: str, path: str) -> str:
    parts = path.split("/")
    if not path.startswith("/") or ".." in parts:
        raise KernelError(f"{path!r} is not an absolute path without '..'")
    return os.path.join(root, path.lstrip("/"))
