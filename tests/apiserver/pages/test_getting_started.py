"""docs/getting-started.md, followed from the image to the removal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.apiserver.pages.following import GETTING_STARTED, blocks
from tests.controlplane.processes import wait_until

if TYPE_CHECKING:
    from tests.apiserver.pages.fleet import Fleet
    from tests.apiserver.pages.following import Reader

pytestmark = pytest.mark.apiserver

_AMISS: Final = re.compile(r"^(?:warn|fail) +([^:]+):", re.MULTILINE)


def test_who_follows_the_page_gets_what_it_says_at_each_step(reader: Reader, fleet: Fleet) -> None:
    (install,) = blocks(GETTING_STARTED, "Install")
    installing = reader.start(install)
    with reader.pod_of_serve():
        printed = reader.finish(installing, codes={1})
        assert _AMISS.findall(printed) == ["callers"], printed

        _first_policy(reader)

        (rule,) = blocks(GETTING_STARTED, "A first preview", "yaml")
        reader.write("rule.yaml", rule)
        (preview,) = blocks(GETTING_STARTED, "A first preview")
        printed = reader.run(preview)
        assert "2 pods" in printed
        assert {"ml/train-0", "ml/train-1"} <= set(printed.split())

        with reader.pod_of_evict() as worker:
            worker.wait_working()
            (observe,) = blocks(GETTING_STARTED, "Observe")
            printed = reader.run(observe)
        assert "ObserveOnly" in printed.splitlines()
        assert "2 pods" in printed
        assert fleet.running() == {"train-0", "train-1"}

        which, evict, done = blocks(GETTING_STARTED, "Evict")
        assert re.search(r"^firmware +true$", reader.run(which), re.MULTILINE)
        before = reader.worker_arguments()
        evicting = reader.start(evict)
        wait_until(lambda: reader.worker_arguments() != before, "the mode is another", seconds=600)
        with reader.pod_of_evict():
            printed = reader.finish(evicting)
            assert printed.splitlines()[-1].endswith("condition met")
            assert fleet.running() == set()
            reader.run(done)

        (remove,) = blocks(GETTING_STARTED, "Remove it again")
        reader.run(remove)
        assert reader.left() == ""


def _first_policy(reader: Reader) -> None:
    """It warns, and refuses nothing."""
    policy, claim = blocks(GETTING_STARTED, "A first policy, in mode `warn`", "yaml")
    reader.write("policy.yaml", policy)
    reader.write("claim.yaml", claim)
    create, try_it, shown, audit = blocks(GETTING_STARTED, "A first policy, in mode `warn`")
    reader.run(create)
    printed = ""

    def warned() -> bool:
        nonlocal printed
        printed = reader.run(try_it)
        return "Warning" in printed

    wait_until(warned, "the policy holds")
    first, last = shown.splitlines()
    for part in first.split("..."):
        assert part.strip() in printed
    assert last in printed.splitlines()
    reader.run(audit)
