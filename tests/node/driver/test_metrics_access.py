"""TLS and authorization of the driver's port, with a client of its own: curl's view of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dranet.core.errors import InvalidInput
from dranet.core.http import Request
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import ConnectionLost
from dranet.node.server.metrics_access import ALLOWED_SECONDS, Certificate, MetricsGuard
from dranet.node.server.options import parse
from dranet.node.server.probes import ProbeServer
from dranet.testing.apiserver import Response, SandboxApiServer, json_response
from dranet.testing.faults import LocalTransport

TOKENS = {"scraper": "prometheus", "other": "somebody"}


class Reviews(LocalTransport):
    """An API server that knows two tokens; one user may get /metrics."""

    def __init__(self) -> None:
        super().__init__(SandboxApiServer())
        self.asked = 0
        self.gone = False

    async def open(self, request: Request) -> Response:
        if self.gone:
            raise ConnectionLost("no answer")
        body: dict[str, Any] = json.loads(request.body)
        self.asked += 1
        if request.target == "/apis/authentication.k8s.io/v1/tokenreviews":
            user = TOKENS.get(body["spec"]["token"])
            status = {"authenticated": user is not None, "user": {"username": user, "groups": ["g"]} if user else {}}
            return json_response({**body, "status": status}, 201)
        assert request.target == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        spec = body["spec"]
        assert (spec["nonResourceAttributes"], spec["groups"]) == ({"path": "/metrics", "verb": "get"}, ["g"])
        return json_response({**body, "status": {"allowed": spec["user"] == "prometheus"}}, 201)


class Port:
    def __init__(self, folder: Path) -> None:
        self.folder, self.now, self.reviews = folder, 0.0, Reviews()
        self.issue("first")
        self.guard = MetricsGuard(KubeClient(self.reviews), lambda: self.now)
        self.certificate = Certificate(str(folder / "tls.crt"), str(folder / "tls.key"))
        self.web = ProbeServer(
            lambda: b"up 1\n",
            long_missing=list,
            missing=list,
            certificate=self.certificate,
            guard=self.guard,
        )

    def issue(self, name: str) -> None:
        """A new certificate in place of the old one, as the kubelet replaces a Secret's files."""
        new = [self.folder / "new.key", self.folder / "new.crt"]
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run([*command, "-keyout", str(new[0]), "-out", str(new[1])], check=True, capture_output=True)
        new[0].rename(self.folder / "tls.key")
        new[1].rename(self.folder / "tls.crt")

    async def curl(self, path: str, token: str = "", *, scheme: str = "https") -> str:
        """Status and body; 000 where the connection fails."""
        url = f"{scheme}://127.0.0.1:{self.web.ports[0]}{path}"
        header = ["--header", f"Authorization: Bearer {token}"] if token else []
        options = ["--silent", "--cacert", str(self.folder / "tls.crt"), "--write-out", "%{http_code}"]
        command = ["curl", *options, *header, url]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=20)
        return done.stdout


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[Port]:
    made = Port(tmp_path)
    await made.web.start("127.0.0.1:0")
    yield made
    await made.web.stop()


async def test_only_a_token_that_may_get_metrics_gets_them(port: Port) -> None:
    assert (await port.curl("/metrics")).endswith("401")
    assert (await port.curl("/metrics", "unknown")).endswith("401")
    assert await port.curl("/metrics", "other") == "User somebody may not get the non-resource URL /metrics\n403"
    assert await port.curl("/metrics", "scraper") == "up 1\n200"


async def test_probes_need_no_token_and_plain_http_gets_nothing(port: Port) -> None:
    assert await port.curl("/readyz") == "ok\n200"
    assert "up 1" not in await port.curl("/metrics", "scraper", scheme="http")
    assert port.reviews.asked == 0


async def test_a_permission_is_reviewed_again_after_a_minute(port: Port) -> None:
    await port.curl("/metrics", "scraper")
    asked = port.reviews.asked
    port.reviews.gone = True
    assert (await port.curl("/metrics", "scraper")).endswith("200")
    port.now += ALLOWED_SECONDS
    assert (await port.curl("/metrics", "scraper")).endswith("503")
    assert port.reviews.asked == asked


async def test_a_new_certificate_is_used_without_a_restart(port: Port) -> None:
    assert (await port.curl("/livez")).endswith("200")
    port.issue("second")
    assert (await port.curl("/livez")).endswith("200")  # curl trusts only the new one now
    (port.folder / "tls.crt").write_text("broken")
    assert port.certificate.context is not None
    assert (await port.curl("/livez")).endswith("000")  # curl has no certificate to trust; the driver still runs
    port.issue("third")
    assert (await port.curl("/livez")).endswith("200")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--tls-cert-file=/c"], "are needed together"),
        (["--metrics-authorization"], "needs --tls-cert-file"),
    ],
)
def test_flags_that_do_not_fit_together_are_refused(flags: list[str], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        parse(flags)


def test_a_missing_certificate_is_an_error_of_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="--tls-cert-file"):
        Certificate(str(tmp_path / "a"), str(tmp_path / "b"))
