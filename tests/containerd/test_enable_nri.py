"""What `dranet enable-nri` writes means to a real containerd what it shall mean."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from dranet.cli.enable_nri import PLUGIN, with_nri
from tests.cluster.kubebed import parts
from tests.containerd.conftest import _skip_unless_possible


def understood(text: str, folder: Path) -> dict[str, object]:
    """NRI's settings as containerd reads them."""
    (folder / "config.toml").write_text(text)
    containerd = parts.containerd_dir() / "containerd"
    command = [str(containerd), "--config", str(folder / "config.toml"), "config", "dump"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(tomllib.loads(printed)["plugins"][PLUGIN])


@pytest.mark.parametrize("version", [2, 3])
def test_containerd_reads_the_edited_file_as_nri_on(version: int, tmp_path: Path) -> None:
    _skip_unless_possible("containerd")
    off = f'version = {version}\n[plugins."{PLUGIN}"]\n  disable = true\n'
    assert understood(off, tmp_path)["disable"] is True
    assert understood(with_nri(off), tmp_path)["disable"] is False
    added = understood(with_nri(f"version = {version}\n"), tmp_path)
    assert (added["disable"], added["plugin_request_timeout"]) == (False, "5s")
