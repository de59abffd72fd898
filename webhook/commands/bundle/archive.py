"""The archive: files by their names, with limits, written so that the same files give the same bytes."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import TYPE_CHECKING, Final

from webhook.files.structured import json_text

if TYPE_CHECKING:
    from typing import Any

    from webhook.commands.bundle.redaction import Pseudonyms

FILE_MOST_BYTES: Final = 5 * 1024 * 1024
TOTAL_MOST_BYTES: Final = 50 * 1024 * 1024
FOLDER: Final = "device-taint-webhook-bundle"
_MODE: Final = 0o644
README: Final = """\
# Support bundle of device-taint-webhook

Made by `bundle`. It has no Secrets, no keys, no tokens, no values of environment variables except our own flags, no
author signatures and no confirmation codes. Annotations of other programs, data of other ConfigMaps and parameters of
drivers are replaced by [redacted]. Read it before you send it.

| file | what it is |
|---|---|
| `errors.txt` | what could not be read, and what was cut |
| `versions.json` | the versions of this program, of Python, of the API server, and images |
| `policy.json` | the ConfigMap with the policy |
| `webhooks/` | both webhook configurations; of each caBundle only a digest |
| `workloads/` | Deployments, Pods, Services and disruption budgets of the namespace |
| `events.json` | Events of the namespace, and about DeviceTaintRules |
| `logs/POD/CONTAINER.log` | the last lines of each log |
| `metrics/POD.txt` | the metrics of each pod, read through the API server |
| `doctor.json` | the output of `doctor` |
| `devices/` | DeviceTaintRules, ResourceSlicePatches, slices with taints, and claims on tainted devices |
"""


class Archive:
    """Files in memory. `notes` become errors.txt."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.notes: list[str] = []
        self._total = 0

    def add_json(self, name: str, value: Any) -> None:
        """A value as indented JSON."""
        self.add(name, json_text(value))

    def add(self, name: str, text: str) -> None:
        """A file; one that is too large keeps its end, and the rest is left out if the archive is full."""
        content = text.encode(errors="backslashreplace")
        room = min(FILE_MOST_BYTES, TOTAL_MOST_BYTES - self._total)
        if len(content) > room:
            self.notes.append(f"{name}: cut from {len(content)} to its last {max(room, 0)} bytes")
            content = content[-room:] if room > 0 else b""
        self._total += len(content)
        self.files[name] = content

    def packed(self, pseudonyms: Pseudonyms | None = None) -> bytes:
        """The archive as tar.gz: names in order, no owner and no times. With pseudonyms, names are replaced."""
        notes = "".join(f"{note}\n" for note in self.notes) or "nothing: everything could be read\n"
        files = {**self.files, "README.md": README.encode(), "errors.txt": notes.encode()}
        packed = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as tar,
        ):
            for name, content in sorted(files.items()):
                shown, kept = name, content
                if pseudonyms is not None and name != "README.md":
                    shown, kept = pseudonyms.text(name), pseudonyms.text(content.decode(errors="replace")).encode()
                entry = tarfile.TarInfo(f"{FOLDER}/{shown}")
                entry.size, entry.mode = len(kept), _MODE
                tar.addfile(entry, io.BytesIO(kept))
        return packed.getvalue()
