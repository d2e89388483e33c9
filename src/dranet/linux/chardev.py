"""Character devices below a configurable root: read and create them."""

from __future__ import annotations

import os
import stat

import msgspec

from dranet.core.errors import KernelError

INFINIBAND = "/dev/infiniband"


class CharDeviceFile(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A character device, by its path inside the root."""

    path: str
    major: int
    minor: int
    mode: int
    uid: int
    gid: int


def describe(path: str, *, root: str = "/") -> CharDeviceFile | None:
    """The device at `path`; None if nothing or something else is there."""
    try:
        found = os.lstat(_below(root, path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise KernelError(f"cannot read {path}: {error.strerror}") from error
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
    """The devices of these names below /dev/infiniband, `rdma_cm` first; missing ones are omitted."""
    wanted = [name for name in dict.fromkeys(("rdma_cm", *names)) if "/" not in name]
    found = [describe(f"{INFINIBAND}/{name}", root=root) for name in wanted]
    return tuple(device for device in found if device is not None)


def create(device: CharDeviceFile, *, root: str = "/") -> None:
    """Create the device unless it exists with the same numbers."""
    existing = describe(device.path, root=root)
    if existing is not None and (existing.major, existing.minor) == (device.major, device.minor):
        return
    full = _below(root, device.path)
    try:
        os.makedirs(os.path.dirname(full), exist_ok=True)
        os.mknod(full, stat.S_IFCHR | device.mode, os.makedev(device.major, device.minor))
        os.chmod(full, device.mode)
        os.chown(full, device.uid, device.gid)
    except OSError as error:
        raise KernelError(f"cannot create the character device {device.path}: {error.strerror}") from error


def _below(root: str, path: str) -> str:
    parts = path.split("/")
    if not path.startswith("/") or ".." in parts:
        raise KernelError(f"{path!r} is not an absolute path without '..'")
    return os.path.join(root, path.lstrip("/"))
