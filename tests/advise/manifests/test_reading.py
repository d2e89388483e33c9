"""Manifests are read with the place of every field, and nothing unreadable crashes the reader."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dranet.advise.manifests import Mark, Object, must_read, read_files, read_text
from dranet.core.errors import InvalidInput, NotFound

TEXT = """\
apiVersion: v1
kind: Thing
spec:
  plain: one two
     three
  literal: |
    first
      second
  single: 'it''s here
    and there'
  double: "a \\"quoted\\" word"
  folded: >-
    some text
    goes on
  list:
  - {name: x}
"""


def one(text: str) -> Object:
    objects, problems = read_text(text, "f.yaml")
    assert problems == []
    return objects[0]


def word_at(obj: Object, path: tuple[str | int, ...], word: str) -> str:
    """What stands in the file where the reader says ``word`` of this value stands."""
    value = obj.data["spec"][path[-1]]
    offset = value.index(word)
    line, column = value[:offset].count("\n") + 1, offset - value.rfind("\n", 0, offset)
    mark = obj.inside(path, line, column)
    return obj.lines[mark.line - 1][mark.column - 1 :][: len(word)]


@pytest.mark.parametrize(
    ("field", "word"),
    [
        ("plain", "two"),
        ("plain", "three"),
        ("literal", "first"),
        ("literal", "second"),
        ("single", "here"),
        ("single", "there"),
        ("double", "word"),
        ("folded", "goes"),
    ],
)
def test_a_character_of_a_value_is_found_in_the_file(field: str, word: str) -> None:
    assert word_at(one(TEXT), ("spec", field), word) == word


def test_a_field_is_found_by_its_path() -> None:
    assert one(TEXT).at(("spec", "list", 0, "name")) == Mark(16, 6)


def test_a_missing_field_is_at_its_nearest_parent() -> None:
    assert one(TEXT).at(("spec", "list", 7, "x")) == one(TEXT).at(("spec", "list"))


def test_the_end_of_an_expression_is_a_place_too() -> None:
    assert one(TEXT).inside(("spec", "plain"), 1, 14) == Mark(5, 11)


def test_a_block_is_the_lines_of_a_field() -> None:
    assert one(TEXT).block(("spec", "literal")) == ["  literal: |", "    first", "      second"]


def test_lists_documents_and_json_give_the_same_objects() -> None:
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}} for name in "ab"]
    as_list = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}, indent="\t")
    as_documents = "\n---\n".join(json.dumps(pod) for pod in pods)
    read = [[obj.data for obj in read_text(text, "f")[0]] for text in (as_list, as_documents)]
    assert read == [pods, pods]


def test_empty_documents_are_passed_over() -> None:
    assert read_text("---\n---\n# nothing\n---\nnull\n", "f") == ([], [])


def test_a_yaml_error_names_its_place() -> None:
    _, problems = read_text("a: 1\nb: [\n", "f.yaml")
    assert str(problems[0]).startswith("f.yaml:3:1: not valid YAML")


def test_a_document_that_is_a_list_is_no_object() -> None:
    _, problems = read_text("- a\n", "f")
    assert "a mapping with apiVersion and kind" in problems[0].message


def test_a_document_without_kind_is_noted_but_not_fatal() -> None:
    _, problems = read_text("apiVersion: v1\n", "f")
    assert [(p.fatal, p.message) for p in problems] == [(False, "no kind: not a Kubernetes object")]


def test_merge_keys_are_merged_and_own_fields_win() -> None:
    text = "apiVersion: v1\nkind: X\nbase: &b {a: 1, c: 1}\nspec:\n  <<: *b\n  a: 2\n"
    obj = one(text)
    assert (obj.data["spec"], obj.duplicates) == ({"c": 1, "a": 2}, ())


def test_a_field_written_twice_is_remembered() -> None:
    assert one("apiVersion: v1\nkind: X\nkind: Y\n").duplicates == ((("kind",), Mark(3, 1)),)


def test_dates_stay_text() -> None:
    assert one("apiVersion: v1\nkind: X\nat: 2025-06-12T17:01:57Z\n").data["at"] == "2025-06-12T17:01:57Z"


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    _, problems = read_text("\n".join(lines), "f")
    assert "aliases" in problems[0].message


def test_a_node_that_contains_itself_is_refused() -> None:
    _, problems = read_text("a: &a [*a]\n", "f")
    assert "aliases" in problems[0].message


def test_very_deep_nesting_is_refused() -> None:
    _, problems = read_text("a: " + "[" * 5000, "f")
    assert problems


def test_a_missing_file_is_named() -> None:
    with pytest.raises(NotFound, match=r"nowhere.yaml: no such file"):
        read_files(["nowhere.yaml"])


def test_a_folder_stands_for_its_manifests_by_name(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.json"):
        (tmp_path / name).write_text(f'{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name[0]}"}}}}')
    (tmp_path / "notes.md").write_text("not a manifest")
    objects, problems = read_files([tmp_path])
    assert [item.data["metadata"]["name"] for item in objects] == ["a", "b"]
    assert problems == []


def test_a_folder_without_manifests_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no \.yaml, \.yml, \.json file in this folder"):
        read_files([tmp_path])


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="x:1: not valid UTF-8"):
        read_files([tmp_path / "x"])


def test_must_read_raises_with_every_fatal_problem(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("[")
    (tmp_path / "b").write_text("- 1")
    with pytest.raises(InvalidInput) as caught:
        must_read([tmp_path / "a", tmp_path / "b"])
    assert len(caught.value.problems) == 2


@settings(deadline=None)
@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@` \n\t0?,<", max_size=60))
def test_no_text_crashes_the_reader(text: str) -> None:
    objects, problems = read_text(text, "f")
    assert all(isinstance(obj.data, dict) for obj in objects)
    assert all(problem.mark.line >= 1 for problem in problems)


def test_places_in_json_are_found_too() -> None:
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}} for name in "ab"]
    text = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": pods}, indent=1)
    second = read_text(text, "f")[0][1]
    mark = second.value_at(("metadata", "name"))
    assert text.splitlines()[mark.line - 1][mark.column - 1 :] == '"b"'


def test_a_key_written_twice_in_json_is_remembered() -> None:
    ((obj,), _) = read_text('{"apiVersion": "v1", "kind": "X", "kind": "Y"}', "f")
    assert obj.duplicates == ((("kind",), Mark(1, 35)),)


def test_json_with_a_mistake_says_where() -> None:
    _, problems = read_text('{"apiVersion": "v1",\n "kind": ]}', "f")
    assert problems[0].mark.line == 2


FRAGMENT = (
    "- name: gpu\n  exactly:\n    deviceClassName: gpu.nvidia.com\n- name: nic\n  exactly: {deviceClassName: dranet}\n"
)


def test_requests_without_an_object_are_read_as_those_of_a_template() -> None:
    (found,), (problem,) = read_text(FRAGMENT, "some/1nic.yaml")
    assert (found.kind, found.name, found.api_version) == ("ResourceClaimTemplate", "1nic", "resource.k8s.io/v1")
    assert found.at(("spec", "spec", "devices", "requests", 1, "exactly")) == Mark(5, 3)
    assert not problem.fatal and "spec.spec.devices.requests" in problem.fix


def test_flat_requests_without_an_object_are_of_the_version_that_has_them() -> None:
    (found,), _ = read_text("[{name: nic, deviceClassName: dranet}]", "<stdin>")
    assert (found.name, found.api_version) == ("requests", "resource.k8s.io/v1beta1")


@pytest.mark.parametrize("text", ["[1, 2]", "- name: a\n", "- exactly: {}\n", "[]"])
def test_other_lists_are_no_objects(text: str) -> None:
    found, (problem,) = read_text(text, "f")
    assert found == [] and problem.fatal


@pytest.mark.parametrize("text", ["", "# a word\n---\n", '{"apiVersion": "v1", "kind": "List", "items": []}'])
def test_a_file_without_any_object_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(text)
    found, (problem,) = read_files([tmp_path / "f.yaml"])
    assert found == [] and str(problem).endswith("f.yaml:1:1: no Kubernetes object in this file")


TYPED = (
    '{"kind": "DeviceClassList", "apiVersion": "resource.k8s.io/v1",\n "items": [\n  {"metadata": {"name": "a"}},\n'
    '  {"metadata": {"name": "b"}}]}'
)


@pytest.mark.parametrize("text", [TYPED, yaml.safe_dump(yaml.safe_load(TYPED))], ids=["json", "yaml"])
def test_items_of_a_typed_list_are_of_its_kind(text: str) -> None:
    objects, problems = read_text(text, "f")
    assert [(obj.kind, obj.api_version, obj.name) for obj in objects] == [
        ("DeviceClass", "resource.k8s.io/v1", name) for name in ("a", "b")
    ]
    assert problems == []


def test_json_objects_may_follow_each_other() -> None:
    text = (
        '\n{"apiVersion": "v1", "kind": "Pod",\n "metadata": {"name": "a"}} '
        '{"apiVersion": "v1", "kind": "Pod",\n"metadata": {"name": "b"}}\n'
    )
    (first, second), problems = read_text(text, "f")
    assert (first.at(("metadata", "name")), second.at(("kind",))) == (Mark(3, 15), Mark(3, 50))
    assert (first.name, second.name, problems) == ("a", "b", [])


def test_json_that_breaks_off_is_named_with_its_place() -> None:
    _, (problem,) = read_text('{"apiVersion": "v1", "kind": "Pod"} {"apiVersion": ', "f")
    assert problem.fatal and str(problem).startswith("f:1:")
