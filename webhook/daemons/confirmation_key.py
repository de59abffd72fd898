"""The worker's copy of the key that proves confirmation codes. The worker reads it and never writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.admission.confirmation import is_proved, read_code
from webhook.admission.patch_code import is_patch_proved
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import CONFIRM_IMPACT
from webhook.cluster.mac_key import KeySecret
from webhook.cluster.settings import KeySettings
from webhook.eviction.ceiling import NOT_CONFIRMED, Confirmation
from webhook.files.keys import key_in
from webhook.runtime import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.rules import DeviceTaintRule
    from webhook.cluster.client.rest import Cluster
    from webhook.config.evict import EvictSettings

NO_KEY: Final = "it cannot be verified, as the key is not known"
_ABSENT_MOST_SECONDS: Final = 60.0
_FORGED: Final = "it was made for another rule, selector, taint or effect, or with another key"
_FORGED_FOR_PATCH: Final = "it was made for another patch, filter, taint or effect, or with another key"


class CodeKey:
    """The key, from a file or a Secret. If neither is configured, codes are accepted without proof."""

    def __init__(
        self,
        settings: EvictSettings,
        cluster: Cluster,
        on_change: Callable[[], None],
        random: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`on_change` is called when the key was first read or has changed, so that codes are checked again."""
        name = settings.key_secret
        self._file = settings.key_file
        self._key: bytes | None = None
        self._secret: KeySecret | None = None
        if name is not None:
            # An installation without a key has none for good, and reading it takes requests from evictions.
            where = KeySettings(namespace=name.namespace, name=name.name, absent_most_seconds=_ABSENT_MOST_SECONDS)
            self._secret = KeySecret(cluster, where, fill=False, on_change=on_change, random=random)

    @property
    def problem(self) -> str | None:
        """Why the key is not known, or None."""
        return None if self._secret is None else self._secret.problem

    @property
    def expected(self) -> bool:
        """Whether a key is configured."""
        return self._secret is not None or self._file is not None

    @property
    def in_place(self) -> bool:
        """Whether the key is known and its Secret, if it comes from one, still holds it."""
        return self._key is not None if self._secret is None else self._secret.in_place

    def confirmation_of(self, judged: DeviceTaintRule | ResourceSlicePatch) -> Confirmation:
        """The confirmation code on a rule or patch, and why it does not count, if it does not."""
        text = judged.meta.annotations.get(CONFIRM_IMPACT, "")
        if not text:
            return NOT_CONFIRMED
        code = read_code(text)
        return Confirmation(None if code is None else code.numbers, self.code_problem_of(judged))

    def code_problem_of(self, judged: DeviceTaintRule | ResourceSlicePatch) -> str:
        """Why the code on a rule or patch is not proved; empty if it is. Expiry does not matter."""
        if self._secret is None and self._file is None:
            return ""
        key = self._key if self._secret is None else self._secret.key
        if key is None:
            return NO_KEY
        if isinstance(judged, ResourceSlicePatch):
            return "" if is_patch_proved(judged, key) else _FORGED_FOR_PATCH
        return "" if is_proved(judged, key) else _FORGED

    def stages(self) -> list[Stage]:
        """The start waits for one attempt to read the key; until the key is known, no code counts."""
        if self._secret is not None:
            return [Stage(name="key", work=self._secret.run, start=self._looked)]
        return [] if self._file is None else [Stage(name="key", start=self._read)]

    async def _looked(self) -> None:
        assert self._secret is not None
        await self._secret.tried.wait()

    async def _read(self) -> None:
        assert self._file is not None
        self._key = key_in(self._file)
