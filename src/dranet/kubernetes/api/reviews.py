"""Who has a token, and what may that user do: TokenReview and SubjectAccessReview."""

from __future__ import annotations

from typing import Any

from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.resources import Resource

TOKEN_REVIEWS = Resource("tokenreviews", "TokenReview", "authentication.k8s.io")
ACCESS_REVIEWS = Resource("subjectaccessreviews", "SubjectAccessReview", "authorization.k8s.io")

User = dict[str, Any]
"""`status.user` of a TokenReview."""


async def user_of(client: KubeClient, token: str) -> User | None:
    """The user of a token; None if the token is invalid or has expired."""
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = (await client.create(TOKEN_REVIEWS, asked)).get("status") or {}
    if status.get("authenticated") is not True or not status.get("user"):
        return None
    return dict(status["user"])


async def is_allowed(client: KubeClient, user: User, **attributes: dict[str, str]) -> bool:
    """Whether a user may do what `resourceAttributes` or `nonResourceAttributes` describe."""
    who = {key: user[key] for key in ("uid", "groups", "extra") if user.get(key)}
    spec = {"user": user.get("username", ""), **who, **attributes}
    asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    status = (await client.create(ACCESS_REVIEWS, asked)).get("status") or {}
    return status.get("allowed") is True
