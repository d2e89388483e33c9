"""A real container runtime and its CRI, for tests of what speaks NRI to it."""

from .containerd import Containerd, Containerd17
from .cri import Cri
from .crio import Crio
from .runtime import Runtime

__all__ = ["Containerd", "Containerd17", "Cri", "Crio", "Runtime"]
