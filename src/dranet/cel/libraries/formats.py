"""Named formats (`format.dns1123Label().validate(s)`) and the names of the authorization library.

Device selectors cannot authorize anything, but the functions are declared in the environment, and that decides whether
a wrong call is "undeclared" or has "no matching overload".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD
from dranet.cel.functions import Function, Library, Overload, function, global_, method
from dranet.cel.libraries.timing import parse_timestamp
from dranet.cel.libraries.urls import request_uri_problem
from dranet.cel.values import NONE, Opaque, OptionalValue, Timestamp

FORMAT = t.struct("kubernetes.NamedFormat")
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = f"{_LABEL}(\\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME_PART = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_TIME = "^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"

Validate = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True, eq=False)
class NamedFormat(Opaque):
    name: str
    validate: Validate
    max_regex_size: int
    type = FORMAT

    def equal(self, other: Any) -> Any:
        return self.name == other.name if isinstance(other, NamedFormat) else NO_SUCH_OVERLOAD


def _too_long(text: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} characters"] if len(text.encode()) > limit else []


def _explained(message: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


def _label(text: str) -> list[str]:
    problems = _too_long(text, 63)
    if not re.fullmatch(_LABEL, text):
        if re.fullmatch(_SUBDOMAIN, text):
            return [*problems, "must not contain dots"]
        message = (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and"
            " end with an alphanumeric character"
        )
        problems.append(_explained(message, _LABEL, "my-name", "123-abc"))
    return problems


def _subdomain(text: str) -> list[str]:
    problems = _too_long(text, 253)
    if not re.fullmatch(_SUBDOMAIN, text):
        message = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must"
            " start and end with an alphanumeric character"
        )
        problems.append(_explained(message, _SUBDOMAIN, "example.com"))
    return problems


def _label_1035(text: str) -> list[str]:
    problems = _too_long(text, 63)
    if not re.fullmatch(_LABEL_1035, text):
        message = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic"
            " character, and end with an alphanumeric character"
        )
        problems.append(_explained(message, _LABEL_1035, "my-name", "abc-123"))
    return problems


def _name_message(text: str, subject: str, *examples: str) -> list[str]:
    message = (
        f"{subject} must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
        " alphanumeric character"
    )
    return [] if re.fullmatch(_NAME_PART, text) else [_explained(message, _NAME_PART, *examples)]


def _label_value(text: str) -> list[str]:
    problems = _too_long(text, 63)
    return problems if not text else problems + _name_message(
        text, "a valid label must be an empty string or", "MyValue", "my_value", "12345"
    )  # fmt: skip


def _qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return ["a qualified name must have at most one slash"]
    problems = (
        ([f"prefix part {one}" for one in _subdomain(prefix)] if prefix else ["prefix part must be non-empty"])
        if slash
        else []
    )
    if not name:
        return [*problems, "name part must be non-empty"]
    problems += [f"name part {one}" for one in _too_long(name, 63)]
    return problems + [f"name part {one}" for one in _name_message(name, "", "MyName", "my.name", "123-abc")]


def _masked(validate: Validate) -> Validate:
    """A prefix may end with a dash, since more is appended to it."""
    return lambda text: validate(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)


def _check(valid: Callable[[str], bool], message: str) -> Validate:
    return lambda text: [] if valid(text) else [message]


def _is_date(text: str) -> bool:
    try:
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text)) and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _is_base64(text: str) -> bool:
    return bool(re.fullmatch(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", text)) and text != ""


FORMATS: dict[str, NamedFormat] = {
    "dns1123Label": NamedFormat("DNS1123Label", _label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _label_1035, 30),
    "qualifiedName": NamedFormat("QualifiedName", _qualified_name, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _masked(_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _masked(_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _masked(_label_1035), 30),
    "labelValue": NamedFormat("LabelValue", _label_value, 40),
    "uri": NamedFormat("URI", lambda text: [problem] if (problem := request_uri_problem(text)) else [], 1103),
    "uuid": NamedFormat(
        "uuid", _check(lambda text: bool(re.search(_UUID, text)), "does not match the UUID format"), len(_UUID)
    ),
    "byte": NamedFormat("byte", _check(_is_base64, "invalid base64"), 84),
    "date": NamedFormat("date", _check(_is_date, "invalid date"), len(_TIME)),
    "datetime": NamedFormat(
        "datetime", _check(lambda text: isinstance(parse_timestamp(text.upper()), Timestamp), "invalid datetime"),
        len(_TIME),
    ),
}  # fmt: skip


def _validate(named: NamedFormat, text: str) -> OptionalValue:
    problems = named.validate(text)
    return OptionalValue(problems) if problems else NONE


def _named(name: str) -> OptionalValue:
    found = FORMATS.get(name)
    return OptionalValue(found) if found else NONE


def _constant(name: str) -> Function:
    full = f"format.{name}"
    return function(full, global_(full, [], FORMAT, lambda: FORMATS[name]))


NAMED_FORMATS = Library(
    "kubernetes.format",
    functions=(
        function(
            "validate",
            method("format-validate", [FORMAT, t.STRING], t.optional_of(t.list_of(t.STRING)), _validate),
        ),
        function("format.named", global_("format-named", [t.STRING], t.optional_of(FORMAT), _named)),
        *(_constant(name) for name in FORMATS),
    ),
)

_AUTHORIZER, _PATH, _GROUP, _RESOURCE, _DECISION = (
    t.struct(f"kubernetes.authorization.{name}")
    for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
)


def _declared(name: str, *signatures: tuple[str, list[t.Type], t.Type]) -> Function:
    overloads = tuple(
        Overload(id_, tuple(args), result, lambda *values: NO_SUCH_OVERLOAD, member=True)
        for id_, args, result in signatures
    )
    return Function(name, overloads)


AUTHORIZATION = Library(
    "kubernetes.authz",
    functions=(
        _declared("path", ("authorizer_path", [_AUTHORIZER, t.STRING], _PATH)),
        _declared("group", ("authorizer_group", [_AUTHORIZER, t.STRING], _GROUP)),
        _declared("serviceAccount", ("authorizer_serviceaccount", [_AUTHORIZER, t.STRING, t.STRING], _AUTHORIZER)),
        _declared("resource", ("groupcheck_resource", [_GROUP, t.STRING], _RESOURCE)),
        *(
            _declared(name, (f"resourcecheck_{name}", [_RESOURCE, t.STRING], _RESOURCE))
            for name in ("subresource", "namespace", "name")
        ),
        _declared(
            "check",
            ("pathcheck_check", [_PATH, t.STRING], _DECISION),
            ("resourcecheck_check", [_RESOURCE, t.STRING], _DECISION),
        ),
        _declared("errored", ("decision_errored", [_DECISION], t.BOOL)),
        _declared("error", ("decision_error", [_DECISION], t.STRING)),
        _declared("allowed", ("decision_allowed", [_DECISION], t.BOOL)),
        _declared("reason", ("decision_reason", [_DECISION], t.STRING)),
    ),
)
AUTHORIZATION_SELECTORS = Library(
    "kubernetes.authzselectors",
    functions=(
        _declared("fieldSelector", ("authorizer_fieldselector", [_RESOURCE, t.STRING], _RESOURCE)),
        _declared("labelSelector", ("authorizer_labelselector", [_RESOURCE, t.STRING], _RESOURCE)),
    ),
)
