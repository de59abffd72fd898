"""A client CA that breaks while a certificate in files is in use."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from tests.unit.certificates.test_source import Bench

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("left", [b"half a certificate", None])
def test_renewed_pair_is_served_with_the_last_good_client_ca(tmp_path: Path, left: bytes | None) -> None:
    bench = Bench(tmp_path, client_ca=True)
    before, file = bench.context, bench.source._settings.client_ca_file
    assert file is not None
    good = file.read_bytes()
    if left is None:
        file.unlink()
    else:
        file.write_bytes(left)
    bench.poll()
    assert bench.context is before
    bench.renew()
    bench.poll()
    renewed = bench.context
    assert renewed is not before
    assert renewed.get_ca_certs(binary_form=True) == [ssl.PEM_cert_to_DER_cert(good.decode())]
    assert bench.failures == 2
    file.write_bytes(good)
    bench.poll()
    assert (bench.context, bench.failures) == (renewed, 2)
