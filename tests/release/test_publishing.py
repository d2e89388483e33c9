"""What `make publish` pushes arrives as it was made, in a real registry, whichever way the registry asks who it is."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import dranet
from tests.cluster.kubebed import parts
from tests.release.layouts import top
from tests.release.making import run
from tests.release.registries import PASSWORD, USER, passwords, registry, tokens

LOGIN = {"REGISTRY_USER": USER, "REGISTRY_PASSWORD": PASSWORD}


@pytest.fixture
def own(dist: Path, tmp_path: Path) -> Path:
    """A copy: publishing writes the registry into it."""
    return Path(shutil.copytree(dist, tmp_path / "dist"))


@pytest.fixture
def open_registry(tmp_path: Path) -> Iterator[str]:
    with registry(tmp_path) as address:
        yield address


def digest_at(address: str, repository: str) -> str:
    accepted = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"
    url = f"http://{address}/v2/{repository}/manifests/{dranet.__version__}"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accepted})) as answer:
        return str(answer.headers["Docker-Content-Digest"])


def test_image_and_chart_arrive_under_their_digests(own: Path, dist: Path, open_registry: str) -> None:
    done = run("publish.py", f"{open_registry}/team", "--dist", own)
    assert done.returncode == 0, done.stderr
    assert digest_at(open_registry, "team/dranet") == top(dist / "image")["digest"], "the image does not change"
    assert digest_at(open_registry, "team/charts/dranet") == top(own / "chart")["digest"]
    assert f"helm install dranet oci://{open_registry}/team/charts/dranet" in done.stdout
    assert run("publish.py", f"{open_registry}/team", "--dist", own).stdout == done.stdout, "again is no harm"


def test_helm_pulls_a_chart_that_names_the_image_where_it_is(own: Path, open_registry: str, tmp_path: Path) -> None:
    run("publish.py", f"{open_registry}/team", "--dist", own)
    chart = f"oci://{open_registry}/team/charts/dranet"
    command = [str(parts.add_on(parts.HELM)), "template", "dranet", chart, "--plain-http"]
    done = subprocess.run([*command, "--version", dranet.__version__], capture_output=True, text=True, check=False)
    assert f'image: "{open_registry}/team/dranet@{top(own / "image")["digest"]}"' in done.stdout, done.stderr


def test_sums_and_provenance_follow_the_registry(own: Path, open_registry: str) -> None:
    run("publish.py", f"{open_registry}/team", "--dist", own)
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=own, check=True)
    subjects = [subject["name"] for subject in json.loads((own / "provenance.json").read_text())["subject"]]
    assert f"{open_registry}/team/dranet" in subjects


def test_a_password_is_asked_for_and_given(own: Path, tmp_path: Path) -> None:
    with registry(tmp_path, passwords(tmp_path)) as address:
        refused = run("publish.py", f"{address}/team", "--dist", own, DOCKER_CONFIG=str(tmp_path))
        assert refused.returncode == 1
        assert "HTTP 401" in refused.stderr
        assert "log in with helm registry login, or set REGISTRY_USER and REGISTRY_PASSWORD" in refused.stderr
        assert run("publish.py", f"{address}/team", "--dist", own, **LOGIN).returncode == 0


def test_a_login_that_docker_and_helm_keep_is_used(own: Path, tmp_path: Path) -> None:
    with registry(tmp_path, passwords(tmp_path)) as address:
        auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        (tmp_path / "config.json").write_text(json.dumps({"auths": {address: {"auth": auth}}}))
        assert run("publish.py", f"{address}/team", "--dist", own, DOCKER_CONFIG=str(tmp_path)).returncode == 0


def test_a_token_is_fetched_where_the_registry_says(own: Path, tmp_path: Path) -> None:
    with tokens(tmp_path) as auth, registry(tmp_path, auth) as address:
        refused = run("publish.py", f"{address}/team", "--dist", own, REGISTRY_USER=USER, REGISTRY_PASSWORD="wrong")
        assert refused.returncode == 1
        assert "asking for a token" in refused.stderr
        done = run("publish.py", f"{address}/team", "--dist", own, **LOGIN)
        assert done.returncode == 0, done.stderr


def test_without_a_release_it_says_what_to_do(tmp_path: Path) -> None:
    done = run("publish.py", "registry.invalid/team", "--dist", tmp_path)
    assert done.returncode == 1
    assert f"make release VERSION={dranet.__version__}" in done.stderr


def test_no_answer_is_one_line(own: Path) -> None:
    done = run("publish.py", "127.0.0.1:1/team", "--dist", own)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
