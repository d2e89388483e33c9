"""A fake API server for the demo and tests.

It keeps objects in memory and behaves like the real one as far as a driver notices: resource versions, conflicts, no-op
updates, paging, watches with bookmarks and 410, validation of slices and claim status, fields dropped by disabled
feature gates, the three versions of the resource API, server-side apply of ``status.devices``. It has no authorization,
admission or garbage collection. Requests arrive in memory (`LocalTransport`) or over HTTP (`dranet.testing.apihttp`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from dranet.core.errors import Problem
from dranet.core.http import Request
from dranet.kubernetes.api import resources
from dranet.kubernetes.api.resources import (
    GROUP,
    PREFERENCE,
    Now,
    Resource,
    from_version,
    timestamp,
    to_version,
    utc_now,
)
from dranet.testing.apirules import Refusal, check_claim, check_slice, device_key

Object = dict[str, Any]
ObjectKey = tuple[str, str]

_KNOWN: Mapping[tuple[str, str], Resource] = {
    (item.group, item.plural): item
    for item in (
        resources.RESOURCE_SLICES,
        resources.RESOURCE_CLAIMS,
        resources.RESOURCE_CLAIM_TEMPLATES,
        resources.DEVICE_CLASSES,
        resources.NODES,
        resources.PODS,
        resources.EVENTS,
    )
}
_HAS_STATUS = {"ResourceClaim", "Pod", "Node"}
_BOOKMARK_SECONDS = 60.0


@dataclass(slots=True)
class Response:
    """A response: a body, or a stream of lines for a watch."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    lines: AsyncGenerator[bytes, None] | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces."""
        if self.lines is None:
            yield self.body
        else:
            async for line in self.lines:
                yield line

    async def close(self) -> None:
        """End a watch; other responses have nothing to close."""
        if self.lines is not None:
            await self.lines.aclose()


@dataclass(frozen=True, slots=True)
class _Change:
    version: int
    type: str
    resource: Resource
    object: Object


@dataclass(frozen=True, slots=True)
class _Target:
    resource: Resource
    version: str
    namespace: str | None
    name: str | None
    sub: str | None
    query: Mapping[str, str]


class SandboxApiServer:
    """Objects in memory, and the requests of the API."""

    def __init__(
        self,
        *,
        versions: Sequence[str] = PREFERENCE,
        device_taints: bool = True,
        device_status: bool = True,
        now: Now = utc_now,
    ) -> None:
        self._versions = tuple(versions)
        self._device_taints = device_taints
        self._device_status = device_status
        self._now = now
        self._objects: dict[Resource, dict[ObjectKey, Object]] = {item: {} for item in _KNOWN.values()}
        self._owned: dict[tuple[str, str], set[tuple[str, ...]]] = {}
        self._history: list[_Change] = []
        self._compacted = 0
        self._counter = 0
        self._stale: tuple[int, dict[Resource, dict[ObjectKey, Object]]] | None = None
        self._waiters: set[asyncio.Event] = set()
        self._cut = 0
        self.unavailable = False
        """Whether every request gets a 503, as from a load balancer without servers."""
        self._forbidden: set[tuple[str, Resource]] = set()
        self.writes = 0
        """Writes that changed something."""

    # Direct access for tests and the demo.

    def objects(self, resource: Resource) -> list[Object]:
        """All objects of one type, by name."""
        return [self._objects[resource][key] for key in sorted(self._objects[resource])]

    def find(self, resource: Resource, name: str, namespace: str = "") -> Object | None:
        """One object, or None."""
        return self._objects[resource].get((namespace, name))

    def put(self, resource: Resource, obj: Object) -> Object:
        """Store an object without validation; returns it with its metadata."""
        key = _key(obj)
        old = self._objects[resource].get(key)
        uid = (old or obj)["metadata"].get("uid") or f"{self._counter + 1:08x}-0000-4000-8000-000000000000"
        metadata = {"creationTimestamp": timestamp(self._now()), **obj["metadata"], "uid": uid}
        return self._store(resource, key, {**obj, "kind": resource.kind, "metadata": metadata}, old)

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Delete an object if it exists."""
        old = self._objects[resource].pop((namespace, name), None)
        if old is not None:
            self._counter += 1
            last = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self._counter)}}
            self._record(_Change(self._counter, "DELETED", resource, last))

    def forbid(self, verb: str, resource: Resource) -> None:
        """From now on, `get` or `list` of a type gets a 403, as for an account without that permission."""
        self._forbidden.add((verb, resource))

    def compact_history(self) -> None:
        """Compaction: a watch from an earlier version gets a 410."""
        self._compacted = self._counter
        self._history.clear()
        self._stale = None

    def serve_stale_lists(self) -> None:
        """From now on, lists that may be stale show the present state, as from a server whose cache is late."""
        self._stale = self._counter, {resource: dict(items) for resource, items in self._objects.items()}

    def end_watches(self) -> None:
        """End all current watches."""
        self._cut += 1
        self._notify()

    # Requests.

    async def handle(self, request: Request) -> Response:
        """Answer one request."""
        try:
            if self.unavailable:
                raise Refusal(503, "no server is available", reason="ServiceUnavailable")
            url = urlsplit(request.target)
            if request.method == "GET" and url.path == f"/apis/{GROUP}" and self._versions:
                return json_response(self._group())
            target = self._target(url.path, dict(parse_qsl(url.query)))
            if target.query.get("watch") in {"1", "true"}:
                return self._watch(target)
            body = msgspec.json.decode(request.body) if request.body else {}
            return self._dispatch(request, target, body)
        except Refusal as refusal:
            return json_response(refusal.status, refusal.code)

    def _dispatch(self, request: Request, target: _Target, body: Object) -> Response:
        if request.method == "GET":
            verb = "get" if target.name else "list"
            if (verb, target.resource) in self._forbidden:
                raise Refusal(403, f"cannot {verb} {target.resource.plural}", reason="Forbidden")
            return json_response(self._out(target, self._get(target)) if target.name else self._list(target))
        if request.method == "POST" and not target.name:
            return json_response(self._out(target, self._create(target, self._in(target, body))), 201)
        if request.method == "PUT" and target.name:
            return json_response(self._out(target, self._replace(target, self._in(target, body))))
        if request.method == "PATCH" and target.name:
            return json_response(self._out(target, self._patch(request, target, body)))
        if request.method == "DELETE" and target.name:
            return json_response(self._delete(target, body))
        raise Refusal(405, f"{request.method} is not allowed here")

    def _target(self, path: str, query: Mapping[str, str]) -> _Target:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else ("", "", [])
        if parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        namespace = None
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        resource = _KNOWN.get((group, rest[0])) if rest else None
        served = self._versions if group == GROUP else ("v1",)
        if resource is None or version not in served:
            raise Refusal(404, "404 page not found", reason=" ")
        name, sub = rest[1] if len(rest) > 1 else None, rest[2] if len(rest) > 2 else None
        return _Target(resource, version, namespace, name, sub, query)

    def _group(self) -> Object:
        versions = [{"groupVersion": f"{GROUP}/{item}", "version": item} for item in self._versions]
        return {"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": versions}

    def _in(self, target: _Target, obj: Object) -> Object:
        return from_version(obj, target.version) if target.resource.negotiated else obj

    def _out(self, target: _Target, obj: Object) -> Object:
        whole = {"apiVersion": target.resource.version, "kind": target.resource.kind, **obj}
        return to_version(whole, target.version) if target.resource.negotiated else whole

    # Verbs.

    def _get(self, target: _Target) -> Object:
        found = self._objects[target.resource].get((target.namespace or "", target.name or ""))
        if found is None:
            raise Refusal(404, f'{target.resource.plural} "{target.name}" not found')
        return found

    def _list(self, target: _Target) -> Object:
        version, objects = self._seen(target.query.get("resourceVersion", ""))
        stored = objects[target.resource]
        items = [stored[key] for key in sorted(stored) if _selected(target, stored[key])]
        seen, _, offset = target.query.get("continue", f"{self._counter}:0").partition(":")
        start, limit = int(offset), int(target.query.get("limit") or len(items) or 1)
        if int(seen) < self._compacted:
            raise Refusal(410, "the provided continue parameter is too old")
        page = items[start : start + limit]
        metadata: Object = {"resourceVersion": str(version)}
        if start + limit < len(items):
            metadata["continue"] = f"{seen}:{start + limit}"
        whole = [self._out(target, item) for item in page]
        bare = [{key: value for key, value in item.items() if key not in {"kind", "apiVersion"}} for item in whole]
        return {"kind": f"{target.resource.kind}List", "apiVersion": "v1", "metadata": metadata, "items": bare}

    def _seen(self, not_before: str) -> tuple[int, dict[Resource, dict[ObjectKey, Object]]]:
        """The version and its objects: from the stale cache only if the caller accepts that version."""
        if not_before and self._stale and int(not_before) <= self._stale[0]:
            return self._stale
        return self._counter, self._objects

    def _create(self, target: _Target, obj: Object) -> Object:
        metadata = obj.get("metadata") or {}
        if not metadata.get("name") and metadata.get("generateName"):
            metadata = {**metadata, "name": f"{metadata['generateName']}{self._counter + 1:05x}"}
        if target.namespace is not None:
            metadata = {**metadata, "namespace": target.namespace}
        obj = self._prepared(target.resource, {**obj, "metadata": metadata}, None)
        if _key(obj) in self._objects[target.resource]:
            name = metadata["name"]
            raise Refusal(409, f'{target.resource.plural} "{name}" already exists', reason="AlreadyExists")
        if obj["kind"] in _HAS_STATUS:
            obj.pop("status", None)
        return self.put(target.resource, obj)

    def _replace(self, target: _Target, obj: Object) -> Object:
        old = self._get(target)
        sent = obj["metadata"].get("resourceVersion")
        if sent and sent != old["metadata"]["resourceVersion"]:
            raise Refusal(409, f'{target.resource.plural} "{target.name}": the object has been modified')
        if obj["metadata"].get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise Refusal(409, "the UID in the precondition does not match")
        if target.sub == "status":
            obj = {**old, "status": obj.get("status") or {}}
        elif old["kind"] in _HAS_STATUS:
            obj = {**obj, "status": old.get("status") or {}}
        return self._update(target.resource, old, obj)

    def _patch(self, request: Request, target: _Target, body: Object) -> Object:
        content = request.headers.get("Content-Type") or request.headers.get("content-type") or ""
        old = self._get(target)
        if content.startswith("application/merge-patch+json"):
            return self._update(target.resource, old, _merge(old, body))
        if content.startswith("application/apply-patch+yaml") and target.sub == "status":
            uid = body.get("metadata", {}).get("uid")
            if uid and uid != old["metadata"]["uid"]:
                raise Refusal(409, f"uid mismatch: the provided object specified uid {uid}")
            return self._update(target.resource, old, self._applied(target, old, self._in(target, body)))
        raise Refusal(415, f"patches of type {content!r} are not supported here")

    def _applied(self, target: _Target, old: Object, body: Object) -> Object:
        """``status.devices`` is a map by driver, pool, device and share: a manager replaces only its own entries."""
        manager = (old["metadata"]["uid"], target.query.get("fieldManager", ""))
        sent = {device_key(item): item for item in (body.get("status") or {}).get("devices") or ()}
        kept = {device_key(item): item for item in (old.get("status") or {}).get("devices") or ()}
        for key in self._owned.get(manager, set()) - set(sent):
            kept.pop(key, None)
        self._owned[manager] = set(sent)
        devices = list((kept | sent).values()) if self._device_status else []
        status = {key: value for key, value in (old.get("status") or {}).items() if key != "devices"}
        return {**old, "status": {**status, "devices": devices} if devices else status}

    def _delete(self, target: _Target, options: Object) -> Object:
        old = self._get(target)
        uid = (options.get("preconditions") or {}).get("uid")
        if uid and uid != old["metadata"]["uid"]:
            raise Refusal(409, "the UID in the precondition does not match")
        self.writes += 1
        self.remove(target.resource, old["metadata"]["name"], target.namespace or "")
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    # Storing.

    def _prepared(self, resource: Resource, obj: Object, old: Object | None) -> Object:
        """Default and validate an object before it is stored; raises Refusal."""
        if not obj["metadata"].get("name"):
            raise Refusal(422, "metadata.name: Required value", problems=[Problem("metadata.name", "required")])
        obj = {**obj, "kind": resource.kind}
        if resource.kind == "ResourceSlice":
            obj = self._prepared_slice(obj)
            check_slice(obj, old)
        if resource.kind == "ResourceClaim":
            check_claim(obj, old)
        return obj

    def _prepared_slice(self, obj: Object) -> Object:
        devices = [self._prepared_device(device) for device in obj["spec"].get("devices") or ()]
        spec = {key: value for key, value in obj["spec"].items() if key != "devices"}
        return {**obj, "spec": {**spec, "devices": devices} if devices else spec}

    def _prepared_device(self, device: Object) -> Object:
        if not device.get("taints"):
            return device
        if not self._device_taints:
            return {key: value for key, value in device.items() if key != "taints"}
        now = timestamp(self._now())
        return {**device, "taints": [{"timeAdded": now, **taint} for taint in device["taints"]]}

    def _update(self, resource: Resource, old: Object, obj: Object) -> Object:
        fixed = {key: old["metadata"][key] for key in ("uid", "creationTimestamp", "resourceVersion")}
        obj = self._prepared(resource, {**obj, "metadata": {**obj["metadata"], **fixed}}, old)
        return self._store(resource, _key(old), obj, old)

    def _store(self, resource: Resource, key: ObjectKey, obj: Object, old: Object | None) -> Object:
        if old is not None and {**obj, "metadata": {**obj["metadata"], **_version_of(old)}} == old:
            return old
        self._counter += 1
        self.writes += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._counter)}}
        self._objects[resource][key] = stored
        self._record(_Change(self._counter, "MODIFIED" if old else "ADDED", resource, stored))
        return stored

    def _record(self, change: _Change) -> None:
        self._history.append(change)
        self._notify()

    # Watches.

    def _notify(self) -> None:
        for waiter in self._waiters:
            waiter.set()

    def _watch(self, target: _Target) -> Response:
        since = int(target.query.get("resourceVersion") or self._counter)
        if since < self._compacted:
            raise Refusal(410, f"too old resource version: {since} ({self._compacted})")
        return Response(lines=self._stream(target, since, self._cut))

    async def _stream(self, target: _Target, since: int, cut: int) -> AsyncGenerator[bytes, None]:
        """Every change after ``since``, and bookmarks in between; ends with `end_watches` or the client's timeout."""
        waiter = asyncio.Event()
        self._waiters.add(waiter)
        end = asyncio.get_running_loop().time() + float(target.query.get("timeoutSeconds") or 3600)
        try:
            while self._cut == cut:
                waiter.clear()
                if since < self._compacted:
                    yield _line("ERROR", Refusal(410, "too old resource version").status)
                    return
                for change in self._history[bisect_right(self._history, since, key=lambda item: item.version) :]:
                    since = change.version
                    if change.resource is target.resource and _selected(target, change.object):
                        yield _line(change.type, self._out(target, change.object))
                if not await _woken(waiter, end):
                    if asyncio.get_running_loop().time() >= end:
                        return
                    yield _line("BOOKMARK", self._bookmark(target, since))
        finally:
            self._waiters.discard(waiter)

    def _bookmark(self, target: _Target, since: int) -> Object:
        kind = {"kind": target.resource.kind, "apiVersion": "v1"}
        return {**kind, "metadata": {"resourceVersion": str(since), "creationTimestamp": None}}


async def _woken(waiter: asyncio.Event, end: float) -> bool:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(min(end - loop.time(), _BOOKMARK_SECONDS)):
            return await waiter.wait()
    except TimeoutError:
        return False


def json_response(obj: Object, status: int = 200) -> Response:
    """A response with an object."""
    if not obj.get("reason", "x").strip():  # the response to an unknown path is plain text
        return Response(status, str(obj["message"]).encode(), {"content-type": "text/plain"})
    return Response(status, msgspec.json.encode(obj), {"content-type": "application/json"})


def _line(kind: str, obj: Object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


def _key(obj: Object) -> ObjectKey:
    return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


def _version_of(obj: Object) -> Object:
    return {"resourceVersion": obj["metadata"]["resourceVersion"]}


def _selected(target: _Target, obj: Object) -> bool:
    if target.namespace is not None and obj["metadata"].get("namespace") != target.namespace:
        return False
    labels = obj["metadata"].get("labels") or {}
    for term in filter(None, target.query.get("labelSelector", "").split(",")):
        name, _, wanted = term.partition("=")
        if labels.get(name) != wanted.removeprefix("="):
            return False
    for term in filter(None, target.query.get("fieldSelector", "").split(",")):
        path, _, value = term.partition("=")
        found: Any = obj
        for part in path.split("."):
            found = (found or {}).get(part)
        if found != value.removeprefix("="):
            return False
    return True


def _merge(old: Object, patch: Object) -> Object:
    out = dict(old)
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = _merge(out.get(key) or {}, value) if isinstance(value, dict) else value
    return out
