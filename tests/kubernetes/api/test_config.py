"""Finding the cluster as kubectl does: merged kubeconfigs, certificates, tokens, plugins, the pod's service account."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from dranet.core.http import Request
from dranet.kubernetes.api.auth import Anonymous, Basic, ExecCredential, StaticToken, TokenFile
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.config import ClusterConfig, from_kubeconfig, in_cluster, load_config
from dranet.kubernetes.api.errors import ApiError, ConfigError, ConnectionLost
from dranet.kubernetes.api.resources import NODES
from dranet.testing.apihttp import serve
from dranet.testing.apiserver import Response, SandboxApiServer
from dranet.testing.faults import LocalTransport


def kubeconfig(tmp_path: Path, server: str, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> Path:
    path = tmp_path / "config"
    raw = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_bytes(msgspec.json.encode(raw))
    return path


async def test_a_kubeconfig_gives_address_namespace_and_token(tmp_path: Path) -> None:
    config = from_kubeconfig(kubeconfig(tmp_path, "http://example:8080/sub/", {"token": "t"}))
    assert (config.host, config.port, config.prefix, config.namespace) == ("example", 8080, "/sub", "team")
    assert config.credential == StaticToken("t")


async def test_a_kubeconfig_may_be_yaml_and_name_a_password(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://h'}}]\nusers: [{name: u, user: {username: x, password: y}}]\n"
    )
    assert from_kubeconfig(path).credential == Basic("x", "y")


async def test_a_kubeconfig_without_the_wanted_context_lists_those_it_has(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "http://h", {})
    with pytest.raises(ConfigError, match=r"no context 'there' \(it has: here\)"):
        load_config(path, context="there")


def test_a_context_without_a_user_is_anonymous(tmp_path: Path) -> None:
    raw = {"contexts": [{"name": "a", "context": {"cluster": "c"}}], "clusters": [{"name": "c", "cluster": HTTP}]}
    (tmp_path / "config").write_text(json.dumps(raw))
    assert load_config(tmp_path / "config", context="a").credential == Anonymous()


HTTP = {"server": "http://h"}


def part(path: Path, **sections: Any) -> Path:
    """A kubeconfig with some sections: names to fields."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw: dict[str, Any] = {
        f"{kind}s": [{"name": name, kind: fields} for name, fields in entries.items()]
        for kind, entries in sections.items()
        if kind != "current"
    }
    if "current" in sections:
        raw["current-context"] = sections["current"]
    path.write_text(json.dumps(raw))
    return path


def merged(*paths: Path, context: str | None = None) -> ClusterConfig:
    return load_config(context=context, environ={"KUBECONFIG": ":".join(map(str, paths)), "HOME": "/nowhere"})


def test_several_files_of_kubeconfig_are_one_and_the_first_to_name_something_has_it(tmp_path: Path) -> None:
    one = part(tmp_path / "1", context={"a": {"cluster": "c", "user": "u"}}, user={"u": {"token": "first"}})
    two = part(
        tmp_path / "2",
        current="a",
        context={"a": {"cluster": "other", "user": "other"}},
        cluster={"c": {"server": "http://second"}},
        user={"u": {"username": "never", "password": "seen"}},
    )
    config = merged(one, tmp_path / "missing", two)
    assert (config.host, config.credential) == ("second", StaticToken("first"))


def test_the_first_current_context_counts(tmp_path: Path) -> None:
    contexts = {"a": {"cluster": "a"}, "b": {"cluster": "b"}}
    clusters = {"a": {"server": "http://a"}, "b": {"server": "http://b"}}
    one = part(tmp_path / "1", current="b")
    two = part(tmp_path / "2", current="a", context=contexts, cluster=clusters)
    assert merged(one, two).host == "b"
    assert merged(one, two, context="a").host == "a"


def test_an_empty_kubeconfig_among_others_is_fine(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("")
    two = part(tmp_path / "2", current="a", context={"a": {"cluster": "c"}}, cluster={"c": HTTP})
    assert merged(tmp_path / "1", two).host == "h"


def test_paths_are_relative_to_the_file_they_stand_in(tmp_path: Path) -> None:
    one = part(tmp_path / "x" / "1", user={"u": {"tokenFile": "secret/token"}})
    two = part(tmp_path / "y" / "2", current="a", context={"a": {"cluster": "c", "user": "u"}}, cluster={"c": HTTP})
    assert merged(one, two).credential == TokenFile(tmp_path / "x" / "secret" / "token")


def test_files_of_the_environment_that_are_not_there_are_named() -> None:
    with pytest.raises(ConfigError, match=r"\$KUBECONFIG names /no/such, which does not exist"):
        merged(Path("/no/such"))


def test_without_any_configuration_the_places_looked_at_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--kubeconfig, \$KUBECONFIG or ~/.kube/config"):
        load_config(environ={"HOME": str(tmp_path)})


def test_the_file_of_the_home_folder_is_found(tmp_path: Path) -> None:
    part(tmp_path / ".kube" / "config", current="a", context={"a": {"cluster": "c"}}, cluster={"c": HTTP})
    assert load_config(environ={"HOME": str(tmp_path)}).host == "h"


@pytest.mark.parametrize(
    ("user", "cluster", "words"),
    [
        ({}, {"proxy-url": "http://proxy:3128"}, r"proxy-url is set: connections through a proxy are not supported"),
        ({"as": "admin"}, {}, r"as is set: impersonation is not supported"),
        ({"auth-provider": {"name": "gcp"}}, {}, r"auth-provider is set: .* use an exec plugin"),
        ({"exec": {"args": ["x"]}}, {}, r"exec section has no command"),
        ({"client-certificate-data": "eA=="}, {}, r"the user has no client-key; both are needed"),
        ({}, {"certificate-authority-data": "%%%"}, r"certificate-authority-data is not base64"),
        ({}, {"certificate-authority-data": "eA=="}, r"certificate authority is not a PEM certificate"),
        ({}, {"certificate-authority": "empty.pem"}, r"certificate authority is empty"),
        ({}, {"certificate-authority": "missing.pem"}, r"cannot read certificate-authority .*missing.pem"),
        ({}, {"server": "ftp://h"}, r"'ftp://h' is not an http or https address"),
        ({}, {"server": "https://h:port"}, r"server 'https://h:port'"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], words: str
) -> None:
    (tmp_path / "empty.pem").touch()
    path = kubeconfig(tmp_path, "https://h", user, cluster)
    with pytest.raises(ConfigError, match=words) as caught:
        from_kubeconfig(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["[1, 2]", "{a: [", "contexts: {a: b}", "contexts: [{name: a, context: b}]"])
def test_a_broken_kubeconfig_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "config").write_text(content)
    with pytest.raises(ConfigError, match=str(tmp_path / "config")) as caught:
        from_kubeconfig(tmp_path / "config", context="a")
    assert "\n" not in str(caught.value)


# --- TLS -------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def secured(ca: trustme.CA, *, name: str = "127.0.0.1", client_certificates: bool = False) -> AsyncIterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert(name).configure_cert(context)
    if client_certificates:
        ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    server = SandboxApiServer()
    server.put(NODES, {"metadata": {"name": "n"}})
    async with serve(server, context=context) as port:
        yield port


async def kind_read(path: Path) -> str:
    async with KubeClient.from_config(from_kubeconfig(path)) as client:
        return str((await client.get(NODES, "n"))["kind"])


async def test_tls_is_verified_and_client_certificates_from_a_kubeconfig_are_shown(tmp_path: Path) -> None:
    ca = trustme.CA()
    user = ca.issue_cert("user@example.com")
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    user.cert_chain_pems[0].write_to_path(tmp_path / "user.pem")
    user.private_key_pem.write_to_path(tmp_path / "user.key")
    async with secured(ca, client_certificates=True) as port:
        pair = {"client-certificate": "user.pem", "client-key": "user.key"}
        path = kubeconfig(tmp_path, f"https://127.0.0.1:{port}", pair, {"certificate-authority": "ca.pem"})
        assert await kind_read(path) == "Node"


async def test_a_server_may_be_known_under_another_name_than_its_address(tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    async with secured(ca, name="kubernetes.default") as port:
        url = f"https://127.0.0.1:{port}"
        trusted = {"certificate-authority": "ca.pem"}
        with pytest.raises(ConnectionLost, match=r"(?i)certificate"):
            await kind_read(kubeconfig(tmp_path, url, {}, trusted))
        named = {**trusted, "tls-server-name": "kubernetes.default"}
        assert await kind_read(kubeconfig(tmp_path, url, {}, named)) == "Node"


async def test_verification_can_be_switched_off_and_only_so(tmp_path: Path) -> None:
    async with secured(trustme.CA()) as port:
        url = f"https://127.0.0.1:{port}"
        with pytest.raises(ConnectionLost, match=r"(?i)certificate verify failed"):
            await kind_read(kubeconfig(tmp_path, url, {}))
        assert await kind_read(kubeconfig(tmp_path, url, {}, {"insecure-skip-tls-verify": True})) == "Node"


# --- plugins ---------------------------------------------------------------------------------------------------------


def plugin(tmp_path: Path, body: str, **spec: Any) -> dict[str, Any]:
    """A user whose plugin is a shell script next to the kubeconfig; it may count its calls in $COUNT."""
    script = tmp_path / "plugin"
    script.write_text(f"#!/bin/sh\necho x >> $COUNT\n{body}\n")
    script.chmod(0o755)
    return {"exec": {"command": "./plugin", "env": [{"name": "COUNT", "value": str(tmp_path / "count")}], **spec}}


def printing(tmp_path: Path, **status: str) -> str:
    (tmp_path / "answer.json").write_text(json.dumps({"kind": "ExecCredential", "status": status}))
    return f"cat {tmp_path / 'answer.json'}"


def credential_of(tmp_path: Path, user: dict[str, Any]) -> Any:
    return from_kubeconfig(kubeconfig(tmp_path, "http://h", user)).credential


def calls(tmp_path: Path) -> int:
    return (tmp_path / "count").read_text().count("x")


class Recording(SandboxApiServer):
    """Notes who asks, and answers some requests from a script first."""

    def __init__(self) -> None:
        super().__init__()
        self.put(NODES, {"metadata": {"name": "n"}})
        self.shown: list[str] = []
        self.script: list[Response] = []

    async def handle(self, request: Request) -> Response:
        self.shown.append(request.headers.get("Authorization", ""))
        return self.script.pop(0) if self.script else await super().handle(request)


REFUSED = Response(401, b'{"reason": "Unauthorized"}')
NUMBERED = 'printf \'{"kind": "ExecCredential", "status": {"token": "t%d"}}\' $(wc -l < $COUNT)'


async def test_a_plugin_is_asked_once_and_again_after_401(tmp_path: Path) -> None:
    server = Recording()
    client = KubeClient(LocalTransport(server), credential_of(tmp_path, plugin(tmp_path, NUMBERED)))
    await client.get(NODES, "n")
    await client.get(NODES, "n")
    server.script.append(REFUSED)
    await client.get(NODES, "n")
    assert server.shown == ["Bearer t1", "Bearer t1", "Bearer t1", "Bearer t2"]


async def test_a_watch_that_is_refused_asks_the_plugin_again_too(tmp_path: Path) -> None:
    server = Recording()
    client = KubeClient(LocalTransport(server), credential_of(tmp_path, plugin(tmp_path, NUMBERED)))
    _, position = await client.list(NODES)
    server.script.append(REFUSED)
    with pytest.raises(ApiError, match="401"):
        await anext(client.watch(NODES, position))
    await client.get(NODES, "n")
    assert server.shown[-1] == "Bearer t2"


async def test_a_plugin_is_asked_again_when_what_it_gave_has_expired(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    script = printing(tmp_path, token="t", expirationTimestamp="2026-01-01T01:00:00Z")
    spec = plugin(tmp_path, script)["exec"] | {"command": str(tmp_path / "plugin")}
    credential = ExecCredential(spec, now=lambda: moment)
    await credential.headers()
    moment += timedelta(minutes=59)
    await credential.headers()
    assert calls(tmp_path) == 1
    moment += timedelta(minutes=1)
    await credential.headers()
    assert calls(tmp_path) == 2


async def test_a_client_certificate_of_a_plugin_is_shown_and_a_new_one_after_401(tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    for number in (1, 2):
        issued = ca.issue_cert("user@example.com")
        answer = {"clientCertificateData": issued.cert_chain_pems[0].bytes().decode()}
        answer["clientKeyData"] = issued.private_key_pem.bytes().decode()
        (tmp_path / f"answer{number}").write_text(json.dumps({"status": answer}))
    user = plugin(tmp_path, f"cat {tmp_path}/answer$(wc -l < $COUNT)")
    async with secured(ca, client_certificates=True) as port:
        path = kubeconfig(tmp_path, f"https://127.0.0.1:{port}", user, {"certificate-authority": "ca.pem"})
        config = from_kubeconfig(path)
        transport = config.transport()
        async with KubeClient(transport, config.credential) as client:
            await client.get(NODES, "n")
            (first,) = transport._idle
            await client.get(NODES, "n")
            assert transport._idle == [first]
            config.credential.invalidate()
            await client.get(NODES, "n")
            assert first not in transport._idle
    assert calls(tmp_path) == 2


async def test_a_plugin_without_anything_useful_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a token nor a client certificate"):
        await credential_of(tmp_path, plugin(tmp_path, printing(tmp_path))).headers()


async def test_half_a_client_certificate_is_refused(tmp_path: Path) -> None:
    user = plugin(tmp_path, printing(tmp_path, token="t", clientKeyData="k"))
    with pytest.raises(ConfigError, match="a client certificate or a key without the other"):
        await credential_of(tmp_path, user).headers()


async def test_a_plugin_that_fails_or_prints_nonsense_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plugin failed with exit code 3"):
        await credential_of(tmp_path, plugin(tmp_path, "exit 3")).headers()
    with pytest.raises(ConfigError, match=r"plugin did not print an ExecCredential"):
        await credential_of(tmp_path, plugin(tmp_path, "echo hello")).headers()
    user = plugin(tmp_path, printing(tmp_path, token="t", expirationTimestamp="soon"))
    with pytest.raises(ConfigError, match=r"expirationTimestamp 'soon'"):
        await credential_of(tmp_path, user).headers()


async def test_a_plugin_that_is_not_installed_is_named(tmp_path: Path) -> None:
    user = {"exec": {"command": "/no/such/plugin", "installHint": "ask your cloud"}}
    with pytest.raises(ConfigError, match=r"/no/such/plugin.*ask your cloud"):
        await credential_of(tmp_path, user).headers()


async def test_a_plugin_that_asks_for_it_is_told_the_cluster(tmp_path: Path) -> None:
    reported = tmp_path / "reported"
    body = f'printf "%s" "$KUBERNETES_EXEC_INFO" > {reported}\n{printing(tmp_path, token="t")}'
    user = plugin(tmp_path, body, provideClusterInfo=True, apiVersion="client.authentication.k8s.io/v1beta1")
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    path = kubeconfig(tmp_path, "http://h", user, {"extensions": [extension]})
    await from_kubeconfig(path).credential.headers()
    assert json.loads(reported.read_text()) == {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "http://h", "config": {"audience": "x"}}},
    }


# --- in a pod --------------------------------------------------------------------------------------------------------


async def test_the_service_account_token_is_read_for_every_request(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("first\n")
    config = in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert config.credential == TokenFile(tmp_path / "token")
    assert await config.credential.headers() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second\n")
    assert await config.credential.headers() == {"Authorization": "Bearer second"}


async def test_a_replaced_cluster_authority_is_trusted_without_a_restart(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    old.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("t")
    async with secured(new) as port:
        config = in_cluster({"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}, tmp_path)
        async with KubeClient.from_config(config) as client:
            with pytest.raises(ConnectionLost, match=r"(?i)certificate verify failed"):
                await client.get(NODES, "n")
            (tmp_path / "ca.crt").write_text("")
            os.utime(tmp_path / "ca.crt", ns=(1, 1))
            with pytest.raises(ConnectionLost, match=r"(?i)certificate verify failed"):
                await client.get(NODES, "n")
            new.cert_pem.write_to_path(tmp_path / "ca.crt")
            assert (await client.get(NODES, "n"))["kind"] == "Node"


def test_a_pod_without_the_cluster_authority_is_told_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the cluster's CA from .*ca.crt: No such file"):
        in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)
