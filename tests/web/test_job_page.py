"""In a real browser: a job as a whole, planned pods among running ones, and commands to copy."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from .browser import Browser
from .fleets import fleet_file
from .lab import EXAMPLES, Lab

pytestmark = pytest.mark.xdist_group("browser")
WORKER = "default/nccl-test-dra-worker-0"
GB300 = ("4-aks-gb300/claims.yaml", "4-aks-gb300/unaligned.yaml", "4-aks-gb300/mpijob.yaml")


@pytest.fixture
def running(window: Browser, cluster: Lab) -> Browser:
    """An MPI job of two workers on two of three machines."""
    cluster.call(lambda: cluster.machines("nd-gb300-v6=3"))
    cluster.do(cluster.run(GB300, template="2nic-aligned"))
    window.open(cluster.url)
    window.wait("state.holders.size === 2")
    return window


def test_a_job_shows_its_pods_blocks_and_bandwidth_and_filters_its_machines(running: Browser) -> None:
    running.run("pick({holder: arguments[0]})", WORKER)
    running.run(
        "[...document.querySelectorAll('#picked .link')].find((one) => one.textContent.includes('MPIJob')).click()"
    )
    running.wait("document.getElementById('job-figures')")
    said = running.text("#picked")
    assert "MPIJob/nccl-test-dra" in said and "2 on 2 machines" in said
    assert re.search(r"expected: [0-9.]+ to [0-9.]+ GB/s", said) and "measured: not reported by any pod" in said
    assert len(running.texts("#picked [data-holder]")) == 2
    running.run("document.querySelector('#picked button[aria-pressed]').click()")
    assert running.value("view.order.map((entry) => entry.name)") == ["nd-gb300-v6-0", "nd-gb300-v6-1"]
    assert running.value("document.getElementById('job').value") == "default/MPIJob/nccl-test-dra"


WRITTEN_DOWN = """
window.said = [];
const button = document.querySelector("#picked .command button");
new MutationObserver(() => window.said.push(button.textContent)).observe(button, { childList: true });
"""
"""What the button says, which it says for two seconds: a browser on a busy machine may be asked later than that."""


def test_commands_name_the_pod_and_its_claims_and_are_copied(running: Browser) -> None:
    running.run(
        "navigator.clipboard.writeText = async (text) => { window.copied = text; }; pick({holder: arguments[0]})",
        WORKER,
    )
    lines = running.texts("#picked .command code")
    assert lines[0] == "kubectl describe pod/nccl-test-dra-worker-0 --namespace=default"
    assert any(line.startswith("kubectl get resourceclaim/nccl-test-dra-worker-0-") for line in lines)
    running.run(WRITTEN_DOWN)
    running.click("#picked .command button")
    running.wait("window.said.some((text) => text.includes('Copied'))")
    assert running.value("window.copied") == lines[0]


@pytest.mark.parametrize("name", ["a; rm -rf /", "$(reboot)", "it's", "a\nreboot", "x`id`", "<img>"])
def test_a_malicious_name_stays_one_word_of_the_shell(running: Browser, name: str) -> None:
    line = running.run("return kubectl('describe', `pod/${arguments[0]}`)", name)
    assert shlex.split(line) == ["kubectl", "describe", f"pod/{name}"]


def test_planned_pods_are_distinguished_on_the_map(window: Browser, tmp_path: Path) -> None:
    window.open(fleet_file(tmp_path, 1000))
    window.run("""const pod = {...[...state.holders.values()][0], key: "plan team/new", node: "node-00000"};
        state.plan = {pods: [named(pod)]};
        refreshNodes();""")
    assert window.texts("#key li[data-mark=planned]") == ["┅ planned here1"]
    assert "1 pod planned" in window.text("#under")


def test_a_planned_pod_has_another_outline_than_a_running_one(running: Browser) -> None:
    job = (EXAMPLES / "4-aks-gb300/mpijob.yaml").read_text().replace("nccl-test-dra", "another")
    job = job.replace("1nic-aligned", "2nic-aligned")
    manifest = f"{(EXAMPLES / '4-aks-gb300/claims.yaml').read_text()}\n---\n{job}"
    running.run("document.getElementById('manifest').value = arguments[0]; tryManifest()", manifest)
    running.wait("document.querySelector('#rows .device.planned')")
    dashes = running.run("""return [".planned:not(.in-use)", ".in-use:not(.planned)"].map((state) =>
        getComputedStyle(document.querySelector(`#rows .device${state} .body`)).strokeDasharray);""")
    assert dashes[0] != dashes[1]
    assert any(text.startswith("plan") for text in running.texts("#rows .device.planned text:last-child"))
