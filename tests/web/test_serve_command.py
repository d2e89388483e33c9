"""The command line of the page."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dranet.cli.main import load_group
from dranet.testing.apihttp import serve
from tests.cli.api import write_kubeconfig

from .test_server import a_cluster, ask


def run(*arguments: str) -> Result:
    return CliRunner().invoke(load_group(), ["serve", *arguments])


def test_an_export_is_one_file_of_html(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    result = run("--shape", "nd-gb300-v6=2", "--export", str(file))
    assert result.exit_code == 0, result.output
    assert file.read_text("utf-8").startswith("<!doctype html>")
    assert "nd-gb300-v6-1" in file.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--shape", "nd-gb300-v6", "--listen", "0.0.0.0:80"), "not a loopback address"),
        (("--shape", "nd-gb300-v6", "--listen", "nonsense"), "write HOST:PORT"),
        (("--shape", "nd-gb300-v6", "--kubeconfig", "x"), "cannot be used with --shape"),
        (("--shape", "no-such-shape",), "no-such-shape"),
        (("--slices", "/nowhere.yaml",), "no such file"),
        (("--kubeconfig", "/nowhere",), "/nowhere"),
        (("--shape", "nd-gb300-v6", "--export", "/nowhere/x.html"), "No such file"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_clear_line(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code != 0
    assert said in result.output
    assert "Traceback" not in result.output


def test_files_without_slices_are_refused_with_the_command_that_records_some(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n")
    assert "kubectl get resourceslices" in run("--slices", str(file)).output


DUMP = """
apiVersion: v1
kind: List
items:
- apiVersion: resource.k8s.io/v1beta1
  kind: ResourceSlice
  metadata: {name: s}
  spec:
    driver: dra.net
    nodeName: n
    pool: {name: n, generation: 1, resourceSliceCount: 1}
    devices: [{name: nic, basic: {attributes: {dra.net/rdma: {bool: true}}}}]
- apiVersion: resource.k8s.io/v1beta1
  kind: ResourceClaim
  metadata: {name: c, namespace: x}
  spec: {devices: {requests: [{name: nic, deviceClassName: dranet}]}}
  status:
    allocation: {devices: {results: [{request: nic, driver: dra.net, pool: n, device: nic}, {request: nic}]}}
    reservedFor: [{resource: pods, name: holder-of-the-nic, uid: "1"}]
- {apiVersion: v1, kind: Pod, metadata: {name: holder-of-the-nic, namespace: x}}
- {apiVersion: v1, kind: Pod}
"""


def test_a_recording_may_hold_claims_and_pods_and_odd_things(tmp_path: Path) -> None:
    (tmp_path / "dump.yaml").write_text(DUMP)
    result = run("--slices", str(tmp_path / "dump.yaml"), "--export", str(tmp_path / "page.html"))
    assert result.exit_code == 0, result.output
    html = (tmp_path / "page.html").read_text("utf-8")
    assert '"key":"x/holder-of-the-nic","node":"n"' in html


@pytest.mark.parametrize("option", ["--token", "--no-token"])
async def test_page_of_a_cluster_needs_the_token_of_the_printed_link(tmp_path: Path, option: str) -> None:
    async with serve(a_cluster()) as api:
        words = ["serve", "--listen", "127.0.0.1:0", option, "--kubeconfig", str(write_kubeconfig(tmp_path, api))]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dranet", *words, stdout=asyncio.subprocess.PIPE, env={**os.environ}
        )
        try:
            assert process.stdout is not None
            line = (await process.stdout.readline()).decode()
            found = re.search(r"http://127\.0\.0\.1:(\d+)/(?:\?token=(\S+))?", line)
            assert found, line
            port, token = int(found[1]), found[2]
            status, answer = await ask(port)
            assert (status, bool(token)) == ((401, True) if option == "--token" else (200, False))
            if token:
                assert "node-0" not in answer
                assert (await ask(port, "/?token=wrong"))[0] == 401
                status, answer = await ask(port, f"/?token={token}")
                assert status == 303 and f"={token}; HttpOnly; SameSite=Strict" in answer
                assert (await ask(port, Cookie=f"dranet-page={token}"))[0] == 200
                assert (await ask(port, "/events", Cookie="dranet-page=wrong"))[0] == 401
        finally:
            process.terminate()
            await process.wait()
