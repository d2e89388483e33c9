"""Whether a value is all that a schema knows and nothing else, found out at the speed of C.

Most objects have no mistakes, and a dump of a large cluster has hundreds of thousands of them. So msgspec, which has
read the schema as types, looks first; only what it refuses is walked through field by field, for the place of what is
wrong. It never says yes wrongly: a null or an empty list it does not care for only costs the walk.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dranet.manifests.schema import Map, Schema

_LEAVES: dict[str, Any] = {"str": str, "int": int, "bool": bool, "quantity": str | int | float, "any": Any}
_known: dict[int, tuple[Schema, Any]] = {}


def conforms(value: Any, schema: Schema) -> bool:
    """Whether every field is known and of its type."""
    found = _known.get(id(schema))
    if found is None:
        # The schema is kept beside its type: an id alone could be taken over by another object.
        found = _known[id(schema)] = (schema, _type(schema))
    try:
        msgspec.convert(value, found[1])
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def _type(schema: Schema) -> Any:
    if isinstance(schema, str):
        return _LEAVES[schema]
    if isinstance(schema, list):
        return list[_type(schema[0])]  # type: ignore[misc]
    if isinstance(schema, Map):
        return dict[str, _type(schema.values)]  # type: ignore[misc]
    fields = [
        (f"field_{i}", _type(inner), msgspec.field(default=None, name=name))
        for i, (name, inner) in enumerate(schema.items())
    ]
    return msgspec.defstruct("Fields", fields, forbid_unknown_fields=True, gc=False)
