"""docs/impact.md: its examples are policies, and its digests are right."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from webhook.commands.shared.policy_files import read_policy

PAGE = (Path(__file__).parents[2] / "docs" / "impact.md").read_text()
HEADER = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
POLICIES = [text for text in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if "limits:" in text]
DIGESTS = re.findall(r"^\| `(\{.+\})` \| `(\w+)` \|$", PAGE, re.MULTILINE)


def test_examples_and_digests_are_found() -> None:
    assert (len(POLICIES), len(DIGESTS)) == (2, 3)


@pytest.mark.parametrize("text", POLICIES)
def test_example_is_a_policy_without_mistakes(text: str) -> None:
    loaded = read_policy(HEADER + text)
    assert (loaded.policy is not None, loaded.errors, loaded.warnings) == (True, (), ())


@pytest.mark.parametrize(("canonical", "digest"), DIGESTS)
def test_digest_is_computed_as_the_page_says(canonical: str, digest: str) -> None:
    assert json.dumps(json.loads(canonical), sort_keys=True, separators=(",", ":")) == canonical
    first = hashlib.sha256(canonical.encode()).digest()[:10]
    assert base64.b32encode(first).decode().lower() == digest


def test_digests_are_the_vectors_that_the_code_is_held_to() -> None:
    vectors = (Path(__file__).parents[1] / "unit" / "admission" / "test_confirmation.py").read_text()
    assert [digest for _, digest in DIGESTS if f'"{digest}"' not in vectors] == []
