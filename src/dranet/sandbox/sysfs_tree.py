"""Put a synthetic sysfs tree on a disk, so that discovery can be pointed at it."""

from __future__ import annotations

import os
from pathlib import Path

from dranet.topology.shape import Shape
from dranet.topology.shape_sysfs import SysfsTree, sysfs_tree


def write_tree(tree: SysfsTree, root: str | Path) -> None:
    """Write every file and symlink of ``tree`` below ``root``; running it twice gives the same tree."""
    base = Path(root)
    for relative, content in sorted(tree.files.items()):
        path = base / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    for relative, target in sorted(tree.symlinks.items()):
        path = base / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        # The kernel's targets always exist; a driver or bus folder may so far be empty here.
        Path(os.path.normpath(path.parent / target)).mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        path.symlink_to(target)


def write_sysfs(shape: Shape, root: str | Path, index: int = 0) -> None:
    """The ``/sys`` of the ``index``-th node of ``shape``, below ``root``."""
    write_tree(sysfs_tree(shape, index), root)
