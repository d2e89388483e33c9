"""`-o json` has the form that docs/reference/schemas promises, and says which version of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.inputs import claim, run, workers

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "reference" / "schemas"
UNALIGNED = ROOT / "examples" / "4-aks-gb300" / "unaligned.yaml"
GB300 = ("--shape", "nd-gb300-v6")
COMMANDS = [
    ("plan", UNALIGNED, *GB300),
    ("plan", ROOT / "examples" / "1-gke-rdma", "--shape", "a4-highgpu-8g=1"),
    ("plan", UNALIGNED, "--shape", "nd-gb300-v6=1..3"),
    ("plan", "-", "--shape", "a4-highgpu-8g"),
    ("explain", UNALIGNED, *GB300),
    ("explain", "-", "--shape", "a4-highgpu-8g"),
    ("lint", UNALIGNED, *GB300),
    ("report", ROOT / "tests" / "data" / "logs" / "3-mpi-job.log", "--shape", "a3-ultragpu-8g"),
    ("topo", *GB300),
]
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "object": (dict,), "array": (list,),
}  # fmt: skip


def problems(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """What of a value a schema forbids; of JSON Schema only the words that our schemas use."""
    found = []
    if "const" in schema and value != schema["const"]:
        found.append(f"{path}: {value!r} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: {value!r} is not one of {schema['enum']}")
    names = schema.get("type", [])
    allowed = tuple(one for name in ([names] if isinstance(names, str) else names) for one in TYPES[name])
    if allowed and (not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed)):
        return [*found, f"{path}: {value!r:.60} is not {names}"]
    if isinstance(value, dict) and "properties" in schema:
        found += [f"{path}.{key} is missing" for key in schema.get("required", []) if key not in value]
        found += [f"{path}.{key} is not in the schema" for key in value if key not in schema["properties"]]
        known = ((key, one) for key, one in value.items() if key in schema["properties"])
        found += [text for key, one in known for text in problems(one, schema["properties"][key], f"{path}.{key}")]
    if isinstance(value, list) and "items" in schema:
        found += [text for i, one in enumerate(value) for text in problems(one, schema["items"], f"{path}[{i}]")]
    return found


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(map(str, words[:2])))
def test_output_has_the_promised_form(words: tuple[object, ...]) -> None:
    job = claim("gpu: gpu.nvidia.com\nnic: dranet") + workers(9, limits="nvidia.com/gpu: 1")
    made = json.loads(run(*words, "-o", "json", stdin=job).stdout)
    schema = json.loads((SCHEMAS / f"{words[0]}.v1.json").read_text())
    assert problems(made, schema) == []


def test_a_wrong_output_is_noticed() -> None:
    schema = json.loads((SCHEMAS / "lint.v1.json").read_text())
    assert problems({"schema": "dranet.lint/v2", "findings": [{"rule": 3}]}, schema)
    assert problems({"schema": "dranet.lint/v1", "findings": [], "more": 1}, schema) == [".more is not in the schema"]
