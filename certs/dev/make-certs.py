#!/usr/bin/env python3
"""Makes a throw-away CA and a serving certificate for a laptop: ca.crt, tls.crt and tls.key.

    certs/dev/make-certs.py                          # into certs/dev, for localhost
    certs/dev/make-certs.py --name webhook.test      # one more name; may be repeated
    certs/dev/make-certs.py --ca-bundle              # prints the CA for clientConfig.caBundle

Files of an earlier run that still hold are left as they are. The CA's key is never written. Another certificate means
another CA.
"""

from __future__ import annotations

import argparse
import base64
import os
import socket
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))  # from a checkout, without an installation

from webhook.certificates.authority import Authority  # noqa: E402 -- the path has to be there first
from webhook.certificates.parsing import Unusable, parsing  # noqa: E402 -- likewise

if TYPE_CHECKING:
    from collections.abc import Sequence

# How a webhook on a laptop is called: by itself, from containers (Docker, Podman, kind), from minikube.
NAMES: Final = (
    "localhost",
    "127.0.0.1",
    "::1",
    "host.docker.internal",
    "host.containers.internal",
    "host.minikube.internal",
)
CA_NAME: Final = "device-taint-webhook development CA"
FILES: Final = ("ca.crt", "tls.crt", "tls.key")
_OWNER_ONLY: Final = 0o600
_READABLE: Final = 0o644


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when the files are there, 2 when other ones are in their place or they cannot be written."""
    options = _parser().parse_args(arguments)
    folder: Path = options.out
    names = [*NAMES, socket.gethostname(), *options.name]
    try:
        until = None if options.force else usable_until(folder, names)
        if until is not None:
            print(f"{folder}: {', '.join(FILES)} are there, valid until {until:%Y-%m-%d}", file=sys.stderr)
        elif not (options.ca_bundle and (folder / "ca.crt").exists() and not options.force):
            write(folder, names, days=options.days, force=options.force)
        if options.ca_bundle:
            print(base64.b64encode((folder / "ca.crt").read_bytes()).decode())
    except (ValueError, OverflowError) as error:
        sys.stderr.write(f"make-certs.py: --name or --days: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"make-certs.py: {error.filename}: {error.strerror}{_way_out(error)}\n")
        return 2
    return 0


def usable_until(folder: Path, names: Sequence[str]) -> datetime | None:
    """Until when an earlier run's files hold for these names; None if they are not all there, or others' work."""
    if not all((folder / name).exists() for name in FILES):
        return None
    now = datetime.now(UTC)  # noqa: TID251 -- the shell's clock
    try:
        with parsing("an earlier run's certificates"):
            ca = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
            leaf = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
            key = load_pem_private_key((folder / "tls.key").read_bytes(), password=None)
            leaf.verify_directly_issued_by(ca)
            known = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            named = {*known.get_values_for_type(x509.DNSName), *map(str, known.get_values_for_type(x509.IPAddress))}
            ours = ca.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value == CA_NAME
            fits = key.public_key() == leaf.public_key()
            end = leaf.not_valid_after_utc
    except Unusable:
        return None
    return end if ours and fits and named >= set(names) and now < end else None


def write(folder: Path, names: Sequence[str], *, days: float, force: bool) -> None:
    """A new CA's certificate, and a pair that it signed. Raises FileExistsError rather than overwrite, unless told."""
    now, lifetime = datetime.now(UTC), timedelta(days=days)  # noqa: TID251 -- the shell's clock
    authority = Authority.create(CA_NAME, now=now, lifetime=lifetime)
    pair = authority.serving_pair(list(dict.fromkeys(names)), now=now, lifetime=lifetime)
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "ca.crt": (authority.certificate, _READABLE),
        "tls.crt": (pair.certificate, _READABLE),
        "tls.key": (pair.key, _OWNER_ONLY),
    }
    taken = [folder / name for name in files if (folder / name).exists()]
    if taken and not force:
        raise FileExistsError(17, "exists", str(taken[0]))
    for name, (content, mode) in files.items():
        _replace(folder / name, content, mode)
    print(f"{folder}: {', '.join(files)}; valid for {days:g} days", file=sys.stderr)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Writes a file that is never there by half, and never readable by others for a moment."""
    fresh = path.with_suffix(f"{path.suffix}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    fresh.replace(path)


def _way_out(error: OSError) -> str:
    return "; --force makes a new one in its place" if isinstance(error, FileExistsError) else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="where to write (default: beside this)")
    parser.add_argument("--name", action="append", default=[], help="a further DNS name or IP address")
    parser.add_argument("--days", type=float, default=30.0, help="how long both are valid (default: 30)")
    parser.add_argument("--force", action="store_true", help="replace what is there")
    parser.add_argument(
        "--ca-bundle",
        action="store_true",
        help="print the CA in base64, as clientConfig.caBundle wants it; files are made only if there are none",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
