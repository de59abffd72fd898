"""Pods that are due and whose disruption budgets must be looked up, by requests that take a while.

They wait apart from the work queue, so that nothing else waits for these requests.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict


class BudgetLookups:
    """Uids of pods. Namespaces take turns, so that one with very many pods does not hold up the others."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        """By namespace, in the order of their turns."""
        self._added = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, namespace: str, uid: str) -> None:
        """A pod that waits already keeps its place."""
        self._waiting.setdefault(namespace, OrderedDict()).setdefault(uid)
        self._added.set()

    async def get(self) -> str:
        """Removes and returns the next uid, as soon as there is one."""
        while not self._waiting:
            self._added.clear()
            await self._added.wait()
        namespace, uids = self._waiting.popitem(last=False)
        uid, _ = uids.popitem(last=False)
        if uids:
            self._waiting[namespace] = uids
        return uid
