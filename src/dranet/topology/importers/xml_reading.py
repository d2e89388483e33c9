"""XML from strangers, read with limits.

The standard library's tree parser expands entities that a file declares, and a small file can declare gigabytes. No
topology file needs entities, so one that declares any is refused; size, depth and number of elements have limits.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from dranet.model.errors import InvalidInput

MOST_BYTES = 16 << 20
MOST_ELEMENTS = 100_000
DEEPEST = 200


class _Limits:
    """Counts while the parser runs; stops it when something is too much."""

    def __init__(self) -> None:
        self.builder = TreeBuilder()
        self._depth = self._elements = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > DEEPEST or self._elements > MOST_ELEMENTS:
            raise InvalidInput(f"more than {MOST_ELEMENTS} elements, or {DEEPEST} inside each other: no machine")
        self.builder.start(tag, attributes)

    def end(self, tag: str) -> None:
        self._depth -= 1
        self.builder.end(tag)

    def entity(self, name: str, *_: object) -> None:
        raise InvalidInput(
            f"it declares the entity {name!r}; topology files have none, and entities can be used to harm"
        )


def read_xml(text: str) -> Element:
    """The root element; what is wrong is said with its line."""
    if len(text) > MOST_BYTES:
        raise InvalidInput(f"{len(text)} characters of XML; at most {MOST_BYTES} are read")
    limits, parser = _Limits(), expat.ParserCreate()
    parser.StartElementHandler = limits.start
    parser.EndElementHandler = limits.end
    parser.EntityDeclHandler = limits.entity
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise InvalidInput(f"no XML: line {error.lineno}: {expat.errors.messages[error.code]}") from error
    return limits.builder.close()
