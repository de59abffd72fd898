"""How the files of a release came to be: an in-toto statement with SLSA's provenance, not signed.

It says what was built from what, and nothing that only this run could know (its times, its machine), so that another
build of the same commit gives the same statement.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from release.tarballs import sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from release.source import Source

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
_LOCKS: Final = ("requirements.lock", "requirements-dev.lock")


def write_provenance(
    source: Source, files: Iterable[Path], parameters: Mapping[str, Any], repository: str, folder: Path
) -> Path:
    """Writes provenance.intoto.json, whose subjects are the files.

    `parameters` is what `make release` was given, and has `version`; `repository` is an address.
    """
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": file.name, "digest": {"sha256": sha256_of(file)}} for file in sorted(files)],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": f"{repository}/blob/{source.tag}/docs/development/releasing.md#what-the-build-does",
                "externalParameters": dict(parameters),
                "internalParameters": {"sourceDateEpoch": str(source.epoch)},
                "resolvedDependencies": [
                    {
                        "uri": f"git+{repository}@refs/tags/{source.tag}",
                        "digest": {"gitCommit": source.revision},
                    },
                    *(
                        {
                            "uri": f"{repository}/blob/{source.tag}/{name}",
                            "digest": {"sha256": sha256_of(source.root / name)},
                        }
                        for name in _LOCKS
                    ),
                ],
            },
            "runDetails": {
                "builder": {"id": f"{repository}/blob/{source.tag}/docs/development/releasing.md#who-builds"}
            },
        },
    }
    path = folder / "provenance.intoto.json"
    path.write_text(f"{json.dumps(statement, indent=2)}\n", encoding="utf-8")
    return path
