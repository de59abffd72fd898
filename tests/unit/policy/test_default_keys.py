"""Keys of default tolerations: what API servers would refuse in a claim, a policy may not add to it."""

from __future__ import annotations

from tests.tables import table
from tests.unit.policy.documents import errors_in, make_defaults
from webhook.validation.formats import label_key


@table(
    "key",
    {
        "two dots": "gpu..example.com/flaky",
        "a dot before a dash": "gpu.-example.com/flaky",
        "a dash before a dot": "gpu-.example.com/flaky",
        "a prefix of 254 characters": f"{'a' * 254}/flaky",
    },
)
def test_a_default_toleration_may_not_have_a_key_that_no_server_takes(key: str) -> None:
    assert label_key(key)
    (error,) = errors_in(defaultTolerations=[make_defaults(key=key, operator="Exists")])
    assert error.startswith("defaultTolerations[0].tolerations[0].key: Invalid value: ")
    assert error.endswith(": prefix part must be a DNS subdomain of at most 253 characters")


@table(
    "key",
    {
        "dashes within": "my--gpu.example-a.com/flaky",
        "two dots in the name": "gpu.example.com/fla..ky",
        "a name alone": "fla.-ky",
        "a prefix of 253 characters": f"{'a' * 253}/flaky",
    },
)
def test_a_default_toleration_may_have_any_other_key(key: str) -> None:
    assert not label_key(key)
    assert errors_in(defaultTolerations=[make_defaults(key=key, operator="Exists")]) == []
