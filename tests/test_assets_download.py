"""Downloads, from a real https server: the file is there whole and right, or not at all."""

import hashlib
import resource
import ssl
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edgeperf.datasets.assets import AssetError, Places, resolve
from edgeperf.datasets.catalogue import Asset
from edgeperf.datasets.download import DownloadError, download

CONTENT = bytes(range(256)) * 1000
ASSET = Asset(
    path="kws/models/m.tflite",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size_bytes=len(CONTENT),
    licence="Apache-2.0",
    source="made here",
)


class Handler(BaseHTTPRequestHandler):
    """Answers by the last part of the address."""

    server: "Server"

    def do_GET(self) -> None:
        """Serve the right file, or one of several wrong things."""
        self.server.seen.append(self.path)
        match self.path:
            case "/good":
                self._send(CONTENT)
            case "/wrong":
                self._send(b"x" + CONTENT[1:])
            case "/long":
                self._send(CONTENT + b"x")
            case "/short":
                self._send(CONTENT[:1000])
            case "/cut":
                self._send(CONTENT[:1000], length=len(CONTENT))
            case "/silent":
                self.server.released.wait(10)
            case _:
                self.send_error(404)

    def _send(self, body: bytes, length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(length or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


def _certificate(folder: Path) -> Path:
    """Write a key and a certificate for 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


class Upstream(msgspec.Struct):
    """The server, as its clients know it."""

    address: str
    seen: list[str]

    def asset(self, page: str) -> Asset:
        """Return the asset with the address of *page*."""
        return msgspec.structs.replace(ASSET, url=f"{self.address}/{page}")


class Server(ThreadingHTTPServer):
    """Waits for its threads, and shakes hands in them rather than in its own."""

    daemon_threads = False

    def __init__(self, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        self.seen: list[str] = []
        self.released = threading.Event()


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstream]:
    """Run an https server that this process trusts."""
    certificate = _certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with Server(certificate) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield Upstream(f"https://127.0.0.1:{server.server_port}", server.seen)
        server.released.set()
        server.shutdown()
        thread.join()


def test_a_download_is_cached(upstream: Upstream, tmp_path: Path) -> None:
    """The file is fetched once, checked, and found in the cache afterwards."""
    places = Places(cache=tmp_path / "new" / "cache", mirrors=(tmp_path,))
    steps: list[tuple[int, int]] = []
    asset = upstream.asset("good")
    path = resolve(asset, places=places, progress=lambda *step: steps.append(step))
    assert path == tmp_path / "new" / "cache" / f"{ASSET.sha256}.tflite"
    assert path.read_bytes() == CONTENT
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert steps == sorted(steps)
    assert resolve(asset, places=places) == path
    assert upstream.seen == ["/good"]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_damaged_cache_is_replaced(upstream: Upstream, tmp_path: Path) -> None:
    """A file in the cache whose content is wrong is fetched again."""
    path = tmp_path / f"{ASSET.sha256}.tflite"
    path.write_bytes(CONTENT[:-1])
    assert resolve(upstream.asset("good"), places=Places(cache=tmp_path)) == path
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            "wrong",
            r"/wrong: not the file that the catalogue means: expected sha256 \w+, found \w+$",
        ),
        ("long", r"/long: sends more than the 256000 bytes expected"),
        ("short", r"/short: ended after 1000 of 256000 bytes; try again"),
        ("cut", r"/cut: ended after 1000 of 256000 bytes; try again"),
        ("missing", r"m\.tflite: could not be fetched from https://.*/missing: HTTP Error 404"),
    ],
)
def test_anything_else_leaves_nothing(
    page: str, said: str, upstream: Upstream, tmp_path: Path
) -> None:
    """Wrong, longer, shorter, cut off or absent: one line, and no file."""
    cache = tmp_path / "cache"
    with pytest.raises(DownloadError, match=said) as caught:
        resolve(upstream.asset(page), places=Places(cache=cache))
    assert "\n" not in str(caught.value)
    assert not list(cache.iterdir())


def test_a_wrong_file_in_a_mirror_is_named_when_there_is_no_network(tmp_path: Path) -> None:
    """In a lab without internet, the damaged file that is there is the news."""
    (tmp_path / "m.tflite").write_bytes(CONTENT[:1000])
    asset = msgspec.structs.replace(ASSET, url="https://127.0.0.1:9/m.tflite")
    with pytest.raises(AssetError, match=r"m\.tflite: not the file .* \(1000 bytes\); replace it$"):
        resolve(asset, places=Places(cache=tmp_path / "cache", mirrors=(tmp_path,)))


@pytest.fixture
def _files_of_100_kb_at_most() -> Iterator[None]:
    """Let no file of this process grow further, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("_files_of_100_kb_at_most")
def test_a_full_disk_leaves_nothing(upstream: Upstream, tmp_path: Path) -> None:
    """A file that could not be written whole is gone."""
    with pytest.raises(DownloadError, match=r"m\.tflite: could not be fetched .*File too large"):
        resolve(upstream.asset("good"), places=Places(cache=tmp_path / "cache"))
    assert not list((tmp_path / "cache").iterdir())


def test_silence_ends(upstream: Upstream, tmp_path: Path) -> None:
    """A server that answers nothing is given up."""
    with pytest.raises(DownloadError, match=r"m\.tflite: could not be fetched .*timed out"):
        download(upstream.asset("silent"), tmp_path / "cache" / "m.tflite", timeout_s=0.2)


def test_a_stranger_s_certificate_is_refused(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Https means that the server is who it says."""
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(DownloadError, match="CERTIFICATE_VERIFY_FAILED"):
        resolve(upstream.asset("good"), places=Places(cache=tmp_path / "cache"))


def test_no_server(tmp_path: Path) -> None:
    """Without a network the line says so and what to do instead."""
    asset = msgspec.structs.replace(ASSET, url="https://127.0.0.1:9/m.tflite")
    with pytest.raises(DownloadError, match=r"refused.*EDGEPERF_MIRROR"):
        resolve(asset, places=Places(cache=tmp_path))
    with pytest.raises(AssetError, match="set EDGEPERF_CACHE to download it"):
        resolve(asset, places=Places(cache=None))


def test_other_addresses_than_https_are_not_opened(tmp_path: Path) -> None:
    """A file or http address in a catalogue is refused."""
    asset = msgspec.structs.replace(ASSET, url=(tmp_path / "m.tflite").as_uri())
    with pytest.raises(DownloadError, match=r"'file://.*' is not an https address"):
        download(asset, tmp_path / "out")


def test_a_cache_that_cannot_be_written(upstream: Upstream, tmp_path: Path) -> None:
    """The system's reason is given."""
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DownloadError, match=r"could not be fetched .*(exists|Not a directory)"):
        resolve(upstream.asset("good"), places=Places(cache=tmp_path / "cache"))
