"""In a real browser: links to one object, counters that filter, the table of pods, and the sheet on a phone."""

from __future__ import annotations

import csv
import io

import pytest

from .browser import Browser
from .lab import Lab

pytestmark = pytest.mark.xdist_group("browser")
WORKER = "default/nccl-test-dra-worker-0"
FILES = ("4-aks-gb300/claims.yaml", "4-aks-gb300/unaligned.yaml", "4-aks-gb300/mpijob.yaml")


@pytest.fixture
def page(window: Browser, cluster: Lab) -> Browser:
    """Two GB300 machines, on each a worker whose NIC is on the other side."""
    cluster.call(lambda: cluster.machines("nd-gb300-v6=2"))
    cluster.do(cluster.run(FILES, template="1nic-unaligned"))
    window.open(cluster.url)
    window.wait("state.holders.size === 2")
    return window


@pytest.mark.parametrize(
    ("link", "title"),
    [
        (f"#pod/{WORKER}", "nccl-test-dra-worker-0"),
        ("#node/nd-gb300-v6-1", "nd-gb300-v6-1"),
        ("#device/nd-gb300-v6-1/dra.net/pci-0101-00-00-0", "NIC0 mlx5_0"),
    ],
)
def test_a_link_opens_its_object_in_a_new_window(page: Browser, cluster: Lab, link: str, title: str) -> None:
    page.call("POST", "/url", {"url": "about:blank"})
    page.open(cluster.url + link)
    page.wait("state.picked !== null && !toDraw.size")
    assert page.text("#picked h2") == title
    assert page.value("document.getElementById('picked').hidden") is False


def test_the_address_follows_the_selection_and_the_back_button_returns(page: Browser) -> None:
    page.click(f"[data-holder='{WORKER}']")
    assert page.value("location.hash") == f"#pod/{WORKER}"
    page.run("pick({node: 'nd-gb300-v6-1', device: 0})")
    assert page.value("location.hash") == "#device/nd-gb300-v6-1/gpu.nvidia.com/gpu-0"
    page.run("history.back()")
    page.wait("state.picked.holder")
    assert page.text("#picked h2") == "nccl-test-dra-worker-0"
    page.press("Escape")
    assert page.value("[location.hash, state.picked]") == ["", None]


def test_a_link_to_nothing_selects_nothing(page: Browser, cluster: Lab) -> None:
    for link in ("#pod/default/none", "#device/nd-gb300-v6-1/dra.net/none", "#node/%ZZ", "#other"):
        page.run("location.hash = arguments[0]", link)
        page.wait("!toDraw.size")
        assert page.value("state.picked") is None


def test_a_counter_shows_only_its_machines(page: Browser, cluster: Lab) -> None:
    cluster.call(lambda: cluster.machines("a4-highgpu-8g"))
    page.wait("state.nodes.size === 3 && !toDraw.size")
    page.do("[...document.querySelectorAll('#totals button')].find((one) => one.textContent.includes('✖ 2')).click()")
    assert page.value("view.order.map((entry) => entry.name)") == ["nd-gb300-v6-0", "nd-gb300-v6-1"]
    page.do("document.querySelector('#totals button').click()")
    assert page.value("view.total") == 3


def test_the_table_sorts_by_a_column_and_is_saved_as_csv(page: Browser) -> None:
    page.click("#tab-table")
    page.run("sortBy(1)")
    assert page.texts("#table tbody tr td:nth-child(2)") == ["nccl-test-dra-worker-0", "nccl-test-dra-worker-1"]
    page.run("sortBy(1)")
    assert page.texts("#table tbody tr td:nth-child(2)") == ["nccl-test-dra-worker-1", "nccl-test-dra-worker-0"]
    [first, _] = list(csv.DictReader(io.StringIO(page.value("csvText()"))))
    assert (first["Pod"], first["Node"], first["NICs"]) == ("nccl-test-dra-worker-1", "nd-gb300-v6-1", "1")
    assert (first["Worst pair"], first["Misplaced"]) == ("SYS", "yes")


@pytest.mark.parametrize("value", ["=1+1", "+1", "-1", "@x", "\t=1"])
def test_a_cell_is_never_a_formula(page: Browser, value: str) -> None:
    assert page.run("return csvCell(arguments[0])", value) == f"'{value}"


def test_on_a_phone_a_tap_opens_a_sheet_with_the_details(page: Browser) -> None:
    page.size(390, 844)
    try:
        page.wait("getComputedStyle(document.querySelector('aside')).position === 'fixed'")
        assert page.text("#picked h2") == ""
        page.run("document.querySelector('.machine').click()")
        page.wait("document.querySelector('aside').getBoundingClientRect().height > 500")
        assert page.text("#picked h2") == "nd-gb300-v6-0"
        page.click("#close")
        page.wait("document.querySelector('aside').getBoundingClientRect().height < 60")
    finally:
        page.size(1440, 900)


def test_machines_with_trouble_come_first_whatever_their_kind(page: Browser, cluster: Lab) -> None:
    cluster.call(lambda: cluster.machines("a4-highgpu-8g=3"))
    page.wait("state.nodes.size === 5 && !toDraw.size")
    assert page.value("view.order.map((entry) => entry.name).slice(0, 2)") == ["nd-gb300-v6-0", "nd-gb300-v6-1"]


def test_on_a_phone_the_first_machine_is_in_sight(page: Browser) -> None:
    page.size(390, 800)
    try:
        page.wait("document.querySelector('.machine').getBoundingClientRect().top < innerHeight / 2")
        names = page.value("[...document.querySelectorAll('#tools select')].map((one) => one.labels[0].textContent)")
        assert [name.split()[0] for name in names] == ["Namespace", "Job", "Group", "Show"]
    finally:
        page.size(1440, 900)
