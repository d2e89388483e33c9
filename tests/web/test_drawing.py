"""In a real browser: machines look as the users' documents describe them, in light and dark, and for every eye."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dranet.cli.serve import recorded_source
from dranet.machines.machine import machine_of_shape
from dranet.machines.matrix import to_json
from dranet.machines.shape import load_shape
from dranet.web import export

from .browser import Browser
from .lab import Lab

pytestmark = pytest.mark.xdist_group("browser")
DATA = Path(__file__).parents[1] / "data"
PLACES = """
const key = state.nodes.get(arguments[0]).layout, plan = geometry(key);
const inside = (box, frame) => box.x >= frame.x && box.y >= frame.y &&
  box.x + BOX.w <= frame.x + frame.w && box.y + BOX.h <= frame.y + frame.h;
return state.layouts.get(key).devices.map((device, at) => {
  const around = (frames) => frames.find((frame) => inside(plan.boxes.get(at), frame)).title;
  return [device.label, around(plan.numas), around(plan.roots)];
});
"""
"""For every device, the NUMA node and the PCIe root it is drawn in."""
MATRIX = """
const rows = [...document.querySelectorAll("table.matrix tbody tr")];
const heads = [...document.querySelectorAll("table.matrix thead th")].map((cell) => cell.textContent);
return Object.fromEntries(rows.map((row) => [row.querySelector("th").textContent,
  Object.fromEntries([...row.querySelectorAll("td")].map((cell, i) => [heads[i], cell.textContent]))]));
"""


def show(window: Browser, folder: Path, *, shapes: tuple[str, ...] = (), slices: tuple[Path, ...] = ()) -> None:
    source = recorded_source(shapes, tuple(str(path) for path in slices))
    file = folder / "page.html"
    file.write_text(asyncio.run(export(source)), "utf-8")
    window.open(file.as_uri())


def matrix(window: Browser, node: str) -> dict[str, dict[str, str]]:
    window.run("pick({node: arguments[0]})", node)
    found: dict[str, dict[str, str]] = window.run(MATRIX)
    return {gpu: {nic: text.split()[-1] for nic, text in row.items()} for gpu, row in found.items()}


def expected_matrix(shape: str) -> dict[str, dict[str, str]]:
    found = to_json(machine_of_shape(load_shape(shape), "x"))["matrix"]
    return {g: {n: d for n, d in row.items() if n.startswith("NIC")} for g, row in found.items() if g.startswith("GPU")}


GB300 = [
    ["GPU0", "NUMA node 0", "pci0008:00"],
    ["GPU1", "NUMA node 0", "pci0009:00"],
    ["GPU2", "NUMA node 1", "pci0018:00"],
    ["GPU3", "NUMA node 1", "pci0019:00"],
    ["NIC0", "NUMA node 0", ""],
    ["NIC1", "NUMA node 0", ""],
    ["NIC2", "NUMA node 1", ""],
    ["NIC3", "NUMA node 1", ""],
]


def test_gb300_is_drawn_as_its_document_says(window: Browser, tmp_path: Path) -> None:
    show(window, tmp_path, shapes=("nd-gb300-v6",))
    assert window.run(PLACES, "nd-gb300-v6-0") == GB300
    near, far = ["NODE", "NODE", "SYS", "SYS"], ["SYS", "SYS", "NODE", "NODE"]
    rows = matrix(window, "nd-gb300-v6-0")
    assert [list(rows[f"GPU{i}"].values()) for i in range(4)] == [near, near, far, far]
    assert "18 NVLinks" in window.text("#picked")


def test_the_slices_of_a_real_gb300_node_give_the_same_drawing(window: Browser, tmp_path: Path) -> None:
    files = (DATA / "gb300-resourceslice-dranet.yaml", DATA / "gb300-resourceslice-gpu.yaml")
    show(window, tmp_path, slices=files)
    node = window.value("[...state.nodes.keys()][0]")
    assert window.run(PLACES, node) == GB300
    assert [d["title"] for d in window.value("[...state.layouts.values()][0].devices")[4:]] == [
        "mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3",
    ]  # fmt: skip


def test_a4_is_drawn_with_two_gpus_and_two_nics_on_each_of_four_roots(window: Browser, tmp_path: Path) -> None:
    show(window, tmp_path, shapes=("a4-highgpu-8g",))
    places: list[list[str]] = window.run(PLACES, "a4-highgpu-8g-0")
    roots: dict[str, list[str]] = {}
    for label, numa, root in places:
        roots.setdefault(f"{numa} {root}", []).append(label)
    assert roots == {
        "NUMA node 0 pci0000:8c": ["GPU0", "GPU1", "NIC0", "NIC1"],
        "NUMA node 0 pci0000:93": ["GPU2", "GPU3", "NIC2", "NIC3"],
        "NUMA node 1 pci0000:c1": ["GPU4", "GPU5", "NIC4", "NIC5"],
        "NUMA node 1 pci0000:c8": ["GPU6", "GPU7", "NIC6", "NIC7"],
    }
    assert matrix(window, "a4-highgpu-8g-0") == expected_matrix("a4-highgpu-8g")


@pytest.mark.parametrize(("shape", "gpus"), [("a4-highgpu-8g", 8), ("nd-gb300-v6", 4)])
def test_nvlink_is_drawn_to_every_gpu_and_to_no_nic(window: Browser, tmp_path: Path, shape: str, gpus: int) -> None:
    show(window, tmp_path, shapes=(shape,))
    path = window.run("return document.querySelector('.nvlink path').getAttribute('d')")
    assert path.count("V") == gpus
    assert window.texts(".nvlink text") == ["NVLink, 18 a GPU"]
    tops = window.run("""const plan = geometry([...state.layouts.keys()][0]);
        return plan.linked.map((at) => plan.boxes.get(at).y);""")
    assert [float(part.split("M")[0]) for part in path.split("V")[1:]] == tops


def test_what_is_drawn_is_on_the_screen_at_those_places(window: Browser, tmp_path: Path) -> None:
    show(window, tmp_path, shapes=("a4-highgpu-8g",))
    boxes: list[Any] = window.run("""return [...document.querySelectorAll("#rows .device .body")].map((body) => {
        const box = body.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]; });""")
    assert len(boxes) == 16
    for i, (left, top, right, bottom) in enumerate(boxes):
        assert right - left > 60 and bottom - top > 30
        assert all(b[2] <= left or b[0] >= right or b[3] <= top or b[1] >= bottom for b in boxes[i + 1 :])


def troubled(cluster: Lab) -> None:
    faults = {"mlx5_2": "dra.net/link-down", "mlx5_3": "dra.net/netdev-elsewhere"}

    def taint(device: dict[str, Any]) -> dict[str, Any]:
        fault = faults.get(device["attributes"]["dra.net/rdmaDevice"]["string"])
        return {**device, "taints": [{"key": fault, "effect": "NoSchedule"}]} if fault else device

    cluster.call(lambda: cluster.machines("nd-gb300-v6"))
    cluster.call(lambda: cluster.change_slice("nd-gb300-v6-0", "dra.net", taint))
    files = ("4-aks-gb300/claims.yaml", "4-aks-gb300/mpijob.yaml")
    cluster.do(cluster.run(files, template="1nic-aligned", replicas=1))


def test_every_state_and_distance_has_words_and_shapes_not_colour_alone(window: Browser, cluster: Lab) -> None:
    troubled(cluster)
    window.open(cluster.url)
    window.wait("document.querySelector('.pair')")
    devices = dict(zip(window.texts("#rows .device .name"), window.texts("#rows .device text:last-child"), strict=True))
    assert devices["GPU0"] == devices["NIC0"] == "nccl…orker-0"
    assert (devices["GPU1"], devices["NIC2"], devices["NIC3"]) == ("○ free", "⚠ tainted", "↗ elsewhere")
    assert window.texts(".pair text") == ["▲ NODE"]
    looks = window.run("""return Object.keys(DISTANCES).map((name) => {
        const pair = svg("g", {class: `pair ${name}`}, svg("path"));
        document.querySelector(".machine svg").append(pair);
        const style = getComputedStyle(pair.firstChild);
        return [style.strokeDasharray, style.strokeWidth, DISTANCES[name].glyph].join(); });""")
    assert len(set(looks)) == len(looks)
    bodies = window.run("""return ["free", "in-use", "tainted", "elsewhere"].map((state) => {
        const style = getComputedStyle(document.querySelector(`#rows .device.${state} .body`));
        return [style.strokeDasharray, style.strokeWidth, style.fill.startsWith("url")].join(); });""")
    assert len(set(bodies)) == 4


CONTRAST = """
const rgb = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
const linear = (c) => (c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
const light = (text) => { const [r, g, b] = rgb(text).map((c) => linear(c / 255));
  return .2126 * r + .7152 * g + .0722 * b; };
const probe = document.body.appendChild(document.createElement("i"));
const colour = (name) => { probe.style.color = `var(--${name})`; return light(getComputedStyle(probe).color); };
const ratio = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
const found = {};
for (const ink of ["ink", "quiet", "accent", "pix", "pxb", "phb", "node", "sys", "unknown", "warn"])
  for (const back of ["panel", "back", "inset"]) found[`${ink} on ${back}`] = ratio(colour(ink), colour(back));
for (let i = 0; i < 6; i++) found[`ink on who-${i}`] = ratio(colour("ink"), colour(`who-${i}`));
return [found, colour("panel")];
"""


def test_light_and_dark_are_both_readable(window: Browser, tmp_path: Path) -> None:
    show(window, tmp_path, shapes=("nd-gb300-v6",))
    backs = {}
    for scheme in ("light", "dark"):
        window.colours(scheme)
        ratios, backs[scheme] = window.run(CONTRAST)
        assert min(ratios.values()) >= 4.5, {name: ratio for name, ratio in ratios.items() if ratio < 4.5}
    assert backs["light"] > 0.9 and backs["dark"] < 0.05


def test_the_theme_button_overrides_what_the_system_prefers(window: Browser, tmp_path: Path) -> None:
    show(window, tmp_path, shapes=("nd-gb300-v6",))
    window.colours("dark")
    window.click("#theme")
    assert window.text("#theme") == "Theme: light"
    assert window.run(CONTRAST)[1] > 0.9
