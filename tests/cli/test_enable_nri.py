"""NRI is switched on where it is off, in the file's own words, and a node where it listens is not touched."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dranet.cli.enable_nri import PLUGIN, with_nri
from dranet.core.errors import DranetError

OFF = f"""version = 2
# mine
[plugins."io.containerd.grpc.v1.cri"]
  disable = true
[plugins.'{PLUGIN}']
  disable = true # since 2024
[debug]
  level = "info"
"""


def run(folder: Path, *, restart: str = "false") -> subprocess.CompletedProcess[str]:
    flags = {"config": folder / "config.toml", "socket": folder / "nri.sock", "restart": restart, "wait": 1}
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    command = [sys.executable, "-m", "dranet", "enable-nri", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_changes_only_the_nri_setting() -> None:
    assert with_nri(OFF) == OFF.replace("disable = true # since", "disable = false # since")


@pytest.mark.parametrize("text", ["", 'version = 2\n[debug]\n  level = "info"', "version = 3\nimports = []\n"])
def test_appends_the_section_to_a_file_without_nri(text: str) -> None:
    before, after = tomllib.loads(text or "version = 2"), tomllib.loads(with_nri(text))
    assert after["plugins"].pop(PLUGIN)["disable"] is False
    assert not after.pop("plugins")
    assert after == before


def test_keeps_a_file_with_nri_enabled() -> None:
    on = with_nri(OFF)
    assert with_nri(on) == on


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("version = 1\n", "version 1"),
        ("[debug]\n", "version 1"),
        ("version = [", "not valid TOML"),
        (f'version = 2\nplugins."{PLUGIN}" = {{disable = true}}\n', "by hand"),
    ],
)
def test_rejects_a_file_that_cannot_be_changed_safely(text: str, word: str) -> None:
    with pytest.raises(DranetError, match=word):
        with_nri(text)


def test_does_nothing_if_nri_answers(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "nri.sock"))
        listening.listen()
        done = run(tmp_path, restart="false")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "config.toml").exists()


def test_ignores_a_stale_socket_file(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "nri.sock"))
    done = run(tmp_path, restart="true")
    assert done.returncode == 1
    assert "NRI does not listen" in done.stderr
    assert PLUGIN in (tmp_path / "config.toml").read_text()


def test_reports_a_failed_restart(tmp_path: Path) -> None:
    done = run(tmp_path, restart="ls /no/such/file")
    assert done.returncode == 1
    assert "/no/such/file" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="entering another root folder needs root")
def test_resolves_symlinks_in_the_root_of_the_node(tmp_path: Path) -> None:
    (tmp_path / "run/nri").mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "run/nri/nri.sock"))
        listening.listen()
        command = [sys.executable, "-m", "dranet", "enable-nri", f"--root={tmp_path}", "--restart=false"]
        done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "NRI is already enabled at /var/run/nri/nri.sock\n"), done.stderr
