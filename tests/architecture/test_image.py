"""The daemon needs six layers; the image has these, and the others only for the commands that run from it.

One image serves the daemon, the web page (`dranet serve`), the helm test (`dranet status`), the init container
(`dranet enable-nri`) and the Job of `dranet check --emit-job`. The page and the Job need `scheduler`, `advise` and
`web`. Nothing in the image needs `testing`, the demo and `dranet init`: `deploy/image/left-out.txt` lists them.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import layers

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dranet"
DAEMON = ("core", "linux", "kubernetes", "cel", "machines", "node")
LEFT_OUT = (ROOT / "deploy" / "image" / "left-out.txt").read_text().split()
IGNORED = shutil.ignore_patterns("__pycache__")


def run(tree: Path, *args: str) -> str:
    """Run `dranet` from a copy of the package in a fresh interpreter."""
    program = f"import sys; sys.path.insert(0, {str(tree)!r}); import dranet.cli.main as m; m.main(sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", program, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as the image has it, made by the code that builds the image."""
    tree = tmp_path_factory.mktemp("image")
    shutil.copytree(SOURCE, tree / "dranet", ignore=IGNORED)
    spec = importlib.util.spec_from_file_location("image_build", ROOT / "deploy" / "image" / "build.py")
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = build
    spec.loader.exec_module(build)
    build.remove_unneeded(tree / "dranet")
    return tree


def test_daemon_runs_with_its_six_layers_alone(tmp_path: Path) -> None:
    for name in DAEMON:
        shutil.copytree(SOURCE / name, tmp_path / "dranet" / name, ignore=IGNORED)
    for file in ("__init__.py", "cli/__init__.py", "cli/main.py"):
        (tmp_path / "dranet" / file).parent.mkdir(exist_ok=True)
        shutil.copy(SOURCE / file, tmp_path / "dranet" / file)
    assert "--hostname-override" in run(tmp_path, "run", "--help")


def test_image_leaves_out_what_no_command_in_it_needs(image: Path) -> None:
    missing = [name for name in layers.names() if not (image / "dranet" / name).is_dir()]
    assert missing == ["testing"]
    assert [name for name in LEFT_OUT if (image / "dranet" / name).exists()] == []


@pytest.mark.parametrize(
    "command", ["run", "serve", "status", "check", "check pair", "enable-nri", "pod-info", "inventory"]
)
def test_commands_of_the_image_run_without_what_is_left_out(image: Path, command: str) -> None:
    assert "--" in run(image, *command.split(), "--help")


def test_help_in_the_image_lists_only_its_commands(image: Path) -> None:
    listed = {line.split()[0] for line in run(image, "--help").partition("Commands:")[2].splitlines() if line.strip()}
    assert {"serve", "status", "check"} <= listed
    assert listed & {"demo", "init"} == set()


def test_both_image_recipes_leave_out_the_same_files() -> None:
    dockerfile = (ROOT / "deploy" / "image" / "Dockerfile").read_text()
    assert "rm -r $(cat /source/deploy/image/left-out.txt)" in dockerfile
