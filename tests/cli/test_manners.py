"""What people type: help, files in every form, and plain words about accidents."""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dranet.cli.main import COMMANDS, load_command
from tests.inputs import claim, run, workers

SHAPE = ("--shape", "a4-highgpu-8g")
JOB = claim("gpu: gpu.nvidia.com\nnic: dranet", "gpu, nic: resource.kubernetes.io/pcieRoot") + workers(2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def subcommands() -> Iterator[tuple[str, ...]]:
    for name in COMMANDS:
        command = load_command(name)
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, below) for below in command.commands)


@pytest.mark.parametrize("words", list(subcommands()), ids=" ".join)
def test_every_command_has_h_and_shows_examples(words: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", "dranet", *words, "-h"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"dranet {' '.join(words)}" in done.stdout.partition("Example")[2]


@pytest.mark.parametrize("command", ["plan", "explain", "lint", "suggest"])
def test_files_are_named_the_same_way_everywhere(command: str, folder: Path, url: str) -> None:
    outputs = [
        run(command, folder / "job.yaml", *SHAPE),
        run(command, "-f", folder / "job.yaml", *SHAPE),
        run(command, folder, *SHAPE),
        run(command, f"{url}/job.yaml", *SHAPE),
        run(command, "-", *SHAPE, stdin=JOB),
    ]
    assert [done.exit_code for done in outputs] == [0] * 5, [done.output for done in outputs]
    first = {done.stdout.splitlines()[0] for done in outputs}
    assert len(first) == 1 or command == "lint"


def test_a_url_that_does_not_answer_is_an_error(url: str) -> None:
    done = run("plan", f"{url}/nowhere.yaml", *SHAPE)
    assert done.exit_code == 1 and "nowhere.yaml: cannot read the URL: File not found" in done.output


def test_a_kustomization_is_built_with_k(folder: Path) -> None:
    (folder / "kustomization.yaml").write_text("resources: [job.yaml]\nnamePrefix: my-\n")
    assert "is not built; to build it: -k" in run("plan", folder, *SHAPE).output
    if shutil.which("kubectl"):
        assert "my-w-0" in run("plan", "-k", folder, *SHAPE).stdout
    assert "no such folder" in run("plan", "-k", folder / "nowhere", *SHAPE).output


@pytest.mark.parametrize(
    ("line", "message", "fix"),
    [
        ("\tname: p", "the line is indented with a tab", "indent with spaces"),
        ("  name: {{ .Values.name }}", "a Helm template, not a manifest", "helm template"),
        ("  name: my: pod", "the line has two keys", "quote the value"),
        ("<<<<<<< HEAD", "conflict marker", "resolve the conflict"),
    ],
)
def test_accidents_in_yaml_are_named_in_plain_words(tmp_path: Path, line: str, message: str, fix: str) -> None:
    (tmp_path / "pod.yaml").write_text(f"apiVersion: v1\nkind: Pod\nmetadata:\n{line}\n")
    done = run("lint", tmp_path / "pod.yaml")
    assert done.exit_code == 1
    assert message in done.stdout and fix in done.stdout


def test_a_misspelt_shape_has_a_hint() -> None:
    assert (
        "no machine shape 'a4-higgpu-8g'; did you mean a4-highgpu-8g?" in run("topo", "--shape", "a4-higgpu-8g").output
    )


def test_a_misspelt_template_has_a_hint(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(claim("nic: dranet", name="one-nic") + workers(1, template="one-nick"))
    done = run("lint", tmp_path / "job.yaml")
    assert "no ResourceClaimTemplate 'one-nick'" in done.stdout and "did you mean 'one-nic'?" in done.stdout


def test_a_template_without_requests_is_a_finding(tmp_path: Path) -> None:
    head = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: t}\n"
    (tmp_path / "t.yaml").write_text(head + "spec: {spec: {devices: {}}}\n")
    assert "ResourceClaimTemplate 't' requests no device [no-requests]" in run("lint", tmp_path / "t.yaml").stdout
