"""``dranet sysdump``: everything that a support ticket needs, in one archive, without secrets."""

from __future__ import annotations

import asyncio
import io
import json
import re
import tarfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dranet import __version__
from dranet.core.untyped import as_dict, as_list, get_path

if TYPE_CHECKING:
    from dranet.kubernetes.api.client import KubeClient

_HELP = """Write what a support ticket needs into one archive: ResourceSlices, classes, claims, templates, nodes, pods
that use claims, and the pods, logs and events of the driver. Read-only.

Secrets are not read. Values of environment variables, the last applied configuration, and values whose name is like
token, password, secret or key are replaced by REDACTED. Look at the archive before you send it.

\b
Examples:
  dranet sysdump
  dranet sysdump -o ticket-17.tar.gz --context production"""
_SECRET = re.compile(r"token|passw|secret|credential|api.?key|private.?key", re.IGNORECASE)
_IN_TEXT = re.compile(
    r"(?i)(bearer\s+|(?:token|passw(?:or)?d|secret|credentials?|api.?key|private.?key)[\"']?\s*[=:]\s*[\"']?)[^\s\"',}]+"
)
_REDACTED = "REDACTED"
_LOG_LINES, _LOG_BYTES = 5000, 16 << 20


@click.command(help=_HELP)
@click.option("-o", "--output", default="dranet-sysdump.tar.gz", show_default=True, metavar="FILE", help="The archive.")
@click.option("--kubeconfig", metavar="FILE", help="Kubeconfig of the live cluster.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option("--namespace", default="kube-system", show_default=True, help="Namespace of the driver.")
@click.option("--selector", default="app=dranet", show_default=True, help="Labels of the driver's pods.")
def sysdump(output: str, kubeconfig: str | None, context: str | None, namespace: str, selector: str) -> None:
    files = asyncio.run(_collect(kubeconfig, context, namespace, selector))
    with tarfile.open(output, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"dranet-sysdump/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    missing = files["not-read.txt"].count("\n")
    click.echo(f"{output}: {len(files)} files" + (f"; {missing} could not be read (not-read.txt)" if missing else ""))


async def _collect(kubeconfig: str | None, context: str | None, namespace: str, selector: str) -> dict[str, str]:
    """The files of the archive; what cannot be read is listed in one of them."""
    from dranet.kubernetes.api import resources
    from dranet.kubernetes.api.client import KubeClient
    from dranet.kubernetes.api.config import load_config
    from dranet.kubernetes.api.errors import ApiError

    files, unread = {"version.txt": f"dranet {__version__}\n"}, list[str]()
    every = (
        resources.RESOURCE_SLICES,
        resources.DEVICE_CLASSES,
        resources.RESOURCE_CLAIMS,
        resources.RESOURCE_CLAIM_TEMPLATES,
        resources.NODES,
        resources.PODS,
        resources.EVENTS,
    )
    async with KubeClient.from_config(load_config(kubeconfig, context=context)) as client:
        for resource in every:
            try:
                found = (await client.list(resource))[0]
            except ApiError as error:
                unread.append(f"{resource.plural}: the API server answered {error.code}")
                continue
            kept = [redact(obj) for obj in found if _wanted(obj, resource.kind, namespace, selector)]
            files[f"{resource.plural}.json"] = json.dumps(kept, indent=1) + "\n"
            if resource is resources.PODS:
                drivers = [obj for obj in kept if _is_driver(obj, namespace, selector)]
                files |= {name: text async for name, text in _logs(client, drivers, unread)}
        try:
            files["kubernetes.json"] = json.dumps(await client.request("GET", "/version"), indent=1) + "\n"
        except ApiError as error:
            unread.append(f"version: the API server answered {error.code}")
    return {**files, "not-read.txt": "".join(f"{line}\n" for line in unread)}


def _wanted(obj: dict[str, Any], kind: str, namespace: str, selector: str) -> bool:
    """Of pods those with claims and those of the driver, of events those about claims and the driver."""
    if kind == "Pod":
        return bool(get_path(obj, "spec", "resourceClaims")) or _is_driver(obj, namespace, selector)
    if kind == "Event":
        about = as_dict(obj.get("involvedObject") or obj.get("regarding"))
        return about.get("kind") in {"ResourceClaim", "Node"} or "dranet" in json.dumps(obj)
    return True


def _is_driver(obj: dict[str, Any], namespace: str, selector: str) -> bool:
    metadata = as_dict(obj.get("metadata"))
    labels = as_dict(metadata.get("labels"))
    wanted = [part.partition("=")[::2] for part in selector.split(",")]
    return metadata.get("namespace") == namespace and all(labels.get(key) == value for key, value in wanted)


async def _logs(client: KubeClient, pods: list[dict[str, Any]], unread: list[str]) -> Any:
    """Logs of all containers of the driver, also of the run before the last restart."""
    from dranet.kubernetes.api.errors import ApiError

    for pod in pods:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        for container in _containers(pod):
            limits = f"tailLines={_LOG_LINES}&limitBytes={_LOG_BYTES - 1}"
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}&{limits}"
            for previous in ("", "&previous=true"):
                try:
                    text = await client.text(path + previous, limit=_LOG_BYTES)
                except ApiError as error:
                    if not previous:  # most containers have not restarted
                        unread.append(f"log of {name} {container}: the API server answered {error.code}")
                    continue
                yield f"logs/{name}-{container}{'-previous' if previous else ''}.log", redact_text(text)


def _containers(pod: dict[str, Any]) -> Iterator[str]:
    for container in as_list(get_path(pod, "spec", "containers")):
        yield str(as_dict(container).get("name"))


def redact(value: Any, name: str = "") -> Any:
    """A copy without secrets: by name of the field, and in texts."""
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if key != "managedFields" and "last-applied" not in key}
        return {key: redact(one, key) for key, one in kept.items()}
    if isinstance(value, list):
        return [_redact_variable(one) if name == "env" else redact(one, name) for one in value]
    if isinstance(value, str):
        return _REDACTED if _SECRET.search(name) else redact_text(value)
    return value


def _redact_variable(variable: Any) -> Any:
    return {key: _REDACTED if key == "value" else redact(one, key) for key, one in as_dict(variable).items()}


def redact_text(text: str) -> str:
    """A text without what looks like a secret: ``token=...``, ``Bearer ...``."""
    return _IN_TEXT.sub(rf"\1{_REDACTED}", text)
