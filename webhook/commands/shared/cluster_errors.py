"""Asking a cluster once, as commands do that can also do without one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Unreachable(Exception):  # noqa: N818 -- it says what the cluster is
    """The cluster cannot be asked."""


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """For the length of a block, what goes wrong with the cluster is Unreachable."""
    # Here and not above: files need no client, and this one brings its libraries.
    from webhook.cluster.client.errors import ClusterError, NoCredentials  # noqa: PLC0415

    try:
        yield
    except (ClusterError, NoCredentials) as error:
        raise Unreachable(str(error)) from None
