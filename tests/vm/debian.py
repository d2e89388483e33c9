"""Programs of another Debian: unpacked side by side (`tools.apt`), never installed.

They start through their own dynamic loader (`command`), so they do not care which distribution the machine runs.
"""

from pathlib import Path

from tools.apt import Archive, source

LOADER = "usr/lib64/ld-linux-x86-64.so.2"
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/systemd")


def archive(suite: str, folder: Path, architecture: str = "") -> Archive:
    """One Debian suite, ready to be asked, with package lists and downloads kept under `folder`."""
    made = Archive(folder, source(suite), architecture)
    made.update()
    return made


def command(root: Path, program: str, *arguments: str) -> list[str]:
    """The command line that starts a program unpacked under `root`, on any distribution."""
    libraries = ":".join(str(root / folder) for folder in LIBRARIES)
    return [str(root / LOADER), "--library-path", libraries, str(root / program), *arguments]
