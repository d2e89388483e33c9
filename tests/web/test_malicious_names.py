"""Names and texts of the cluster are shown as text, whatever they hold; nothing of them ever runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dranet.kubernetes.api import resources
from dranet.web import LiveSource, export

from .browser import Browser
from .lab import Lab

pytestmark = pytest.mark.xdist_group("browser")
EVIL = "<img src=x onerror=window.pwned=1>"
END = "</script><script>window.pwned=1</script>"
NODE = f"node-{EVIL}"


@pytest.fixture
def malicious(cluster: Lab) -> Lab:
    """Markup in the node's, the pod's, the claim's and the device's name, an attribute, a taint and a condition."""
    device: dict[str, Any] = {
        "name": f"nic-{EVIL}",
        "attributes": {
            "dra.net/rdma": {"bool": True},
            "dra.net/alias": {"string": EVIL + END},
            "dra.net/ifName": {"string": EVIL},
            "resource.kubernetes.io/pcieRoot": {"string": EVIL},
            "gce.dra.net/block": {"string": EVIL},
        },
        "taints": [{"key": EVIL, "value": EVIL, "effect": "NoSchedule"}],
    }
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.net", "nodeName": NODE, "pool": pool, "devices": [device]}
    result = {"driver": "dra.net", "pool": NODE, "device": device["name"], "request": EVIL}
    condition = {"type": EVIL, "status": "False", "reason": "Bad", "message": END}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": EVIL, "uid": "1"}],
        "devices": [{**result, "conditions": [condition]}],
    }
    pod = {"metadata": {"name": EVIL, "namespace": "x", "labels": {"a": EVIL}}, "spec": {"resourceClaims": [{}]}}
    claim = {"metadata": {"name": END, "namespace": "x"}, "spec": {}, "status": status}

    def fill() -> None:
        cluster.api.put(resources.RESOURCE_SLICES, {"metadata": {"name": "slice"}, "spec": spec})
        cluster.api.put(resources.PODS, {**pod, "status": {"phase": END}})
        cluster.api.put(resources.RESOURCE_CLAIMS, claim)

    cluster.call(fill)
    return cluster


def look_everywhere(window: Browser) -> str:
    """Open every view that shows something of the cluster; all text seen on the way."""
    window.wait("state.nodes.size === 1 && state.holders.size === 1 && document.querySelector('#rows .device')")
    seen = [window.text()]
    for what in ("{holder: [...state.holders.keys()][0]}", "{node: NODE}", "{node: NODE, device: 0}"):
        window.run(f"const NODE = [...state.nodes.keys()][0]; pick({what});")
        window.wait("!document.getElementById('picked').innerText.includes('asking')")
        seen.append(window.text())
    for how in ("tile", "map"):
        window.run("state.size = arguments[0]; refreshNodes()", how)
        seen.append(window.text())
    return "\n".join(seen)


def assert_harmless(window: Browser, said: str) -> None:
    assert window.value("document.querySelectorAll('img, iframe, object, a[href^=javascript]').length") == 0
    assert window.value("window.pwned ?? null") is None
    assert EVIL in said and END in said and NODE in said


def test_markup_in_names_is_shown_as_text(window: Browser, malicious: Lab) -> None:
    window.open(malicious.url)
    assert_harmless(window, look_everywhere(window))


def test_markup_in_names_is_shown_as_text_in_an_export_too(window: Browser, malicious: Lab, tmp_path: Path) -> None:
    html = malicious.do(export(LiveSource(EVIL + END, malicious.client)))
    assert html.count("<script") == 2 and "<img" not in html
    file = tmp_path / "page.html"
    file.write_text(html, "utf-8")
    window.open(file.as_uri())
    assert_harmless(window, look_everywhere(window))


def test_a_malicious_manifest_is_shown_as_text(window: Browser, malicious: Lab) -> None:
    window.open(malicious.url)
    template = (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: '{EVIL}'}}\nspec:\n  resourceClaims:\n  - name: '{EVIL}'\n"
    )
    text = template + f"    resourceClaimName: '{END}'\n"
    window.run("document.getElementById('manifest').value = arguments[0]; tryManifest(arguments[1])", text, EVIL)
    window.wait("document.querySelectorAll('#tried h3').length === 2")
    assert EVIL in window.text("#tried")
    assert window.value("[document.querySelectorAll('img').length, window.pwned ?? null]") == [0, None]


SMUGGLED = """
document.body.insertAdjacentHTML("beforeend", `${arguments[0]}<b onclick="window.pwned=1" id="bait">x</b>`);
document.getElementById("bait").click();
const made = document.createElement("script");
made.textContent = "window.pwned = 1";
document.body.append(made);
"""


def test_even_markup_that_gets_in_does_not_run(window: Browser, malicious: Lab) -> None:
    window.open(malicious.url)
    window.run(SMUGGLED, EVIL)
    assert window.value("window.pwned ?? null") is None
