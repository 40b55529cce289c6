"""Finding files: places and their order, and what is said when the content is wrong."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from edgeperf.datasets.assets import AssetError, Places, resolve
from edgeperf.datasets.catalogue import Asset, data_for

CONTENT = b"a model" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def asset(content: bytes = CONTENT, path: str = "kws/models/m.tflite") -> Asset:
    """Return a file without a public address."""
    return Asset(
        path=path,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        licence="Apache-2.0",
        source="made here",
    )


def put(path: Path, content: bytes = CONTENT) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["kws/models/m.tflite", "m.tflite", f"{SHA256}.tflite"])
def test_a_mirror_may_be_laid_out_in_three_ways(name: str, tmp_path: Path) -> None:
    """By the catalogue's path, by the file's name, or by sha256; it is used in place."""
    path = put(tmp_path / "mirror" / name)
    places = Places(cache=tmp_path / "cache", mirrors=(tmp_path / "none", tmp_path / "mirror"))
    assert resolve(asset(), places=places) == path
    assert not (tmp_path / "cache").exists()


def test_the_cache_comes_before_mirrors(tmp_path: Path) -> None:
    """What was downloaded once is not looked for elsewhere."""
    cached = put(tmp_path / "cache" / f"{SHA256}.tflite")
    put(tmp_path / "m.tflite")
    assert resolve(asset(), places=Places(cache=tmp_path / "cache", mirrors=(tmp_path,))) == cached


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x", b"", b"A" + CONTENT[1:]])
def test_other_content_is_never_used(content: bytes, tmp_path: Path) -> None:
    """Truncated, longer, empty or changed: one line names the file, expected and found."""
    path = put(tmp_path / "m.tflite", content)
    with pytest.raises(AssetError) as caught:
        resolve(asset(), places=Places(cache=None, mirrors=(tmp_path,)))
    found = hashlib.sha256(content).hexdigest()
    assert str(caught.value) == (
        f"{path}: not the file that the catalogue means: expected sha256 {SHA256} "
        f"(7000 bytes), found {found} ({len(content)} bytes); replace it"
    )


def test_a_good_file_further_on_is_used(tmp_path: Path) -> None:
    """A wrong file in one place does not hide the right one in another."""
    put(tmp_path / "a" / "m.tflite", b"wrong")
    good = put(tmp_path / "b" / "m.tflite")
    places = Places(cache=None, mirrors=(tmp_path / "a", tmp_path / "b"))
    assert resolve(asset(), places=places) == good


def test_missing_everywhere_says_where_and_what_to_do(tmp_path: Path) -> None:
    """The line names the file, the places looked at, and the remedy."""
    places = Places(cache=tmp_path / "cache", mirrors=(tmp_path, tmp_path / "gone"))
    with pytest.raises(AssetError) as caught:
        resolve(asset(), places=places)
    said = str(caught.value)
    assert said.startswith(f"kws/models/m.tflite (7000 bytes, sha256 {SHA256}): not in EDGEPERF_MI")
    assert f"({tmp_path}, {tmp_path / 'gone'} (no such folder))" in said
    assert "it has no public address; put it into a folder named by EDGEPERF_MIRROR" in said
    with pytest.raises(AssetError, match=r"not here, and it has no public address; put it into"):
        resolve(asset(), places=Places(cache=None))


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    """It is said, not read."""
    (tmp_path / "m.tflite").mkdir()
    with pytest.raises(AssetError, match=r"m\.tflite: expected a file$"):
        resolve(asset(), places=Places(cache=None, mirrors=(tmp_path,)))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """The system's own reason is given."""
    (tmp_path / "m.tflite").symlink_to("/proc/self/mem")
    with pytest.raises(AssetError, match=r"m\.tflite: cannot be read: .+"):
        resolve(asset(), places=Places(cache=None, mirrors=(tmp_path,)))


def test_folders_are_checked_file_by_file(models_dir: Path, tmp_path: Path) -> None:
    """One byte in one photograph, or one photograph less, and the folder is another."""
    photographs = data_for("imagenet").asset
    copy = tmp_path / photographs.path
    shutil.copytree(models_dir / photographs.path, copy)
    places = Places(cache=None, mirrors=(tmp_path,))
    assert resolve(photographs, places=places) == copy
    victim = next((copy / "images").glob("*.jpg"))
    content = bytearray(victim.read_bytes())
    content[-10] ^= 1
    victim.write_bytes(content)
    with pytest.raises(AssetError, match=f"imagenet_cls/data: not the f.*{photographs.sha256}"):
        resolve(photographs, places=places)
    victim.unlink()
    with pytest.raises(AssetError, match=r"imagenet_cls/data: not the f.*replace it"):
        resolve(photographs, places=places)


def test_places_come_from_the_environment(tmp_path: Path) -> None:
    """EDGEPERF_CACHE, else XDG_CACHE_HOME (absolute), else the home; mirrors as a path list."""
    mirrors = os.pathsep.join(["/one", "", "/two"])
    places = Places.from_environment({"EDGEPERF_CACHE": "/c", "EDGEPERF_MIRROR": mirrors})
    assert places == Places(cache=Path("/c"), mirrors=(Path("/one"), Path("/two")))
    xdg = Places.from_environment({"XDG_CACHE_HOME": str(tmp_path)})
    assert xdg == Places(cache=tmp_path / "edgeperf")
    home = Places.from_environment({"XDG_CACHE_HOME": "relative"})
    assert home == Places(cache=Path.home() / ".cache" / "edgeperf")
