"""The image: the same bytes from the same files, in the form runtimes read, with everything the driver imports."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dranet


def load(deploy: Path, name: str) -> ModuleType:
    """The image's scripts are no package: load one by path."""
    spec = importlib.util.spec_from_file_location(f"image_{name}", deploy / "image" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def oci(deploy: Path) -> ModuleType:
    return load(deploy, "oci")


class Archive:
    """An OCI archive, opened."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            self.files = {item.name: tar.extractfile(item).read() for item in tar if item.isfile()}  # type: ignore[union-attr]
        [self.entry] = json.loads(self.files["index.json"])["manifests"]
        self.manifest = json.loads(self.blob(self.entry))
        self.config: dict[str, Any] = json.loads(self.blob(self.manifest["config"]))

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        content = self.files[f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}"]
        assert len(content) == descriptor["size"]
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
        return content

    def layers(self) -> list[bytes]:
        return [gzip.decompress(self.blob(layer)) for layer in self.manifest["layers"]]


def small(oci: ModuleType, path: Path) -> Archive:
    def fill(writer: Any) -> None:
        writer.file("etc/deep/file", b"content", 0o600)
        writer.symlink("bin", "usr/bin")

    image = oci.make_image([oci.make_layer(fill)], oci.ImageConfig("amd64", command=("/x",)))
    oci.write_archive(path, "localhost/x:1", image)
    return Archive(path)


def test_the_same_files_give_the_same_bytes(oci: ModuleType, tmp_path: Path) -> None:
    small(oci, tmp_path / "a.tar")
    small(oci, tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_digests_sizes_and_names_are_right(oci: ModuleType, tmp_path: Path) -> None:
    archive = small(oci, tmp_path / "a.tar")
    assert archive.entry["annotations"]["io.containerd.image.name"] == "localhost/x:1"
    assert archive.config["config"]["Cmd"] == ["/x"]
    assert "Entrypoint" not in archive.config["config"]
    hashes = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in archive.layers()]
    assert archive.config["rootfs"]["diff_ids"] == hashes


def test_files_have_root_owner_no_time_and_parent_directories(oci: ModuleType, tmp_path: Path) -> None:
    [layer] = small(oci, tmp_path / "a.tar").layers()
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        members = {item.name: item for item in tar}
    assert list(members) == ["etc", "etc/deep", "etc/deep/file", "bin"]
    assert {(item.uid, item.gid, item.mtime) for item in members.values()} == {(0, 0, 0)}
    assert members["etc/deep/file"].mode == 0o600


def test_leaves_out_tests_and_documentation_of_python(deploy: Path) -> None:
    debian = load(deploy, "debian")
    assert debian.wanted(f"usr/lib/python{debian.PYTHON}/asyncio/tasks.py")
    assert not debian.wanted(f"usr/lib/python{debian.PYTHON}/test/regrtest.py")
    assert not debian.wanted("usr/share/doc/libc6/copyright.gz")


def test_every_dependency_of_the_package_is_locked(deploy: Path) -> None:
    project = tomllib.loads((deploy.parent / "pyproject.toml").read_text())["project"]
    wanted = [
        line.partition(">")[0] for line in (*project["dependencies"], *project["optional-dependencies"]["driver"])
    ]
    locked = re.findall(r"^([a-z0-9-]+)==", (deploy / "image" / "requirements.txt").read_text(), re.MULTILINE)
    assert wanted
    assert {name.lower() for name in wanted} <= set(locked)


@pytest.mark.parametrize("name", ["requirements.txt", "build-requirements.txt"])
def test_packages_are_locked_by_hash(deploy: Path, name: str) -> None:
    text = (deploy / "image" / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9a-z.]+(\s+--hash=sha256:[0-9a-f]{64})+", line), line


def test_the_tool_that_builds_our_wheel_is_locked_too(deploy: Path) -> None:
    text = (deploy.parent / "pyproject.toml").read_text()
    [wanted] = re.findall(r'^requires = \["([a-z]+)"\]', text, re.MULTILINE)
    assert f"{wanted}==" in (deploy / "image" / "build-requirements.txt").read_text()


def test_both_recipes_require_hashes(deploy: Path, dockerfile: Dockerfile) -> None:
    docker = [part for step in dockerfile.all("RUN") for part in step.split("&&") if " pip install " in f" {part} "]
    recipe = (deploy / "image/wheels.py").read_text()
    python = re.findall(r"pip\((\"(?:download|install)\".*?)\),?\n", recipe)
    assert (len(docker), len(python)) == (3, 2)
    assert recipe.count('locked = ["--require-hashes"') == 2
    for call in [*docker, *python]:
        assert "--require-hashes" in call or "*locked" in call or "--no-build-isolation" in call, call


def test_image_has_security_updates(deploy: Path, dockerfile: Dockerfile) -> None:
    debian = load(deploy, "debian")
    lines = debian.sources("http://x/debian", "http://x/debian-security").splitlines()
    suites = [line.split()[-2] for line in lines]
    assert suites == ["trixie", "trixie-security"]
    assert all("signed-by=" in line for line in lines)
    assert "apt-get upgrade" in " ".join(dockerfile.last("RUN"))


def test_root_depends_on_packages_and_not_on_the_mirror(deploy: Path) -> None:
    debian = load(deploy, "debian")

    def fingerprint(uris: str) -> str:
        return str(debian.fingerprint(debian.files(uris)))

    now = "'http://a/libssl3t64_1_amd64.deb' libssl3t64_1_amd64.deb 10 SHA256:aa\n'http://a/x.deb' x.deb 3 SHA256:bb\n"
    assert fingerprint(now) == fingerprint(now.replace("http://a", "http://b"))
    assert fingerprint(now) == fingerprint("".join(reversed(now.splitlines(keepends=True))))
    assert fingerprint(now) != fingerprint(now.replace("libssl3t64_1_", "libssl3t64_2_"))
    assert fingerprint(now) != fingerprint(now.replace("SHA256:aa", "SHA256:ac"))
    with pytest.raises(SystemExit, match="names no packages"):
        fingerprint("")


def test_the_lock_has_every_package_of_both_architectures(deploy: Path) -> None:
    debian = load(deploy, "debian")
    lines = debian.LOCK.read_text().splitlines()
    assert all(re.fullmatch(r"\S+\.deb \d+ SHA256:[0-9a-f]{64}", line) for line in lines)
    locked = sorted(tuple(line.split()[0].split("_")[::2]) for line in lines)
    wanted = ((name, f"{architecture}.deb") for name in debian.PACKAGES for architecture in debian.MULTIARCH)
    assert locked == sorted(wanted)


@pytest.mark.parametrize(
    ("newest", "difference"),
    [
        ("a_1_amd64.deb 3 SHA256:aa", ""),
        ("a_2_amd64.deb 3 SHA256:ac", "Debian's packages differ from packages.lock (a_2_amd64.deb)"),
        ("a_1_amd64.deb 3 SHA256:ff", "Debian's packages differ from packages.lock (a_1_amd64.deb)"),
    ],
)
def test_the_lock_is_compared_by_version_and_hash(deploy: Path, newest: str, difference: str) -> None:
    lock = "a_1_amd64.deb 3 SHA256:aa\nb_1_arm64.deb 3 SHA256:bb\n"
    assert load(deploy, "debian").lock_difference(lock, [newest], "amd64") == difference


class Dockerfile:
    """The other recipe, line by line."""

    def __init__(self, deploy: Path) -> None:
        text = (deploy / "image" / "Dockerfile").read_text().replace("\\\n", " ")
        words = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
        self.steps = [(word, rest) for word, rest in words]
        last = max(place for place, (word, _) in enumerate(self.steps) if word == "FROM")
        self.final = self.steps[last:]

    def all(self, word: str) -> list[str]:
        return [rest for found, rest in self.steps if found == word]

    def last(self, word: str) -> list[str]:
        return [rest for found, rest in self.final if found == word]


@pytest.fixture(scope="module")
def dockerfile(deploy: Path) -> Dockerfile:
    return Dockerfile(deploy)


def test_both_recipes_start_the_same_command_with_the_same_environment(deploy: Path, dockerfile: Dockerfile) -> None:
    build = load(deploy, "build")
    assert [json.loads(command) for command in dockerfile.last("CMD")] == [list(build.COMMAND)]
    assert dict(line.split("=") for line in dockerfile.last("ENV")) == build.ENV
    assert dockerfile.last("ENTRYPOINT") == dockerfile.last("USER") == []


def test_both_recipes_have_the_same_base_python_and_folders(deploy: Path, dockerfile: Dockerfile) -> None:
    build, debian = load(deploy, "build"), load(deploy, "debian")
    assert {line.split()[0] for line in dockerfile.all("FROM")} == {"$BASE"}
    assert dockerfile.all("ARG") == [f"BASE=debian:{debian.SUITE}-slim"]
    assert f"--from=build /site /{build.SITE}" in dockerfile.last("COPY")
    compiling = next(step for step in dockerfile.all("RUN") if "compileall" in step)
    assert f"-p /{build.SITE} /site" in compiling, "tracebacks name other files"
    assert " -f " in compiling, "pip's own byte code, which names its temporary folder, stays"
    links = "".join(dockerfile.last("RUN"))
    assert all(f"ln -s /dranet /usr/local/bin/{name}" in links for name in build.COMMANDS)


def test_dockerfile_copies_existing_files(deploy: Path, dockerfile: Dockerfile) -> None:
    ignored = (deploy / "image" / "Dockerfile.dockerignore").read_text().split()
    for step in dockerfile.all("COPY"):
        if not step.startswith("--from"):
            source = step.split()[0]
            assert (deploy.parent / source).exists(), source
            assert source not in ignored
    assert os.access(deploy / "image" / "dranet", os.X_OK), "the launcher is copied with its mode"


def test_the_dockerfile_names_the_version_of_the_package(deploy: Path) -> None:
    assert f"localhost/dranet:{dranet.__version__} ." in (deploy / "image" / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def built() -> Archive:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dranet" / "image"
    path = cache / "dranet-amd64.tar"
    if not path.exists():
        pytest.skip("no image in the cache: python deploy/image/build.py")
    return Archive(path)


@pytest.fixture(scope="module")
def root(built: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.geteuid() != 0:
        pytest.skip("changing root needs root")
    folder = tmp_path_factory.mktemp("root")
    for layer in built.layers():
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            tar.extractall(folder, filter="tar")
    return folder


def inside(root: Path, *command: str) -> str:
    done = subprocess.run(["chroot", str(root), *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_built_image_has_no_shell(root: Path) -> None:
    assert not (root / "usr/bin/sh").exists()
    assert not (root / "usr/bin/dpkg").exists()


def test_driver_imports_load_in_the_built_image(root: Path) -> None:
    code = (
        "import asyncio, ctypes, sqlite3, ssl, grpclib.server, h11, msgspec, prometheus_client, yaml, rich, click\n"
        "import re2\n"
        "import dranet.node.server.daemon\n"
        "from google.protobuf.internal import api_implementation\n"
        "print(api_implementation.Type())"
    )
    assert inside(root, "/usr/bin/python3", "-I", "-c", code).strip() == "upb"


def test_launcher_prints_help(root: Path) -> None:
    assert "Commands" in inside(root, "/dranet", "--help")


def test_the_reference_drivers_arguments_reach_the_driver(root: Path) -> None:
    command = ["chroot", str(root), "/dranet", "--v=4", "--no-such-flag"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown argument '--no-such-flag'" in done.stderr


def test_every_module_has_byte_code(root: Path) -> None:
    [site] = (root / "usr/local/lib").glob("python3.*/dist-packages/dranet")
    for source in site.rglob("*.py"):
        assert list((source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")), source
