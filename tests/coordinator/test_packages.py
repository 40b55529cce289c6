"""The fleet's own package index, read by pip as a board would."""

import hashlib
import http.client
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from edgeperf.coordinator.client import Client

WHEEL = "one_thing-1.0-py3-none-any.whl"
OTHER_WHEEL = "one_thing-1.0-cp27-cp27m-manylinux2014_aarch64.whl"


def make_wheel(folder: Path, name: str = WHEEL) -> bytes:
    """Write a wheel of a project called ``one.thing`` and return its bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    info = "one_thing-1.0.dist-info"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.writestr("one_thing.py", "WORD = 'here'\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: one.thing\nVersion: 1.0\n")
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", tags)
        wheel.writestr(f"{info}/RECORD", "")
    return (folder / name).read_bytes()


def add_sums(folder: Path, name: str, content: bytes) -> None:
    """Write the digests as ``deploy/build-wheelhouse`` does."""
    (folder / "SHA256SUMS").write_text(f"{hashlib.sha256(content).hexdigest()}  {name}\n")


@pytest.fixture
def packages(client: Client, tmp_path: Path) -> Path:
    """Return a coordinator's folder of packages, one folder of it for each kind of board."""
    assert client.url
    folder = tmp_path / "coordinator/packages"
    add_sums(folder / "rpi", WHEEL, make_wheel(folder / "rpi"))
    make_wheel(folder / "jetson", OTHER_WHEEL)
    return folder


def download(url: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Let pip fetch the project by one of its spellings, from *url* alone."""
    command = [sys.executable, "-m", "pip", "--isolated", "download", "--no-cache-dir", "--no-deps"]
    command += ["--disable-pip-version-check", "--index-url", f"{url}/simple/"]
    command += ["--dest", str(folder), "One-Thing"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def get(client: Client, path: str) -> tuple[int, str]:
    """Ask without a token."""
    connection = http.client.HTTPConnection(urlsplit(client.url).netloc, timeout=20)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read().decode("utf-8", "replace")
    connection.close()
    return response.status, body


def test_pip_installs_what_fits_the_board(client: Client, packages: Path, tmp_path: Path) -> None:
    """Of the wheels of all targets, by any spelling of the name, without a token."""
    done = download(client.url, tmp_path / "got")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "got").iterdir()] == [WHEEL]
    assert (tmp_path / "got" / WHEEL).read_bytes() == (packages / "rpi" / WHEEL).read_bytes()


def test_a_wheel_that_was_altered_is_refused(
    client: Client, packages: Path, tmp_path: Path
) -> None:
    """pip compares with the digest that was written when the wheels were collected."""  # noqa: D403
    with (packages / "rpi" / WHEEL).open("ab") as file:
        file.write(b"x")
    done = download(client.url, tmp_path / "got")
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_what_is_not_there_is_a_line(client: Client, packages: Path) -> None:
    """A project, a file, and a name that would be a path: 404, and nothing else is read."""
    (packages.parent / "secret.whl").write_text("no")
    assert get(client, "/simple/")[0] == 200
    assert get(client, "/simple/one.thing/")[0] == 200
    for path in ("/simple/numpy/", "/packages/x.whl", "/packages/..%2Fsecret.whl", "/packages/rpi"):
        status, body = get(client, path)
        assert status == 404, path
        assert body.startswith('{"error":')
    for wheel in packages.rglob("*.whl"):
        wheel.unlink()
    assert get(client, "/simple/")[0] == 200
