"""Folders of what is asked about in preview."""

from __future__ import annotations

from typing import Any

from tests.builders import make_pod
from tests.tables import table
from tests.unit.commands.preview_runner import CLUSTER, PreviewRunner, rule
from webhook.commands.preview import command as preview
from webhook.commands.shared.main import main_of

NONE = "contains no DeviceTaintRule, no ResourceSlice and no ResourceSlicePatch"


@table(
    "files, code, told",
    {
        "nothing of ours": ({"a": make_pod("x")}, 2, f"asked: error: {NONE}\n"),
        "one of two": ({"a": make_pod("x"), "b": rule()}, 0, "asked/b.yaml:1:1: DeviceTaintRule unhealthy-gpu: "),
        "a fault alone": ({"a": "{"}, 2, "asked/a.yaml:2:1: error: not YAML: "),
    },
)
def test_a_folder_without_a_subject_is_told(files: Any, code: int, told: str, run_preview: PreviewRunner) -> None:
    (run_preview.folder / "asked").mkdir()
    for stem, content in files.items():
        run_preview.write(f"asked/{stem}", content)
    words = ["asked", "--dump", run_preview.write("dump", CLUSTER)]
    given, output, _ = run_preview.said(main_of(preview, words))
    assert (given, output.startswith(told), output.count("error: ")) == (code, True, code // 2), output
