"""Samples are known by their content, wherever they lie."""

import os
import subprocess
from pathlib import Path

import pytest

from edgeperf import InputError
from edgeperf.datasets import identity, open_task
from edgeperf.datasets.catalogue import data_for
from edgeperf.datasets.identity import DataIdentity, identify


def of(place: Path, memory: Path | None = None) -> DataIdentity:
    """Return what is in *place*."""
    found = identify(None, data=place, inputs_file=None, memory=memory)
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a folder per class."""
    for name, text in {"cat/1.png": "a", "cat/2.png": "b", "dog/1.png": "c"}.items():
        path = tmp_path / "samples" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "samples"


def test_folder_has_the_digest_that_sha256sum_tells(folder: Path) -> None:
    """Anybody can find it without edgeperf."""
    command = "find . -type f -printf '%P\\n' | LC_ALL=C sort | xargs sha256sum | sha256sum"
    told = subprocess.run(command, shell=True, cwd=folder, capture_output=True, check=True)  # noqa: S602
    assert of(folder).sha256 == told.stdout.split()[0].decode()
    assert of(folder).size_bytes == 3


def test_content_counts_not_the_place(folder: Path, tmp_path: Path) -> None:
    """A moved folder and a link are the same; an edit, a new name, a new file are not."""
    before = of(folder)
    (folder / ".hidden").write_text("x")
    moved = folder.rename(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(moved)
    assert of(moved) == of(tmp_path / "link") == before
    (moved / "dog" / "1.png").rename(moved / "dog" / "2.png")
    renamed = of(moved)
    (moved / "dog" / "2.png").write_text("d")
    edited = of(moved)
    (moved / "dog" / "3.png").write_text("e")
    assert len({one.sha256 for one in (before, renamed, edited, of(moved))}) == 4


def test_linked_folders_and_listed_files_count(folder: Path, tmp_path: Path) -> None:
    """Photographs that a link or a list leads to are samples too; a ring of links is no trap."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "images").symlink_to(folder)
    (folder / "ring").symlink_to(folder)
    linked = of(tmp_path / "set")
    (folder / "cat" / "1.png").write_text("z")
    assert of(tmp_path / "set") != linked
    (tmp_path / "labels.csv").write_text("path,label\nsamples/cat/1.png,0\nsamples/cat/2.png,1\n")
    table = of(tmp_path / "labels.csv")
    (folder / "cat" / "2.png").write_text("y")
    assert of(tmp_path / "labels.csv").sha256 != table.sha256


def test_large_folder_is_remembered_until_it_changes(folder: Path, tmp_path: Path) -> None:
    """A digest found once is found again by the state of the files, and only then."""
    os.truncate(folder / "dog" / "1.png", identity.REMEMBERED_BYTES)
    memory = tmp_path / "memory"
    before = of(folder, memory)
    (note,) = memory.iterdir()
    note.write_text("0" * 64)
    assert of(folder, memory).sha256 == "0" * 64
    assert of(folder) == before
    note.write_text("torn")
    assert of(folder, memory) == before
    (folder / "cat" / "1.png").write_text("other")
    assert of(folder, memory).sha256 not in (before.sha256, "0" * 64)


def test_samples_of_the_catalogue_have_its_digest() -> None:
    """They are checked against it whenever they are opened."""
    found = identify(open_task("digits"), data=None, inputs_file=None, memory=None)
    assert found is not None
    assert found.sha256 == data_for("digits").asset.sha256
    assert identify(None, data=None, inputs_file=None, memory=None) is None


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing place is one line."""
    with pytest.raises(InputError, match=r"gone: cannot be read: No such file"):
        of(tmp_path / "gone")
