"""The shipped descriptors and stubs are what the .proto files say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from dranet.kubernetes.nri import messages

COMPILER = Path(__file__).resolve().parents[3] / "tools" / "compile_protos.py"


def test_the_compiled_files_match_their_protos() -> None:
    pytest.importorskip("grpc_tools", reason="the .proto compiler is a development dependency")
    assert runpy.run_path(str(COMPILER))["outdated"]() == []


def test_messages_live_in_a_pool_of_their_own() -> None:
    from google.protobuf import descriptor_pool

    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName(messages.PodSandbox.DESCRIPTOR.full_name)


def test_event_numbers_are_those_of_the_protocol() -> None:
    assert (messages.RUN_POD_SANDBOX, messages.CREATE_CONTAINER, messages.VALIDATE_CONTAINER_ADJUSTMENT) == (1, 4, 14)


def test_a_pod_has_the_wire_form_of_the_protocol() -> None:
    assert messages.PodSandbox(id="a", uid="b", pid=3).SerializeToString() == b"\x0a\x01a\x1a\x01b\x48\x03"
