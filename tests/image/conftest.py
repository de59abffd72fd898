"""One place to build in, and the images that more than one module looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from release.bases import ARCHITECTURES, NotHereError, native
from release.emulation import enable
from release.images import need_tools
from tests.image.building import Workshop, workshop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """Skips the test on a machine that cannot build images, with the reason."""
    try:
        need_tools()
    except NotHereError as error:
        pytest.skip(f"the image was not built: {error}")
    with workshop(tmp_path_factory.mktemp("image")) as made:
        yield made


@pytest.fixture(scope="package")
def digest(shop: Workshop) -> str:
    """Of the image for this machine's processor, called first."""
    return shop.build("first")


@pytest.fixture(scope="package")
def files(shop: Workshop, digest: str) -> Path:
    """What is in it."""
    assert digest
    return shop.mount("first")


@pytest.fixture(
    scope="package",
    params=[pytest.param(each, marks=() if each == native() else pytest.mark.whole) for each in ARCHITECTURES],
)
def root(shop: Workshop, request: pytest.FixtureRequest) -> Path:
    """The files of the image for each processor."""
    if request.param == native():
        mounted: Path = request.getfixturevalue("files")
        return mounted
    try:
        enable(request.param)
    except NotHereError as error:
        pytest.skip(f"the image for {request.param} was not built: {error}")
    shop.build(request.param, request.param)
    return shop.mount(request.param)
