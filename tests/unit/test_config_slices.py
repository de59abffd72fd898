"""The flags of `serve` about ResourceSlices."""

from __future__ import annotations

import pytest

from webhook.config.serve import parse_serve
from webhook.config.settings import ConfigError


def test_slices_are_changed_only_if_asked_for() -> None:
    assert not parse_serve("serve", ["--cert-dir=/certs"], {}).slice_attributes
    assert not parse_serve("serve", ["--cert-dir=/certs"], {}).watch_patches
    settings = parse_serve("serve", ["--cert-dir=/certs", "--slice-attributes"], {})
    assert (settings.slice_attributes, settings.watch_patches) == (True, True)


def test_patches_are_objects_of_a_cluster() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_serve("serve", ["--cert-dir=/certs", "--standalone", "--slice-attributes"], {})
    expected = "--slice-attributes: Invalid value: true: may not be given together with --standalone"
    assert str(raised.value) == expected
