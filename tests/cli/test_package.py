"""The package on a laptop: commands without the driver's libraries, completion, and the man page."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from dranet import __version__
from dranet.cli.completion import completion
from dranet.cli.main import COMMANDS, DRIVER_LIBRARIES

PROJECT = Path(__file__).resolve().parents[2]
WITHOUT_LIBRARIES = f"""
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {set(DRIVER_LIBRARIES)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from dranet.cli.main import main
main(sys.argv[1:])
"""


def without_libraries(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_LIBRARIES, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "demo"])
def test_a_command_loads_without_the_drivers_libraries(name: str) -> None:
    done = without_libraries(name, "--help")
    assert done.returncode == 0, done.stderr


def test_a_plan_is_made_without_the_drivers_libraries() -> None:
    done = without_libraries("plan", "-f", "examples/4-aks-gb300", "--shape", "nd-gb300-v6=4")
    assert done.returncode == 0, done.stderr
    assert "all_gather" in done.stdout


@pytest.mark.parametrize(("words", "status"), [(["run"], 2), (["--v=4"], 2), (["demo"], 1)])
def test_missing_driver_libraries_name_the_install_command(words: list[str], status: int) -> None:
    done = without_libraries(*words)
    assert done.returncode == status
    assert done.stderr.count("\n") == 1, done.stderr
    assert "(grpclib, protobuf, prometheus-client): pip install 'dranet[driver]'" in done.stderr


def test_driver_extra_lists_exactly_the_required_libraries() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extra = {line.partition(">")[0] for line in project["optional-dependencies"]["driver"]}
    assert extra == set(DRIVER_LIBRARIES.values())
    assert extra.isdisjoint(line.partition(">")[0] for line in project["dependencies"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_valid(shell: str) -> None:
    lines = CliRunner().invoke(completion, [shell]).stdout
    assert "_DRANET_COMPLETE" in lines
    program = shutil.which(shell)
    if program is None:
        return  # what it prints is checked above; whether the shell takes it, where there is such a shell
    done = subprocess.run([program, "-n"], input=lines, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_bash_completes_the_names_of_shapes() -> None:
    words = {"COMP_WORDS": "dranet plan --shape nd-gb", "COMP_CWORD": "3", "_DRANET_COMPLETE": "bash_complete"}
    command = [sys.executable, "-c", "from dranet.cli.main import main; main([])"]
    done = subprocess.run(command, env=words, capture_output=True, text=True, check=False)
    assert "plain,nd-gb300-v6" in done.stdout


def test_the_man_page_has_every_command_and_this_version() -> None:
    page = (PROJECT / "docs/man/dranet.1").read_text()
    assert f'"dranet {__version__}"' in page
    for name in COMMANDS:
        assert f".SS {name}".replace("-", "\\-") in page


def test_the_man_page_is_clean_roff() -> None:
    if shutil.which("groff") is None:
        pytest.skip("no groff on this machine")
    command = ["groff", "-man", "-Tutf8", "-ww", "-z", str(PROJECT / "docs/man/dranet.1")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
