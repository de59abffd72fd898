"""What a release asks of a machine before anything is built."""

from __future__ import annotations

import shutil

import pytest

from release import bases, needs
from release.source import ReleaseError

OTHER = next(each for each in bases.ARCHITECTURES if each != bases.native())


@pytest.fixture(autouse=True)
def _all_but_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name.startswith("qemu-") else f"/usr/bin/{name}")
    monkeypatch.setattr(needs, "need_tools", lambda: None)


def test_images_for_another_processor_need_its_emulator() -> None:
    with pytest.raises(ReleaseError, match=r"images: no qemu-.*; to release without them, say so: IMAGES=none"):
        needs.need_images(bases.ARCHITECTURES)


def test_images_for_this_processor_need_no_emulator() -> None:
    needs.need_images([bases.native()])


def test_images_of_the_flag_are_those_that_are_asked_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(needs, "source_of", lambda *_: None)
    assert [needs.main([f"--images={images}"]) for images in (bases.native(), OTHER, "", "none")] == [0, 2, 2, 0]
    assert capsys.readouterr().err.count("no qemu-") == 2
