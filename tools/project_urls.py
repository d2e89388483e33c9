"""Addresses of the project in the wheel's metadata, given when it is built.

The publisher of a build sets where its source is: ``DRANET_SOURCE_URL=https://... make release``. A build
without it names no address, which is better than a wrong one.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGES = {
    "Source": "",
    "Documentation": "/tree/main/docs",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}


class ProjectUrls(MetadataHookInterface):  # type: ignore[misc]
    """Found by hatchling through pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        source = os.environ.get("DRANET_SOURCE_URL", "").rstrip("/").removesuffix(".git")
        metadata["urls"] = {name: source + page for name, page in PAGES.items()} if source else {}
