"""A Common Expression Language engine: parser, checker, evaluator, costs. Pure.

It follows cel-go, the implementation inside Kubernetes: same grammar and messages, same static types, same costs.

    from dranet.cel import Environment, STRING, map_of
    env = Environment(variables={"name": STRING})
    env.compile('name.startsWith("eth")').evaluate({"name": "eth0"})    # True

`compile` raises CelSyntaxError or CelTypeError (both have .line, .column, .message and the full text as str), or
CelProgramError when a constant part already fails. `evaluate` raises CelEvaluationError. Objects are declared with
`Environment(structs={"Name": {"field": TYPE}})` and the variable type `struct("Name")`; bindings are plain dicts.
"""

from dranet.cel.environment import Environment, Program
from dranet.cel.errors import (
    CelCompileError,
    CelError,
    CelEvaluationError,
    CelProgramError,
    CelSyntaxError,
    CelTypeError,
    Err,
    Issue,
)
from dranet.cel.functions import Function, Library, Overload
from dranet.cel.types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    opaque,
    optional_of,
    struct,
)
from dranet.cel.values import Duration, Map, Opaque, OptionalValue, Timestamp, Uint

__all__ = [
    "ANY", "BOOL", "BYTES", "DOUBLE", "DURATION", "DYN", "INT", "NULL", "STRING", "TIMESTAMP", "UINT",
    "CelCompileError", "CelError", "CelEvaluationError", "CelProgramError", "CelSyntaxError", "CelTypeError",
    "Duration", "Environment", "Err", "Function", "Issue", "Library", "Map", "Opaque", "OptionalValue", "Overload",
    "Program", "Timestamp", "Type", "Uint", "list_of", "map_of", "opaque", "optional_of", "struct",
]  # fmt: skip
