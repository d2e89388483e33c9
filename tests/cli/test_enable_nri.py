"""NRI is switched on where it is off, in the file's own words, and a node where it listens is not touched."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dranet.cli.installing.containerd_config import PLUGIN, with_nri
from dranet.model.errors import DranetError

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


def test_only_nris_own_switch_is_turned() -> None:
    assert with_nri(OFF) == OFF.replace("disable = true # since", "disable = false # since")


@pytest.mark.parametrize("text", ["", 'version = 2\n[debug]\n  level = "info"', "version = 3\nimports = []\n"])
def test_a_file_that_says_nothing_of_nri_gets_the_section_after_what_it_has(text: str) -> None:
    before, after = tomllib.loads(text or "version = 2"), tomllib.loads(with_nri(text))
    assert after["plugins"].pop(PLUGIN)["disable"] is False
    assert not after.pop("plugins")
    assert after == before


def test_a_file_with_nri_on_stays_as_it_is() -> None:
    on = with_nri(OFF)
    assert with_nri(on) == on


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("version = 1\n", "version 1"),
        ("[debug]\n", "version 1"),
        ("version = [", "cannot be read"),
        (f'version = 2\nplugins."{PLUGIN}" = {{disable = true}}\n', "by hand"),
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_refused(text: str, word: str) -> None:
    with pytest.raises(DranetError, match=word):
        with_nri(text)


def test_where_nri_listens_nothing_is_written_and_nothing_restarted(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "nri.sock"))
        listening.listen()
        done = run(tmp_path, restart="false")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "config.toml").exists()


def test_a_socket_file_without_a_listener_does_not_count(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "nri.sock"))
    done = run(tmp_path, restart="true")
    assert done.returncode == 1
    assert "nobody listens" in done.stderr
    assert PLUGIN in (tmp_path / "config.toml").read_text()


def test_a_restart_that_fails_is_said_with_its_words(tmp_path: Path) -> None:
    done = run(tmp_path, restart="ls /no/such/file")
    assert done.returncode == 1
    assert "/no/such/file" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="entering another root folder needs root")
def test_paths_are_the_nodes_own_where_var_run_is_a_link_from_the_root(tmp_path: Path) -> None:
    (tmp_path / "run/nri").mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "run/nri/nri.sock"))
        listening.listen()
        command = [sys.executable, "-m", "dranet", "enable-nri", f"--root={tmp_path}", "--restart=false"]
        done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "NRI listens at /var/run/nri/nri.sock; nothing to do\n"), done.stderr
