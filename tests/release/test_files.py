"""What `make release` leaves in its folder: everything named, summed up, traced to its commit, and the same twice."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
import yaml

import dranet
from tests.release.layouts import blob, images, top
from tests.release.making import PROJECT, REGISTRY, SOURCE, release, run

VERSION = dranet.__version__
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dranet/image"


def test_all_files_are_there(dist: Path) -> None:
    wheel = f"dranet-{VERSION}-py3-none-any.whl"
    wanted = {wheel, f"{wheel}.spdx.json", f"dranet-{VERSION}.tar.gz", f"dranet-{VERSION}.tgz", "install.yaml"}
    wanted |= {f"dranet-{VERSION}-kustomize.tar.gz", f"kubectl-dranet-{VERSION}.tar.gz", "krew.yaml"}
    wanted |= {f"dranet-{VERSION}-image-{name}.spdx.json" for name in ("amd64", "arm64")}
    assert {path.name for path in dist.iterdir()} == wanted | {
        "SHA256SUMS", "provenance.json", "release-notes.md", "image", "chart",
    }  # fmt: skip


@pytest.mark.timeout(300)
def test_the_same_commit_gives_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    """The second time with downloads at hand and no finished layer, in other folders."""
    cache = tmp_path / "dranet/image"
    cache.mkdir(parents=True)
    for kept in CACHE.iterdir():
        if not kept.name.startswith("layer-"):
            (cache / kept.name).symlink_to(kept)
    again = release(tmp_path / "again", XDG_CACHE_HOME=str(tmp_path))
    assert sorted(cache.glob("layer-*")), "no layer was made"
    assert (again / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()
    checked = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=again, check=False)
    assert checked.returncode == 0


def test_every_file_is_summed_up(dist: Path) -> None:
    listed = {line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()}
    assert listed == {str(path.relative_to(dist)) for path in dist.rglob("*") if path.is_file()} - {"SHA256SUMS"}


def test_the_image_is_one_index_of_two_architectures_of_at_most_thirty_megabytes(dist: Path) -> None:
    found = dict(images(dist / "image"))
    assert sorted(found) == ["amd64", "arm64"]
    for architecture, manifest in found.items():
        config = json.loads(blob(dist / "image", manifest["config"]))
        assert config["architecture"] == architecture
        assert config["config"]["Labels"]["org.opencontainers.image.source"] == SOURCE
        assert sum(len(blob(dist / "image", layer)) for layer in manifest["layers"]) <= 30_000_000


def test_both_architectures_have_the_same_code_of_ours(dist: Path) -> None:
    last = [manifest["layers"][-1]["digest"] for _, manifest in images(dist / "image")]
    assert last[0] == last[1]


def test_chart_and_manifest_name_the_image_by_digest(dist: Path) -> None:
    digest = top(dist / "image")["digest"]
    assert f'image: "{REGISTRY}/dranet@{digest}"' in (dist / "install.yaml").read_text()
    with tarfile.open(dist / f"dranet-{VERSION}.tgz") as archive:
        values = archive.extractfile("dranet/values.yaml").read().decode()  # type: ignore[union-attr]
    assert f"  repository: {REGISTRY}/dranet\n" in values
    assert f'  digest: "{digest}"\n' in values


def test_the_overlays_name_the_image_by_digest(dist: Path, tmp_path: Path, kubectl: str) -> None:
    with tarfile.open(dist / f"dranet-{VERSION}-kustomize.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    clouds = [path for path in (tmp_path / f"dranet-{VERSION}").iterdir() if path.name != "base"]
    assert len(clouds) == 5
    for cloud in clouds:
        rendered = subprocess.run([kubectl, "kustomize", cloud], capture_output=True, text=True, check=True).stdout
        assert f"image: {REGISTRY}/dranet@{top(dist / 'image')['digest']}\n" in rendered


def test_krew_finds_the_plugin_by_its_checksum_and_runs_the_package(dist: Path, tmp_path: Path) -> None:
    archive = dist / f"kubectl-dranet-{VERSION}.tar.gz"
    manifest = yaml.safe_load((dist / "krew.yaml").read_text())
    [platform] = manifest["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"] == f"{SOURCE}/releases/download/v{VERSION}/{archive.name}"
    with tarfile.open(archive) as content:
        content.extractall(tmp_path, filter="data")
    assert {path.name for path in tmp_path.iterdir()} == {entry["from"] for entry in platform["files"]}
    plugin, uvx = tmp_path / platform["bin"], tmp_path / "uvx"
    nothing = subprocess.run([plugin, "status"], env={"PATH": "/nonexistent"}, capture_output=True, text=True)
    assert (nothing.returncode, f"dranet=={VERSION}" in nothing.stderr) == (127, True)
    uvx.write_text('#!/bin/sh\necho "$@"\n')
    uvx.chmod(0o755)
    ran = subprocess.run([plugin, "status"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert ran.stdout == f"--from dranet=={VERSION} kubectl-dranet status\n"


def test_the_provenance_names_commit_locks_and_every_product(dist: Path) -> None:
    statement = json.loads((dist / "provenance.json").read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    for path in dist.iterdir():
        if path.is_file() and path.name not in {"SHA256SUMS", "provenance.json"}:
            assert subjects.pop(path.name) == hashlib.sha256(path.read_bytes()).hexdigest()
    pushed = {f"{REGISTRY}/dranet": dist / "image", f"{REGISTRY}/charts/dranet": dist / "chart"}
    assert subjects == {name: top(layout)["digest"].removeprefix("sha256:") for name, layout in pushed.items()}
    definition = statement["predicate"]["buildDefinition"]
    tree, *locks = definition["resolvedDependencies"]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert tree["digest"]["gitCommit"].removesuffix("-dirty") == head.stdout.strip()
    for lock in locks:
        assert lock["digest"]["sha256"] == hashlib.sha256((PROJECT / lock["uri"]).read_bytes()).hexdigest()


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_the_images_list_of_contents_has_every_package_and_library(dist: Path, architecture: str) -> None:
    document = json.loads((dist / f"dranet-{VERSION}-image-{architecture}.spdx.json").read_text())
    packages = {package["name"]: package for package in document["packages"]}
    locks = PROJECT / "deploy/image"
    debian = {line.split("_")[0] for line in (locks / "packages.lock").read_text().splitlines()}
    libraries = {line.split("==")[0] for line in (locks / "requirements.txt").read_text().splitlines() if "==" in line}
    assert set(packages) == debian | libraries | {"dranet", f"dranet-image-{architecture}"}
    assert all(len(package["checksums"]) == 1 for package in packages.values())
    ours = hashlib.sha256((dist / f"dranet-{VERSION}-py3-none-any.whl").read_bytes()).hexdigest()
    assert packages["dranet"]["checksums"][0]["checksumValue"] == ours
    contained = {line["relatedSpdxElement"] for line in document["relationships"]}
    assert contained == {package["SPDXID"] for package in document["packages"]}


def test_the_package_says_what_it_is(dist: Path) -> None:
    with zipfile.ZipFile(dist / f"dranet-{VERSION}-py3-none-any.whl") as wheel:
        [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        said = message_from_string(wheel.read(metadata).decode())
        assert f"dranet-{VERSION}.data/data/share/man/man1/dranet.1" in wheel.namelist()
    assert f"Source, {SOURCE}" in said.get_all("Project-URL", [])
    assert "Programming Language :: Python :: 3.14" in said.get_all("Classifier", [])
    plain = [line for line in said.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert not [line for line in plain if line.startswith(("grpclib", "protobuf", "prometheus"))]


def test_the_notes_are_the_changelogs_section(dist: Path) -> None:
    notes = (dist / "release-notes.md").read_text()
    assert notes.startswith(f"# dranet {VERSION}\n")
    assert "\n## " not in notes


def test_another_version_than_the_trees_is_refused(tmp_path: Path) -> None:
    done = run("release.py", "9.9.9", "--dirty", "--output", tmp_path / "dist")
    assert done.returncode == 1
    assert f"VERSION=9.9.9 was asked for and the tree is {VERSION}" in done.stderr
    assert not (tmp_path / "dist").exists()
