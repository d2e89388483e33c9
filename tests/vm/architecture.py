"""What differs between the two kinds of machine the driver runs on; everything else of the virtual machine is the same.

The emulator is always this machine's own program. What of the guest must run while its parts are made (Python, to
compile itself) runs by the user-mode emulator where the guest is of another kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.vm.debian import command


@dataclass(frozen=True)
class Architecture:
    name: str
    """As Debian says it, also in the names of its kernels."""
    kernel_name: str
    """As the kernel says it, also in the names of wheels and emulators."""
    extra_tools: tuple[str, ...]
    """Packages besides those of the recipe."""
    board: tuple[str, ...]
    """The emulator's words for main board and processor."""
    firmware: str
    """Below the tools, where the emulator does not find it itself."""
    console: str

    def part(self, name: str) -> str:
        """The name of a built part in the cache."""
        return name if self is AMD64 else f"{self.name}.{name}"

    def emulator(self, tools: Path) -> list[str]:
        data = tools / "usr/share"
        folders = [word for name in ("qemu", "seabios") for word in ("-L", str(data / name))]
        firmware = ["-bios", str(tools / self.firmware)] if self.firmware else []
        return [*command(tools, f"usr/bin/qemu-system-{self.kernel_name}", *folders), *firmware]

    def guest_program(self, tools: Path, root: Path, program: str, *arguments: str) -> list[str]:
        """The command line that starts a program of the guest's root on this machine."""
        if self is AMD64:
            return command(root, program, *arguments)
        return command(tools, f"usr/bin/qemu-{self.kernel_name}", "-L", str(root), str(root / program), *arguments)


AMD64 = Architecture(
    name="amd64",
    kernel_name="x86_64",
    extra_tools=(),
    board=("-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max"),
    firmware="",
    console="ttyS0",
)
# cortex-a76: "max" would authenticate every pointer, which costs an emulator dearly.
ARM64 = Architecture(
    name="arm64",
    kernel_name="aarch64",
    extra_tools=("qemu-system-arm", "qemu-efi-aarch64", "qemu-user"),
    board=("-machine", "virt,gic-version=3", "-accel", "tcg,thread=multi", "-cpu", "cortex-a76"),
    firmware="usr/share/qemu-efi-aarch64/QEMU_EFI.fd",
    console="ttyAMA0",
)
ARCHITECTURES = {kind.name: kind for kind in (AMD64, ARM64)}
