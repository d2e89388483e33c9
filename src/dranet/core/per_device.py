"""Parameters by device: choose the entries of `perDevice` that match, and replace their words.

The scheduler picks the devices after a claim was written, so a name, table or gateway that depends on the device cannot
be written down as a value. Entries apply in order, later ones override earlier ones, all of them the fields next to
`perDevice`. There are no expressions in texts on purpose: lint can then check them without a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from dranet.core import attributes as names
from dranet.core.errors import InvalidInput, Problem
from dranet.core.netconfig import NetworkConfig, PerDevice
from dranet.core.netconfig_merge import merge
from dranet.core.netconfig_parse import WORD, FilledText, map_texts, parse_leniently

Attributes = Mapping[str, Any]
Matcher = Callable[[str, Attributes], bool]
"""Whether a CEL expression is true for a device with these attributes; raises InvalidInput if it has no answer."""

_ATTRIBUTES = {
    "rail": names.RAIL,
    "ifName": names.IF_NAME,
    "numaNode": names.NUMA_NODE,
    "rdmaDevice": names.RDMA_DEVICE,
}


class _NoValue(Exception):
    """A word for which the device has no value."""


def resolve(config: NetworkConfig, attributes: Attributes, ordinal: int, matches: Matcher) -> NetworkConfig:
    """The parameters of one device; raises InvalidInput with all problems of the entries that match."""
    if config.per_device is UNSET:
        return config
    plain = msgspec.structs.replace(config, per_device=UNSET)
    problems: list[Problem] = []
    layers = list(_layers(config.per_device, attributes, ordinal, matches, problems))
    if problems:
        raise InvalidInput(problems)
    return merge(*reversed(layers), plain)


def _layers(
    entries: Sequence[PerDevice], attributes: Attributes, ordinal: int, matches: Matcher, problems: list[Problem]
) -> Iterator[NetworkConfig]:
    for number, entry in enumerate(entries):
        where = f"perDevice[{number}]"
        try:
            if entry.match and not matches(entry.match, attributes):
                continue
        except InvalidInput as error:
            problems.append(Problem(f"{where}.match", str(error)))
            continue
        try:
            filled = map_texts(entry.parameters, lambda text: _filled(text, attributes, ordinal))
        except _NoValue as error:
            problems.append(Problem(where, str(error)))
            continue
        layer, found = parse_leniently(filled)
        problems += [Problem(f"{where}.{problem.path}".rstrip("."), problem.message) for problem in found]
        yield layer


def _filled(text: str, attributes: Attributes, ordinal: int) -> str:
    if not WORD.search(text):
        return text
    return FilledText(WORD.sub(lambda match: _value(match[1], attributes, ordinal), text))


def _value(word: str, attributes: Attributes, ordinal: int) -> str:
    if word == "ordinal":
        return str(ordinal)
    name = _ATTRIBUTES.get(word, word)
    value = attributes.get(name)
    if value is None:
        raise _NoValue(f"the word {{{word}}} has no value: the device does not publish {name}")
    if isinstance(value, tuple):
        value = value[0]  # a list attribute starts with the nearest
    return str(value).lower() if isinstance(value, bool) else str(value)
