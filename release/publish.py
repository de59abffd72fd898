"""Publishes what `make release` built: pushes image and chart, and signs them: `make publish`.

It needs skopeo, helm and cosign, signed in to the registry that the release was built for, and no Python package.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from release.index import write_layout
from release.source import ReleaseError
from release.tarballs import sha256_of

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME: Final = "device-taint-webhook"
_STATEMENT: Final = "provenance.intoto.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 if something was not published; running it again is safe."""
    given = command_line().parse_args(arguments)
    try:
        print(publish(given.folder, given))
    except ReleaseError as error:
        print(f"make publish: {error}", file=sys.stderr)
        return 2
    return 0


def command_line() -> argparse.ArgumentParser:
    """What `make publish` can be given."""
    parser = argparse.ArgumentParser(prog="python -m release.publish", description=__doc__)
    parser.add_argument("folder", type=Path, help="what make release printed: dist/vVERSION")
    parser.add_argument("--key", default="", help="sign with this key; else cosign asks who you are")
    parser.add_argument("--signing-config", default="", help="the services that cosign uses; else Sigstore's")
    parser.add_argument("--plain-http", action="store_true", help="the registry has no TLS, such as one for a test")
    return parser


def publish(folder: Path, given: argparse.Namespace) -> str:
    """Pushes and signs, and gives what was pushed: REGISTRY/device-taint-webhook@sha256:...

    The signatures of the files are written beside them. Raises: ReleaseError.
    """
    _check_sums(folder)
    predicate = json.loads((folder / _STATEMENT).read_text(encoding="utf-8"))["predicate"]
    parameters = predicate["buildDefinition"]["externalParameters"]
    image = f"{parameters['registry']}/{NAME}"
    pushed = f"{image}@{_push_image(folder, parameters, image, given)}"
    _run("helm", "push", *_plain(given, "--plain-http"), *_chart(folder, parameters))
    _sign_files(folder, given)
    _sign_image(folder, predicate, pushed, given)
    return pushed


def _check_sums(folder: Path) -> None:
    try:
        lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ReleaseError(f"{error}: run make release first") from error
    sums = {name: wanted for wanted, _, name in (line.partition("  ") for line in lines)}
    for name, wanted in sums.items():
        file = folder / name
        if not file.is_file() or sha256_of(file) != wanted:
            raise ReleaseError(f"{file} is not what SHA256SUMS says: run make release again")
    signed = {"SHA256SUMS", "SHA256SUMS.sigstore.json", "provenance.sigstore.json"}
    unknown = sorted({file.name for file in folder.iterdir()} - sums.keys() - signed)
    if unknown:
        raise ReleaseError(f"SHA256SUMS does not name {', '.join(unknown)}: remove it, or run make release again")


def _push_image(folder: Path, parameters: dict[str, Any], image: str, given: argparse.Namespace) -> str:
    version = parameters["version"]
    if not parameters["images"]:
        raise ReleaseError("this release was built without images (IMAGES=none): run make release again with them")
    archives = [folder / f"{NAME}-{version}-linux-{each}.tar" for each in parameters["images"]]
    with tempfile.TemporaryDirectory(prefix="publish-") as work:
        digest = write_layout(archives, version, Path(work))
        if digest not in (folder / "image-digests.txt").read_text(encoding="utf-8"):
            raise ReleaseError(f"image-digests.txt has no {digest}: run make release again")
        options = ["--all", "--preserve-digests", "--retry-times=3", *_plain(given, "--dest-tls-verify=false")]
        _run("skopeo", "copy", *options, f"oci:{work}:{version}", f"docker://{image}:{version}")
    return digest


def _chart(folder: Path, parameters: dict[str, Any]) -> tuple[str, str]:
    return str(folder / f"{NAME}-{parameters['version']}.tgz"), f"oci://{parameters['registry']}/charts"


def _sign_files(folder: Path, given: argparse.Namespace) -> None:
    """One signature on the sums covers all files; one on the statement says where they come from."""
    sums, bundle = folder / "SHA256SUMS", folder / "SHA256SUMS.sigstore.json"
    _run("cosign", "sign-blob", *_signer(given), "--bundle", str(bundle), str(sums))
    statement, bundle = folder / _STATEMENT, folder / "provenance.sigstore.json"
    _run("cosign", "attest-blob", *_signer(given), "--statement", str(statement), "--bundle", str(bundle))


def _sign_image(folder: Path, predicate: dict[str, Any], pushed: str, given: argparse.Namespace) -> None:
    """By its digest, with its bill of materials and its provenance."""
    options = [*_signer(given), *_plain(given, "--allow-http-registry")]
    _run("cosign", "sign", *options, "--recursive", pushed)
    (bill,) = folder.glob("*.cdx.json")
    _run("cosign", "attest", *options, "--type", "cyclonedx", "--predicate", str(bill), pushed)
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(predicate, file)
        file.flush()
        _run("cosign", "attest", *options, "--type", "slsaprovenance1", "--predicate", file.name, pushed)


def _signer(given: argparse.Namespace) -> list[str]:
    config = ["--signing-config", given.signing_config] if given.signing_config else []
    return ["--yes", *(["--key", given.key] if given.key else []), *config]


def _plain(given: argparse.Namespace, flag: str) -> list[str]:
    return [flag] if given.plain_http else []


def _run(*command: str) -> None:
    """With the tool's own output to standard error, as it is what an owner sees of a failure."""
    try:
        subprocess.run(command, stdout=sys.stderr, check=True)
    except OSError as error:
        raise ReleaseError(f"{command[0]}: {error.strerror or error}") from error
    except subprocess.CalledProcessError as error:
        raise ReleaseError(f"{' '.join(command[:2])} ended with {error.returncode}") from error


if __name__ == "__main__":
    sys.exit(main())
