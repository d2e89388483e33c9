"""Write the synthetic sysfs tree of a machine shape to a disk, for `--sysfs`."""

from __future__ import annotations

import os
from pathlib import Path

from dranet.machines.shape import Shape
from dranet.machines.shape_sysfs import SysfsTree, sysfs_tree


def _write_tree(tree: SysfsTree, root: str | Path) -> None:
    """Write all files and symlinks of ``tree`` below ``root``. Idempotent."""
    base = Path(root)
    for relative, content in sorted(tree.files.items()):
        path = base / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    for relative, target in sorted(tree.symlinks.items()):
        path = base / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        # In the kernel's tree all targets exist; the folder of a driver or bus may not exist here yet.
        Path(os.path.normpath(path.parent / target)).mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        path.symlink_to(target)


def write_sysfs(shape: Shape, root: str | Path, index: int = 0) -> None:
    """The ``/sys`` of the ``index``-th node of ``shape``, below ``root``."""
    _write_tree(sysfs_tree(shape, index), root)
