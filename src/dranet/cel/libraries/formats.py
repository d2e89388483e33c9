"""Named formats (`format.dns1123Label().validate(s)`) and the names of the authorization library.

Device selectors cannot authorize anything, but the functions are declared in the environment, and that decides whether
a wrong call is "undeclared" or has "no matching overload".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD
from dranet.cel.functions import Function, Library, functions
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


def _pattern(limit: int, pattern: str, message: str, *examples: str) -> Validate:
    def validate(text: str) -> list[str]:
        problems = _too_long(text, limit)
        return problems if re.fullmatch(pattern, text) else [*problems, _explained(message, pattern, *examples)]

    return validate


_label_without_dots = _pattern(
    63,
    _LABEL,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character",
    "my-name",
    "123-abc",
)
_subdomain = _pattern(
    253,
    _SUBDOMAIN,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character",
    "example.com",
)
_label_1035 = _pattern(
    63,
    _LABEL_1035,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character",
    "my-name",
    "abc-123",
)


def _label(text: str) -> list[str]:
    if not re.fullmatch(_LABEL, text) and re.fullmatch(_SUBDOMAIN, text):
        return [*_too_long(text, 63), "must not contain dots"]
    return _label_without_dots(text)


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


NAMED_FORMATS = Library(
    "kubernetes.format",
    functions=functions(
        ("validate", "format-validate", "NamedFormat.(string) -> optional(list(string))", _validate),
        ("format.named", "format-named", "(string) -> optional(NamedFormat)", _named),
        *((f"format.{name}", f"format.{name}", "() -> NamedFormat", partial(FORMATS.get, name)) for name in FORMATS),
    ),
)


def _unavailable(*values: Any) -> Any:
    return NO_SUCH_OVERLOAD


def _declared(*rows: tuple[str, str, str]) -> tuple[Function, ...]:
    """Functions that no selector can call: it has no authorizer. @ stands for the package of their types."""
    return functions(*((name, id_, text.replace("@", "authorization."), _unavailable) for name, id_, text in rows))


AUTHORIZATION = Library(
    "kubernetes.authz",
    functions=_declared(
        ("path", "authorizer_path", "@Authorizer.(string) -> @PathCheck"),
        ("group", "authorizer_group", "@Authorizer.(string) -> @GroupCheck"),
        ("serviceAccount", "authorizer_serviceaccount", "@Authorizer.(string, string) -> @Authorizer"),
        ("resource", "groupcheck_resource", "@GroupCheck.(string) -> @ResourceCheck"),
        ("subresource", "resourcecheck_subresource", "@ResourceCheck.(string) -> @ResourceCheck"),
        ("namespace", "resourcecheck_namespace", "@ResourceCheck.(string) -> @ResourceCheck"),
        ("name", "resourcecheck_name", "@ResourceCheck.(string) -> @ResourceCheck"),
        ("check", "pathcheck_check", "@PathCheck.(string) -> @Decision"),
        ("check", "resourcecheck_check", "@ResourceCheck.(string) -> @Decision"),
        ("errored", "decision_errored", "@Decision.() -> bool"),
        ("error", "decision_error", "@Decision.() -> string"),
        ("allowed", "decision_allowed", "@Decision.() -> bool"),
        ("reason", "decision_reason", "@Decision.() -> string"),
    ),
)
AUTHORIZATION_SELECTORS = Library(
    "kubernetes.authzselectors",
    functions=_declared(
        ("fieldSelector", "authorizer_fieldselector", "@ResourceCheck.(string) -> @ResourceCheck"),
        ("labelSelector", "authorizer_labelselector", "@ResourceCheck.(string) -> @ResourceCheck"),
    ),
)
