"""The chart, packed for one registry: its values name that registry's image, by digest.

Packed here and not by `helm package`, whose archives carry the time of packing. helm takes both forms: the archive, and
the same archive as an OCI artifact.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import yaml
from facts import NAME, PROJECT, Facts
from oci import MANIFEST, LayerWriter, add_blob, layout_files, to_json

CHART = PROJECT / "deploy/helm/dranet"
CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
REPOSITORY, DIGEST = "  repository: localhost/dranet\n", '  digest: ""\n'
"""The lines of values.yaml that a release fills in."""


def pack(facts: Facts, image_digest: str) -> bytes:
    """The archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        writer = LayerWriter(tar)
        for path in sorted(CHART.rglob("*")):
            if path.is_file():
                name = f"{NAME}/{path.relative_to(CHART)}"
                writer.file(name, _content(path, facts, image_digest).encode())
    return gzip.compress(buffer.getvalue(), 9, mtime=0)


def artifact(facts: Facts, archive: bytes) -> tuple[str, dict[str, bytes]]:
    """The manifest's digest, and the files of an OCI layout around the archive."""
    blobs: dict[str, bytes] = {}
    described = yaml.safe_load(_content(CHART / "Chart.yaml", facts, ""))
    if described["version"] != facts.version or described["appVersion"] != facts.version:
        raise SystemExit(f"Chart.yaml is {described['version']} for {described['appVersion']}, not {facts.version}")
    names = {"title": NAME, "version": facts.version, "description": described["description"], "created": facts.created}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": add_blob(blobs, to_json(described), CONFIG),
        "layers": [add_blob(blobs, archive, CONTENT)],
        "annotations": {f"org.opencontainers.image.{key}": value for key, value in names.items()},
    }
    top = add_blob(blobs, to_json(manifest), MANIFEST)
    entry = {**top, "annotations": {"org.opencontainers.image.ref.name": facts.version}}
    return top["digest"], layout_files([entry], blobs)


def addressed_values(values: str, facts: Facts, image_digest: str) -> str:
    """values.yaml with registry and digest; as it is where there is no registry."""
    if not facts.registry:
        return values
    if values.count(REPOSITORY) != 1 or values.count(DIGEST) != 1:
        raise SystemExit(f"values.yaml must have {REPOSITORY.strip()!r} and {DIGEST.strip()!r} once, to be filled in")
    filled = values.replace(REPOSITORY, f"  repository: {facts.image}\n")
    return filled.replace(DIGEST, f'  digest: "{image_digest}"\n')


def install_yaml(facts: Facts, image_digest: str) -> str:
    """The plain manifest with registry and digest."""
    text = (PROJECT / "deploy/install.yaml").read_text()
    plain = f'"localhost/{NAME}:{facts.version}"'
    if plain not in text:
        raise SystemExit(f"deploy/install.yaml does not name the image {plain}: make install-yaml")
    return text.replace(plain, f'"{facts.image}@{image_digest}"') if facts.registry else text


def _content(path: Path, facts: Facts, image_digest: str) -> str:
    """The file as it is packed: with the addresses of this release, where it has them."""
    text = path.read_text()
    if path == CHART / "values.yaml":
        return addressed_values(text, facts, image_digest)
    if path == CHART / "Chart.yaml" and facts.source:
        icon = f"{facts.source}/raw/v{facts.version}/docs/images/icon.svg"
        return f"{text}home: {facts.source}\nsources: [{facts.source}]\nicon: {icon}\n"
    return text
