"""All that an API server refuses in an object beyond taints and tolerations: for files, which no server has seen yet.

On a cluster the server judges an object before it calls the webhook, so reviews have no need of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.validation.decoding import decoding_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.api.field import JSON, FieldError
    from webhook.api.meta import GroupVersionKind
    from webhook.validation.releases import Release


def object_errors(value: JSON, old: JSON, kind: GroupVersionKind, release: Release) -> Iterator[FieldError]:
    """What is wrong with an object that is created (`old` is None) or updated."""
    del old
    yield from decoding_errors(value, kind, release)
