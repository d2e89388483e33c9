"""How container runtimes differ in what a plugin hears of them.

containerd's manner was seen with the real one. CRI-O's is written from its sources (2026): it takes the network
namespace away before it says that a sandbox stops, though it still names the path; its sandboxes have no process of
their own; it undoes a start that a plugin refused by stop and remove; what has stopped it does not stop again; it does
not tell which CDI devices a container names. NRI is on by default in both, with the same time-outs.
"""

from __future__ import annotations

from dataclasses import dataclass

from dranet.nri.runtime import Settings


@dataclass(frozen=True, slots=True)
class Manner:
    """One runtime's habits."""

    settings: Settings
    namespace_goes_first: bool = False
    """The namespace is gone when the stop hook is called."""
    tells_process: bool = True
    """A sandbox that runs has a process."""
    undoes_refused: bool = False
    """A sandbox that a plugin refused is stopped and removed."""
    stops_again: bool = True
    """The hook is called again for what has stopped already."""
    lists_twice: bool = True
    """A sandbox may be in the list more than once."""
    tells_cdi: bool = True
    """A container comes with the CDI devices it names."""
    runtime_handler: str = ""

    @property
    def name(self) -> str:
        return self.settings.name


CONTAINERD = Manner(Settings(name="containerd", version="v2.1.4"))
CRIO = Manner(
    Settings(name="cri-o", version="1.34.0"),
    namespace_goes_first=True,
    tells_process=False,
    undoes_refused=True,
    stops_again=False,
    lists_twice=False,
    tells_cdi=False,
    runtime_handler="crun",
)
MANNERS = (CONTAINERD, CRIO)
