"""A real containerd and its CRI, for tests of what speaks NRI to it."""

from .cri import Cri
from .daemon import Containerd

__all__ = ["Containerd", "Cri"]
