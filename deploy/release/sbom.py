"""What is inside, as SPDX 2.3: one document for each architecture's image, and one for the wheel.

Written from the same locks that the build takes, with the hash of every package as it was downloaded.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import debian
from facts import NAME, PROJECT, Facts

Package = dict[str, Any]
ROOT = "SPDXRef-root"


def of_image(facts: Facts, architecture: str, digest: str, root: Path, libraries: Iterable[Path], ours: Path) -> Any:
    """Debian's packages, the libraries and our own wheel."""
    packages = [_debian(line) for line in debian.listing(root).read_text().splitlines()]
    packages += [_wheel(path) for path in (*libraries, ours)]
    purl = f"pkg:oci/{NAME}@{quote(digest, safe='')}?arch={architecture}"
    image = _package(ROOT, f"{NAME}-image-{architecture}", facts.version, purl, digest.removeprefix("sha256:"))
    return _document(facts, f"{NAME}-image-{architecture}", image, [(one, "CONTAINS") for one in packages])


def of_wheel(facts: Facts, wheel: Path) -> Any:
    """What the wheel asks for; which versions an installation then takes is its own."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    needed = [(_requirement(line), "DEPENDS_ON") for line in project["dependencies"]]
    optional = [(_requirement(line), "OPTIONAL") for line in project["optional-dependencies"]["driver"]]
    return _document(facts, wheel.name, {**_wheel(wheel), "SPDXID": ROOT}, [*needed, *optional])


def _document(facts: Facts, name: str, root: Package, others: list[tuple[Package, str]]) -> Any:
    [checksum] = root["checksums"]
    relations = [_relation("SPDXRef-DOCUMENT", "DESCRIBES", ROOT)]
    for package, kind in others:
        if kind == "OPTIONAL":
            relations.append(_relation(package["SPDXID"], "OPTIONAL_DEPENDENCY_OF", ROOT))
        else:
            relations.append(_relation(ROOT, kind, package["SPDXID"]))
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{name}-{facts.version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{facts.version}-{checksum['checksumValue']}",
        "creationInfo": {"created": facts.created, "creators": ["Tool: dranet-make-release"]},
        "packages": [root, *(package for package, _ in others)],
        "relationships": relations,
    }


def _debian(line: str) -> Package:
    """A line of the lock: `zlib1g_1%3a1.3_amd64.deb 88720 SHA256:...`."""
    file, _, checksum = line.split()
    name, version, architecture = unquote(file).removesuffix(".deb").split("_")
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={architecture}&distro={debian.SUITE}"
    return _package(_id("deb", name), name, version, purl, checksum.partition(":")[2])


def _wheel(path: Path) -> Package:
    name, version = path.name.split("-")[:2]
    name = name.replace("_", "-").lower()
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    return _package(_id("pypi", name), name, version, f"pkg:pypi/{name}@{version}", checksum)


def _requirement(line: str) -> Package:
    name, wanted = re.fullmatch(r"([A-Za-z0-9-]+)(.*)", line).groups()  # type: ignore[union-attr]
    return _package(_id("pypi", name), name.lower(), wanted, f"pkg:pypi/{name.lower()}", "")


def _package(identity: str, name: str, version: str, purl: str, sha256: str) -> Package:
    return {
        "SPDXID": identity,
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "Apache-2.0" if name.startswith(NAME) else "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "checksums": [{"algorithm": "SHA256", "checksumValue": sha256}] if sha256 else [],
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl},
        ],
    }


def _relation(one: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def _id(kind: str, name: str) -> str:
    return f"SPDXRef-{kind}-{re.sub('[^A-Za-z0-9.]+', '-', name)}"
