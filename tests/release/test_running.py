"""What was built runs: both images, the one for arm64 by emulation, and the package on other versions of Python."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dranet
from tests.cluster.kubebed.cache import cached
from tests.cluster.kubebed.fetch import Package, unpacked
from tests.release.layouts import unpack
from tests.release.making import PROJECT
from tools import apt

EMULATOR = Package("qemu-user-static", "bookworm")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
UNPRIVILEGED = "65534:65534"
PYTHONS = {"3.11": "bookworm", "3.13": "trixie", "3.14": "forky"}
"""By the Debian they come from. 3.12 was in none."""
EXAMPLE = PROJECT / "examples/4-aks-gb300"
PLAN = ("plan", "-f", str(EXAMPLE), "--shape", "nd-gb300-v6=4", "-o", "json")


@pytest.fixture(scope="module", params=sorted(MACHINES))
def inside(request: pytest.FixtureRequest, dist: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How to run the image's Python, without root; emulated where this machine is another."""
    if os.geteuid() != 0:
        pytest.skip("changing root needs root")
    root = tmp_path_factory.mktemp(request.param)
    root.chmod(0o755)
    unpack(dist / "image", request.param, root)
    enter = ["chroot", f"--userspec={UNPRIVILEGED}", str(root)]
    if platform.machine() == MACHINES[request.param]:
        return [*enter, "/usr/bin/python3", "-I"]
    name = f"qemu-{MACHINES[request.param]}-static"
    shutil.copy(unpacked(EMULATOR) / "usr/bin" / name, root / name)
    return [*enter, f"/{name}", "/usr/bin/python3", "-I"]


def answer(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_image_tells_its_version(inside: list[str]) -> None:
    assert answer([*inside, "/dranet", "--version"]) == f"dranet {dranet.__version__}\n"


def test_everything_the_driver_imports_loads_in_the_image(inside: list[str]) -> None:
    code = "import platform, re2, yaml, sqlite3, ssl, ctypes, dranet.node.server.daemon; print(platform.machine())"
    assert answer([*inside, "-c", code]).strip() in MACHINES.values()


@pytest.fixture(scope="module")
def expected(dist: Path) -> str:
    return answer([sys.executable, "-m", "dranet", *PLAN])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", PYTHONS)
def test_the_package_plans_the_same_on_this_python(version: str, dist: Path, tmp_path: Path, expected: str) -> None:
    [wheel] = dist.glob("*.whl")
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"--target={site}", f"--python-version={version}"]
    answer([*pip, "--only-binary=:all:", str(wheel)])
    assert not (site / "grpclib").exists()
    code = f"import sys; sys.path.insert(0, {str(site)!r}); from dranet.cli.main import main; main(sys.argv[1:])"
    command, environment = interpreter(version)
    done = subprocess.run(
        [*command, "-I", "-c", code, *PLAN], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    ran = subprocess.run([*command, "-V"], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(f"Python {version}.")


def interpreter(version: str) -> tuple[list[str], dict[str, str]]:
    """Debian's, unpacked; run by its own loader, since its C library may be newer than this machine's."""
    root = cached(f"deb/python{version}-{PYTHONS[version]}", lambda folder: _fetch(version, folder))
    [loader] = (root / "usr").glob("lib*/ld-linux-*") if version != "3.11" else root.glob("lib/*/ld-linux-*")
    folders = ":".join(str(found) for found in (root / "usr/lib", root / "lib") for found in found.glob("*-linux-gnu"))
    command = [str(loader), "--library-path", folders, str(root / f"usr/bin/python{version}")]
    return command, {"PYTHONHOME": str(root / "usr"), "PATH": os.environ["PATH"]}


def _fetch(version: str, folder: Path) -> None:
    archive = apt.Archive(folder / "apt", apt.source(PYTHONS[version]))
    archive.update()
    apt.unpack(archive.closure(f"python{version}", "libstdc++6"), folder)
    shutil.rmtree(folder / "apt")


def test_uvx_runs_a_command_of_the_wheel(dist: Path, tmp_path: Path, expected: str) -> None:
    """uv from the index, the libraries too; then without any network of its own."""
    [wheel] = dist.glob("*.whl")
    libraries = tmp_path / "libraries"
    answer([sys.executable, "-m", "pip", "download", "--quiet", f"--dest={libraries}", str(wheel)])
    environment = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_PYTHON_DOWNLOADS": "never"}
    offline = ["--offline", "--no-index", f"--find-links={libraries}", f"--python={sys.executable}"]
    command = [str(uv() / "uvx"), *offline, f"--from={wheel}", "dranet", *PLAN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def uv() -> Path:
    def fetch(folder: Path) -> None:
        answer([sys.executable, "-m", "pip", "install", "--quiet", f"--target={folder}", "uv==0.13.7"])

    return cached("uv-0.13.7", fetch) / "bin"
