"""URLs as CEL objects, judged as Go's net/url judges them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD, Err
from dranet.cel.functions import Library, functions
from dranet.cel.libraries.formatting import go_quote
from dranet.cel.values import Map, Opaque

URL_TYPE = t.struct("kubernetes.URL")


@dataclass(frozen=True, slots=True, eq=False)
class Url(Opaque):
    text: str
    type = URL_TYPE

    def equal(self, other: Any) -> Any:
        return self.text == other.text if isinstance(other, Url) else NO_SUCH_OVERLOAD

    @property
    def host(self) -> str:
        return urlsplit(self.text).netloc.rpartition("@")[2]

    @property
    def port(self) -> str:
        """The digits behind the last colon outside brackets; empty where there are none."""
        rest = self.host[self.host.rfind("]") + 1 :]
        return rest.rpartition(":")[2] if ":" in rest else ""

    @property
    def hostname(self) -> str:
        """The host without port, and without the brackets of an IPv6 address."""
        name = self.host[: -len(self.port) - 1] if self.port else self.host.removesuffix(":")
        return name.removeprefix("[").removesuffix("]") if name.startswith("[") else name


def request_uri_problem(text: str) -> str | None:
    """Go's error for a text that is not an absolute URI or path; None if it is valid."""
    shown = f"parse {go_quote(text)}: "
    if not text:
        return shown + "empty url"
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        return shown + "net/url: invalid control character in URL"
    if text.startswith(":"):
        return shown + "missing protocol scheme"
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text)
    rest = text[scheme.end() :] if scheme else text
    if not rest.startswith("/"):
        return None if scheme else shown + "invalid URI for request"
    bad = re.search(r"%(?![0-9A-Fa-f]{2}).{0,2}", rest.split("?")[0])
    if bad:
        return shown + f"invalid URL escape {go_quote(bad.group())}"
    if rest.startswith("//"):
        return _authority_problem(rest[2:].split("/")[0].split("?")[0], shown)
    return None


def _authority_problem(authority: str, shown: str) -> str | None:
    host = authority.rpartition("@")[2]
    if host.startswith("[") and "]" not in host:
        return shown + "missing ']' in host"
    after = host[host.rfind("]") + 1 :]
    _, colon, port = after.partition(":")
    if colon and not port.isdigit() and port:
        return shown + f"invalid port {go_quote(colon + port)} after host"
    bad = re.search(r'[ "<>\\^`{|}]', host)
    return shown + f"invalid character {go_quote(bad.group())} in host name" if bad else None


def _url(text: str) -> Any:
    problem = request_uri_problem(text)
    return Err(f"URL parse error during conversion from string: {problem}") if problem else Url(text)


def _query(url: Url) -> Map:
    return Map(parse_qs(urlsplit(url.text).query, keep_blank_values=True).items())


URLS = Library(
    "kubernetes.urls",
    functions=functions(
        ("url", "string_to_url", "(string) -> URL", _url),
        ("getScheme", "url_get_scheme", "URL.() -> string", lambda url: urlsplit(url.text).scheme),
        ("getHost", "url_get_host", "URL.() -> string", lambda url: url.host),
        ("getHostname", "url_get_hostname", "URL.() -> string", lambda url: url.hostname),
        ("getPort", "url_get_port", "URL.() -> string", lambda url: url.port),
        ("getEscapedPath", "url_get_escaped_path", "URL.() -> string", lambda url: urlsplit(url.text).path),
        ("getQuery", "url_get_query", "URL.() -> map(string, list(string))", _query),
        ("isURL", "is_url_string", "(string) -> bool", lambda text: request_uri_problem(text) is None),
    ),
)
