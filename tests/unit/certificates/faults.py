"""Writes faults.txt, all that both sources tell under a table of faults: `python -m tests.unit.certificates.faults`.

Each line is one look: the time, then what changed in `problem`, `remark`, context and metrics, then the log lines.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
import tempfile
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from tests.unit.certificates.world import MINUTE, SETTINGS, START, Turn, World
from webhook.certificates.authority import Authority, Pair
from webhook.certificates.settings import FileSettings
from webhook.certificates.source import CertificateSource, FileSource
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterator

FAULTS: Final = Path(__file__).with_name("faults.txt")
DAY: Final = timedelta(days=1)
_USUAL: Final = {*vars(logging.makeLogRecord({})), "message"}
_PREFIX: Final = "device_taint_webhook_certificate_"
_PARSERS_WORDS: Final = re.compile(r"((?:cannot be read|be loaded): )[^;\"]+")
"""They are not ours, and change with versions of OpenSSL."""


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._thread = threading.get_ident()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return
        extra = {name: value for name, value in vars(record).items() if name not in _USUAL}
        if "serial" in extra:
            extra["serial"] = re.sub("^[0-9a-f]+$", "SERIAL", extra["serial"])
        self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()} {json.dumps(extra)}")


class Bench:
    """One source that runs, and a clock that its waits move."""

    now: datetime
    source: CertificateSource
    metrics: Metrics

    def __init__(self) -> None:
        self._contexts: list[ssl.SSLContext] = []

    def number_of(self, context: ssl.SSLContext) -> int:
        """Count contexts as they come into service."""
        if context not in self._contexts:
            self._contexts.append(context)
        return self._contexts.index(context) + 1

    def jump(self, time: timedelta) -> None:
        self.now += time


class Files(Bench):
    """A source over two files and a client CA."""

    def __init__(self, folder: Path, *, client_ca: bool = False) -> None:
        super().__init__()
        self.folder, self.now = folder, START
        self.authority = Authority.create("test CA", now=START, lifetime=30 * DAY)
        self.metrics = Metrics(version="0", resources=())
        (folder / "ca.crt").write_bytes(self.authority.certificate)
        settings = FileSettings(
            certificate_file=folder / "tls.crt",
            key_file=folder / "tls.key",
            client_ca_file=folder / "ca.crt" if client_ca else None,
        )
        self.source = FileSource(
            settings,
            now=lambda: self.now,
            metrics=self.metrics,
            clock=lambda: self.now.timestamp(),  # noqa: PLW0108 -- it moves
        )

    def pair(self, lifetime: timedelta = 10 * DAY, made: datetime = START) -> Pair:
        return self.authority.serving_pair(["localhost"], now=made, lifetime=lifetime)

    def write(self, certificate: bytes | None = None, key: bytes | None = None, ca: bytes | None = None) -> None:
        """Replace those files that are given."""
        for name, content in (("tls.crt", certificate), ("tls.key", key), ("ca.crt", ca)):
            if content is not None:
                (self.folder / name).write_bytes(content)

    def put(self, pair: Pair) -> None:
        self.write(pair.certificate, pair.key)

    def renew(self) -> None:
        self.put(self.pair(made=self.now))

    def drop(self, name: str) -> None:
        (self.folder / name).unlink()

    def extend(self) -> None:
        """Add the CA to the chain: another content, the same leaf."""
        self.write((self.folder / "tls.crt").read_bytes() + self.authority.certificate)


class Managed(Bench):
    """A self-managed source over a Secret and two configurations in memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.world = World()
        self.folder = folder
        self.source, self.metrics = self.world.replica.source, self.world.replica.metrics

    @property
    def now(self) -> datetime:
        return self.world.now

    @now.setter
    def now(self, now: datetime) -> None:
        self.world.now = now

    def put(self, **fields: bytes) -> None:
        """Change fields of the Secret; the names are those of its fields with an underscore."""
        changed = {name.replace("_", "."): value for name, value in fields.items()}
        self.world.secret.put({**self.world.secret.data, **changed})

    def client_ca(self, content: bytes | None) -> None:
        """Ask for clients' certificates by these CAs; None is a file that is missing."""
        path = self.folder / "clients.crt"
        self.world.replica.source._settings = replace(SETTINGS, client_ca_file=path)
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)

    def break_all(self, fault: str) -> None:
        self.world.validating.read_only = self.world.mutating.read_only = fault

    def early(self) -> None:
        """Have the CA made by a clock that is half an hour ahead."""
        made = Authority.create("early", now=self.now + 30 * MINUTE, lifetime=SETTINGS.ca_lifetime).pair
        self.put(tls_crt=made.certificate, tls_key=made.key)


Step = Callable[[Any], Any]
Steps = dict[int, Step]
"""What happens before the look of that number."""


def _secret(fault: str) -> Step:
    return lambda bench: setattr(bench.world.secret, "broken", fault)


def _kept_out(make: Callable[[Files], Pair]) -> Steps:
    return {0: Files.renew, 2: lambda bench: bench.put(make(bench)), 16: Files.renew}


_NEW_CA: Final = Authority.create("clients", now=START, lifetime=DAY).certificate
FILES: Final[dict[str, Steps]] = {
    "both are missing at the start": {3: Files.renew},
    "the key is missing at the start": {0: lambda bench: bench.write(bench.pair().certificate), 3: Files.renew},
    "garbage at the start": {0: lambda bench: bench.write(b"x", b"y"), 3: Files.renew},
    "a good pair, then another": {0: Files.renew, 3: Files.renew, 6: Files.renew},
    "the same leaf with a longer chain": {0: Files.renew, 2: Files.extend},
    "the key goes for six minutes": {0: Files.renew, 2: lambda bench: bench.drop("tls.key"), 38: Files.renew},
    "the fault changes": {
        0: Files.renew,
        2: lambda bench: bench.drop("tls.key"),
        4: lambda bench: bench.write(key=b"x"),
        6: lambda bench: bench.drop("tls.crt"),
        8: Files.renew,
    },
    "only the certificate is new": {0: Files.renew, 2: lambda bench: bench.write(bench.pair().certificate)},
    "only the key is new": {0: Files.renew, 2: lambda bench: bench.write(key=bench.pair().key)},
    "half a certificate": _kept_out(lambda bench: Pair(bench.pair().certificate[:300], bench.pair().key)),
    "no certificate": _kept_out(lambda bench: Pair(b"", bench.pair().key)),
    "half a key": _kept_out(lambda bench: Pair(bench.pair().certificate, bench.pair().key[:100])),
    "not valid yet": _kept_out(lambda bench: bench.pair(made=START + DAY)),
    "ended": _kept_out(lambda bench: bench.pair(made=START - 9 * DAY, lifetime=9 * DAY)),
    "nears its end and is replaced": {
        0: lambda bench: bench.put(bench.pair(lifetime=DAY)),
        2: lambda bench: bench.jump(DAY - 61 * MINUTE),
        9: lambda bench: bench.jump(59 * MINUTE),
        16: Files.renew,
    },
    "a short life nears its end with a fault": {
        0: lambda bench: bench.put(bench.pair(lifetime=60 * MINUTE)),
        2: lambda bench: bench.jump(52 * MINUTE),
        5: lambda bench: bench.drop("tls.crt"),
        30: lambda bench: bench.jump(5 * MINUTE),
        33: Files.renew,
    },
}
CLIENTS: Final[dict[str, Steps]] = {
    "clients' CA: new": {0: Files.renew, 2: lambda bench: bench.write(ca=_NEW_CA)},
    "clients' CA: garbage": {0: Files.renew, 2: lambda bench: bench.write(ca=b"x"), 5: Files.renew},
    "clients' CA: missing": {
        0: lambda bench: [bench.renew(), bench.drop("ca.crt")],
        3: lambda bench: bench.write(ca=_NEW_CA),
    },
}
MANAGED: Final[dict[str, Steps]] = {
    "first installation": {},
    "no Secret at the start": {0: _secret("GET: 404"), 4: _secret("")},
    "no answer for eleven minutes": {2: _secret("GET: no answer"), 68: _secret("")},
    "the fault changes": {2: _secret("GET: 500"), 4: _secret("GET: 403"), 5: _secret("")},
    "Secret cannot be written": {0: lambda bench: setattr(bench.world.secret, "read_only", "PUT: 403")},
    "half a pair": {2: lambda bench: bench.put(tls_crt=b"")},
    "no PEM": {2: lambda bench: bench.put(tls_key=b"key")},
    "a time that is none": {
        2: lambda bench: bench.put(old_until=b"tomorrow"),
        5: lambda bench: bench.put(old_until=b""),
    },
    "a mismatched key": {2: lambda bench: bench.put(tls_key=Authority.create("o", now=START, lifetime=DAY).pair.key)},
    "Secret emptied": {2: lambda bench: bench.world.empty_secret()},
    "no configuration can be written": {
        0: lambda bench: bench.break_all("PATCH: 403"),
        5: lambda bench: bench.break_all(""),
    },
    "one configuration cannot be read": {2: lambda bench: setattr(bench.world.mutating, "broken", "GET: 403")},
    "no configuration": {
        0: lambda bench: setattr(bench.world.validating, "absent", True),
        1: lambda bench: setattr(bench.world.mutating, "absent", True),
    },
    "garbage in a caBundle": {2: lambda bench: bench.world.validating.put((b"garbage", b""))},
    "a leaf is renewed": {2: lambda bench: bench.jump(14 * MINUTE)},
    "a leaf nears its end, then ends": {
        2: _secret("GET: no answer"),
        3: lambda bench: bench.jump(17 * MINUTE),
        9: lambda bench: bench.jump(2 * MINUTE),
        20: _secret(""),
    },
    "a CA is rotated": {2: lambda bench: bench.jump(66 * MINUTE), 40: lambda bench: bench.jump(30 * MINUTE)},
    "a CA ends while nothing can be read": {
        2: _secret("GET: no answer"),
        3: lambda bench: bench.jump(100 * MINUTE),
        5: _secret(""),
    },
    "a CA by a clock that is ahead": {0: Managed.early},
    "a later CA by a clock that is ahead": {
        2: Managed.early,
        3: lambda bench: bench.jump(6 * MINUTE),
        5: Managed.early,
    },
    "the clock goes back": {2: lambda bench: bench.jump(-30 * MINUTE)},
    "clients' CA: new": {2: lambda bench: bench.client_ca(_NEW_CA)},
    "clients' CA: garbage": {2: lambda bench: bench.client_ca(b"x"), 5: lambda bench: bench.client_ca(_NEW_CA)},
    "clients' CA: missing": {0: lambda bench: bench.client_ca(None), 3: lambda bench: bench.client_ca(_NEW_CA)},
    "clients' CA: goes": {0: lambda bench: bench.client_ca(_NEW_CA), 3: lambda bench: bench.client_ca(None)},
}


def report() -> str:
    return "".join(_sections())


def _sections() -> Iterator[str]:
    for title, table, make in (
        ("files", FILES, Files),
        ("files", CLIENTS, lambda folder: Files(folder, client_ca=True)),
        ("self-managed", MANAGED, Managed),
    ):
        for fault, steps in table.items():
            with tempfile.TemporaryDirectory() as folder:
                text = "".join(f"{line}\n" for line in _history(make(Path(folder)), steps))
            yield f"== {title}: {fault}\n" + _PARSERS_WORDS.sub(r"\1...", text.replace(folder, "/certs"))


def _history(bench: Bench, steps: Steps) -> Iterator[str]:
    """Each look at which anything changed but the count of a lasting fault, and the last."""
    waits: list[float] = []

    really, this_thread = asyncio.sleep, threading.get_ident()

    async def sleep(seconds: float) -> None:
        if threading.get_ident() != this_thread:  # the loop of a server of another test
            await really(seconds)
            return
        waits.append(seconds)
        bench.now += timedelta(seconds=seconds)
        await Turn()

    told: dict[str, Any] = {}
    wait = 0.0
    looks = max(steps, default=0) + 8
    with mock.patch.object(asyncio, "sleep", sleep), _recorded() as lines:
        running: Coroutine[Any, Any, None] = bench.source.run()
        for look in range(looks):
            if look in steps:
                steps[look](bench)
            time = bench.now
            while len(waits) <= look:
                running.send(None)
            state = _state(bench)
            if lines or waits[-1] != wait or _uncounted(state) != _uncounted(told) or look + 1 == looks:
                changed = {name: value for name, value in state.items() if told.get(name) != value}
                yield f"{(time - START).total_seconds():g} s: {json.dumps(changed)}, waits {waits[-1]:g} s"
                yield from (f"    {line}" for line in lines)
                told, wait = state, waits[-1]
            lines.clear()
        running.close()


def _uncounted(state: dict[str, Any]) -> dict[str, Any]:
    """What is told at once; a fault that only lasts is told with the next line."""
    return {**state, "reload_failures_total": 0, "remark": re.sub("^[0-9]+", "", state.get("remark") or "")}


def _state(bench: Bench) -> dict[str, Any]:
    """What an operator sees of a source, and which context is served."""
    state: dict[str, Any] = {"problem": bench.source.problem, "remark": bench.source.remark}
    context = bench.source.context
    state["context"] = "" if context is None else bench.number_of(context)
    for family in bench.metrics.registry.collect():
        for sample in family.samples:
            if sample.name.startswith(_PREFIX) and not sample.name.endswith("_created"):
                state[" ".join((sample.name.removeprefix(_PREFIX), *sample.labels.values()))] = sample.value
    return state


@contextmanager
def _recorded() -> Generator[list[str]]:
    records, log = _Records(), logging.getLogger("webhook.certificates")
    before = log.level
    log.setLevel(logging.DEBUG)
    log.addHandler(records)
    try:
        yield records.lines
    finally:
        log.removeHandler(records)
        log.setLevel(before)


if __name__ == "__main__":
    FAULTS.write_text(report())
