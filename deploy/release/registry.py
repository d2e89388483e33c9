"""A small client of the OCI distribution API: enough to push what `make release` made to any registry.

HTTPS, except on loopback, with the system's certificates (SSL_CERT_FILE names others, as for most tools). Who it is
comes from REGISTRY_USER and REGISTRY_PASSWORD, else from the file in which docker keeps logins (not from its helper
programs); without either the push is anonymous. Registries that ask for a token (all large ones) are asked for it as
they say.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import json
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urljoin, urlsplit

SECONDS = 120
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json")


class RegistryError(SystemExit):
    """What was asked of whom and what it answered."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Registry:
    """One repository of a registry, ``host:port/path/name``."""

    def __init__(self, repository: str) -> None:
        self.host, _, self.path = repository.partition("/")
        if not (re.fullmatch(r"[A-Za-z0-9.\[\]:-]+", self.host) and re.fullmatch(r"[a-z0-9._/-]+", self.path)):
            raise RegistryError(f"{repository!r} is no repository: give host:port/path, in small letters")
        self._base = f"{'http' if _is_loopback(self.host) else 'https'}://{self.host}"
        self._login = _login(self.host)
        self._authorization = ""

    def push(self, layout: Path, tag: str) -> str:
        """Everything in an OCI layout, content first; the digest that ``tag`` then names."""
        [entry] = json.loads((layout / "index.json").read_text())["manifests"]
        for descriptor, is_manifest in _children(layout, entry):
            content = _blob(layout, descriptor["digest"])
            if is_manifest:
                self._put_manifest(descriptor, content, descriptor["digest"])
            elif not self._has(descriptor["digest"]):
                self._put_blob(descriptor["digest"], content)
        self._put_manifest(entry, _blob(layout, entry["digest"]), tag)
        return str(entry["digest"])

    def _has(self, digest: str) -> bool:
        answer = self._ask("HEAD", f"/v2/{self.path}/blobs/{digest}")
        if answer.status not in (200, 404):
            raise self._refused("looking for a blob", answer)
        return answer.status == 200

    def _put_blob(self, digest: str, content: bytes) -> None:
        begun = self._ask("POST", f"/v2/{self.path}/blobs/uploads/")
        if begun.status != 202:
            raise self._refused("beginning an upload", begun)
        place = urljoin(self._base, begun.headers["location"])
        place += ("&" if "?" in place else "?") + urlencode({"digest": digest})
        done = self._ask("PUT", place, content, "application/octet-stream")
        if done.status != 201:
            raise self._refused(f"uploading {digest}", done)

    def _put_manifest(self, descriptor: Mapping[str, str], content: bytes, name: str) -> None:
        done = self._ask("PUT", f"/v2/{self.path}/manifests/{name}", content, descriptor["mediaType"])
        if done.status != 201:
            raise self._refused(f"writing manifest {name}", done)
        stored = done.headers.get("docker-content-digest", descriptor["digest"])
        if stored != descriptor["digest"]:
            raise RegistryError(f"{self.host} stored {name} as {stored} instead of {descriptor['digest']}")

    def _ask(self, method: str, where: str, body: bytes = b"", kind: str = "") -> Answer:
        """One request; a challenge is answered once."""
        url = urljoin(self._base, where)
        answer = _request(method, url, body, kind, self._authorization if _same_host(url, self._base) else "")
        if answer.status == 401 and (challenge := answer.headers.get("www-authenticate")):
            self._authorization = self._answer_to(challenge)
            answer = _request(method, url, body, kind, self._authorization)
        return answer

    def _answer_to(self, challenge: str) -> str:
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic":
            return _basic(self._login)
        if kind.lower() != "bearer":
            raise RegistryError(f"{self.host} wants {kind} authentication, which this client does not know")
        asked = dict(re.findall(r'([a-z]+)="([^"]*)"', rest))
        # What is asked for is more than what the first request needed, so that one token lasts for the push.
        query = urlencode({"service": asked.get("service", ""), "scope": f"repository:{self.path}:pull,push"})
        answer = _request("GET", f"{asked['realm']}?{query}", b"", "", _basic(self._login))
        if answer.status != 200:
            raise self._refused("asking for a token", answer)
        given = json.loads(answer.body)
        return f"Bearer {given.get('token') or given['access_token']}"

    def _refused(self, what: str, answer: Answer) -> RegistryError:
        said = answer.body.decode(errors="replace")[:500]
        hint = "" if self._login or answer.status not in (401, 403) else "; log in with helm registry login, or set "
        return RegistryError(
            f"{self.host} refused {what} in {self.path}: HTTP {answer.status} {said}"
            f"{hint}{'REGISTRY_USER and REGISTRY_PASSWORD' if hint else ''}"
        )


def _children(layout: Path, entry: Mapping[str, str]) -> Iterator[tuple[dict[str, str], bool]]:
    """What a manifest or index names, the deepest first."""
    document = json.loads(_blob(layout, entry["digest"]))
    for manifest in document.get("manifests", []):
        yield from _children(layout, manifest)
        yield manifest, True
    if "config" in document:
        yield from ((blob, False) for blob in (document["config"], *document["layers"]))


def _blob(layout: Path, digest: str) -> bytes:
    return (layout / "blobs/sha256" / digest.removeprefix("sha256:")).read_bytes()


def _request(method: str, url: str, body: bytes, kind: str, authorization: str) -> Answer:
    parts = urlsplit(url)
    headers = {"Content-Length": str(len(body)), "Accept": ", ".join(MANIFESTS)}
    headers |= {"Content-Type": kind} if kind else {}
    headers |= {"Authorization": authorization} if authorization else {}
    connection = _connection(parts.scheme, parts.netloc)
    try:
        connection.request(method, parts.path + (f"?{parts.query}" if parts.query else ""), body, headers)
        answer = connection.getresponse()
        return Answer(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())
    except OSError as error:
        raise RegistryError(f"{method} {parts.scheme}://{parts.netloc}{parts.path}: {error}") from error
    finally:
        connection.close()


def _connection(scheme: str, host: str) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(host, timeout=SECONDS, context=ssl.create_default_context())
    return http.client.HTTPConnection(host, timeout=SECONDS)


def _login(host: str) -> str:
    """``user:password``, or nothing."""
    if user := os.environ.get("REGISTRY_USER"):
        return f"{user}:{os.environ.get('REGISTRY_PASSWORD', '')}"
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    try:
        known = json.loads((folder / "config.json").read_text()).get("auths", {})
    except FileNotFoundError:
        return ""
    found = known.get(host) or known.get(f"https://{host}") or {}
    return base64.b64decode(found.get("auth", "")).decode()


def _basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}" if login else ""


def _same_host(url: str, base: str) -> bool:
    """A place to upload to may be another host's, which must not see our credentials."""
    return urlsplit(url).netloc == urlsplit(base).netloc


def _is_loopback(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
