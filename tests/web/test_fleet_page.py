"""In a real browser: ten thousand machines fit one screen, are zoomed into and filtered, with little work each time.

How long that takes is measured by `python -m bench page`. Here the work itself is counted: elements made, lists sorted.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .browser import Browser
from .fleets import IN_BLOCK, STATES, fleet_file

pytestmark = pytest.mark.xdist_group("browser")
MANY = 10_000
FITS = """
const [map, box] = [document.getElementById("map"), document.getElementById("nodes")];
return [map.hidden, map.getBoundingClientRect().bottom <= box.getBoundingClientRect().bottom + 1,
  map.getBoundingClientRect().right <= innerWidth + 1, box.scrollHeight <= box.clientHeight + 1];
"""
CHOOSE = """
const place = document.getElementById(arguments[0]);
place.value = arguments[1];
place.dispatchEvent(new Event(place.tagName === "INPUT" ? "input" : "change"));
"""
CLICKED = """
const frame = view.map.frames.find((one) => one.title === arguments[0]), at = arguments[1];
const [x, y] = placeIn(frame, at, view.map.cell), box = document.getElementById("map").getBoundingClientRect();
const where = {clientX: box.left + x + view.map.cell / 2, clientY: box.top + y + view.map.cell / 2, bubbles: true};
document.getElementById("map").dispatchEvent(new MouseEvent("click", where));
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleets")


@pytest.fixture
def fleet(window: Browser, files: Path) -> Browser:
    window.open(fleet_file(files, MANY))
    return window


@pytest.mark.parametrize("count", [1_000, MANY])
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
@pytest.mark.parametrize("group", ["kind", "block", "health", "none"])
def test_every_machine_is_on_one_screen(
    window: Browser, files: Path, count: int, width: int, height: int, group: str
) -> None:
    window.size(width, height)
    try:
        window.open(fleet_file(files, count))
        window.run(CHOOSE, "group", group)
        assert window.run(FITS) == [False, True, True, True]
        assert window.value("view.order.length") == count
        apart = window.value("""new Set(view.map.frames.flatMap((frame) =>
            frame.nodes.map((_, i) => placeIn(frame, i, view.map.cell).join()))).size""")
        assert apart == count, "no two machines share a place"
    finally:
        window.size(1440, 900)


def test_ten_thousand_machines_cost_no_more_elements_than_a_small_cluster(fleet: Browser) -> None:
    assert fleet.value("document.querySelectorAll('main *').length") < 150
    assert fleet.value("document.querySelectorAll('*').length") < 2500


def test_the_legend_counts_every_state(fleet: Browser) -> None:
    said = {li.rstrip("0123456789"): int(li[len(li.rstrip("0123456789")) :]) for li in fleet.texts("#key li")}
    words = {mark: fleet.value(f"MARKS['{mark}'].word") for mark in set(STATES)}
    assert said == {words[mark]: number * MANY // len(STATES) for mark, number in Counter(STATES).items()}


@pytest.mark.parametrize("cell", [5, 6, 9, 14, 26])
def test_no_two_marks_differ_by_colour_alone(fleet: Browser, cell: int) -> None:
    """Drawn all in one colour, the marks are still different pictures, by at least a tenth of their dots."""
    inks: list[list[int]] = fleet.run(
        """return Object.keys(MARKS).map((mark) => {
        const made = picture(mark, arguments[0], () => "rgb(0, 0, 0)");
        const data = made.getContext("2d").getImageData(0, 0, made.width, made.height).data;
        return [...data].filter((_, i) => i % 4 === 3); });""",
        cell,
    )
    for i, one in enumerate(inks):
        for other in inks[i + 1 :]:
            different = sum(abs(a - b) > 60 for a, b in zip(one, other, strict=True))
            assert different >= len(one) / 10


def test_one_zooms_from_the_fleet_to_a_block_a_machine_a_nic_and_back(fleet: Browser) -> None:
    fleet.run(CHOOSE, "group", "block")
    fleet.run(CLICKED, "block-007", 3)
    assert fleet.text("#crumbs") == f"fleet\n›\nblock-007\n{IN_BLOCK} machines"
    shown = fleet.value("view.order.map((entry) => entry.name)")
    assert sorted(shown) == [f"node-{i:05}" for i in range(350, 400)]
    troubled = fleet.value("view.order.map((entry) => hasTrouble(state.nodes.get(entry.name)))")
    assert 0 < sum(troubled) < IN_BLOCK and troubled == sorted(troubled, reverse=True)
    fleet.click("[data-node='node-00352']")
    assert fleet.text("#crumbs") == "fleet\n›\nblock-007\n›\nnode-00352"
    assert "node-00352" in fleet.text("#picked h2")
    fleet.click("[data-node='node-00352'] .device.nic")
    assert fleet.text("#crumbs").endswith("node-00352\n›\nNIC0")
    assert "NIC0" in fleet.text("#picked h2")
    fleet.press("Escape")
    assert fleet.value("view.total") == IN_BLOCK
    fleet.click("#crumbs .link")
    assert fleet.value("[view.total, view.map !== null]") == [MANY, True]


def test_the_map_is_walked_with_the_keyboard_alone(fleet: Browser) -> None:
    fleet.run(CHOOSE, "group", "block")
    fleet.run("document.getElementById('map').focus()")
    fleet.press("Right", "Right")
    assert "node-00002" in fleet.text("#under") and "all NICs in use" in fleet.text("#under")
    fleet.press("Enter")
    assert fleet.value("state.zoom.group") == "block-000"
    fleet.press("Escape")
    assert fleet.value("view.total") == MANY


@pytest.mark.parametrize(
    ("choice", "value", "found"),
    [
        ("search", "node-01234", 1),
        ("search", "block-1", 100 * IN_BLOCK),
        ("search", "train-004", 30),
        ("job", "team/Job/train-011", 30),
        ("namespace", "team", 6 * MANY // 10),
    ],
)
def test_filters_narrow_ten_thousand_machines(fleet: Browser, choice: str, value: str, found: int) -> None:
    fleet.do(CHOOSE, choice, value)
    assert fleet.value("view.total") == found


@pytest.mark.parametrize("choice", ["search", "namespace", "job"])
def test_what_is_typed_or_chosen_is_drawn_in_turns_so_that_the_next_key_is_heard(fleet: Browser, choice: str) -> None:
    drawn = fleet.run(f"{CHOOSE} return [...toDraw].map((one) => one.name);", choice, "")
    assert drawn == ["refreshNodes", "drawPods", "drawTable"]


@pytest.mark.parametrize("fault", ["tainted", "elsewhere", "misplaced", "incomplete"])
def test_faults_narrow_ten_thousand_machines(fleet: Browser, fault: str) -> None:
    chip = f"[...document.querySelectorAll('#states button')].find((one) => one.textContent.includes('{fault}'))"
    fleet.do(f"{chip}.click()")
    assert fleet.value("[...new Set(view.map.frames.flatMap((frame) => frame.nodes.map(markOf)))]") == [fault]
    assert fleet.value("view.total") == MANY // len(STATES)


WORK = """
const counted = {sorts: 0, compares: 0, elements: 0};
const [sort, create, createNS] = [Array.prototype.sort, document.createElement, document.createElementNS];
Array.prototype.sort = function (compare) {
  counted.sorts += this.length > 1000;
  return sort.call(this, compare);
};
document.createElement = function (...how) { counted.elements += 1; return create.apply(document, how); };
document.createElementNS = function (...how) { counted.elements += 1; return createNS.apply(document, how); };
try { %s } finally {
  Array.prototype.sort = sort;
  Object.assign(document, {createElement: create, createElementNS: createNS});
}
return counted;
"""


@pytest.mark.parametrize(
    "deed",
    [
        "state.find = 'node-0'; refreshNodes(); drawPods();",
        "state.namespace = 'team'; refreshNodes(); drawPods();",
        "takeChange({number: 1e9, holders: [{...[...state.holders.values()][0], phase: 'Failed'}]}); drawAll();",
    ],
)
def test_a_key_pressed_or_a_change_sorts_nothing_long_and_makes_few_elements(fleet: Browser, deed: str) -> None:
    counted: dict[str, Any] = fleet.run(WORK % deed)
    assert counted["sorts"] == 0
    assert counted["elements"] < 1800, "two hundred pods in the list, and little else"


def test_a_tile_is_few_elements_however_many_devices_its_machine_has(fleet: Browser) -> None:
    counted: dict[str, Any] = fleet.run(WORK % "state.size = 'tile'; refreshNodes();")
    tiles = fleet.value("document.querySelectorAll('#rows .machine').length")
    assert 20 < tiles < 200, "those in sight and a little beyond"
    assert counted["elements"] <= 14 * tiles + 60


def test_a_step_of_scrolling_draws_the_rows_that_come_into_sight_and_nothing_else(fleet: Browser) -> None:
    fleet.run("state.size = 'tile'; state.group = 'none'; refreshNodes();")
    columns = fleet.value("view.order[0].columns")
    counted: dict[str, Any] = fleet.run(
        WORK % "document.getElementById('nodes').scrollTop += 2 * (TILE.h + 12); paint();"
    )
    assert counted["sorts"] == 0
    assert 0 < counted["elements"] <= 3 * columns * 14, "two rows, or three where one begins within a row"


def test_a_change_is_seen_on_the_map(fleet: Browser) -> None:
    before = fleet.texts("#key li[data-mark=free]")
    fleet.run("""const pod = {...state.holders.get("team/node-00001-0"), key: "team/new", node: "node-00000"};
        takeChange({number: 1e9, holders: [pod]}); drawAll();""")
    assert before == ["free1000"] and fleet.texts("#key li[data-mark=free]") == ["free999"]
