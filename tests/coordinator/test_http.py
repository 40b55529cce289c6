"""The HTTP interface: who may do what, uploads that break off, and joining with a code."""

import hashlib
import http.client
import json
import os
import signal
import time
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edgeperf.agent.messages import (
    ENROL_PATH,
    REPLY,
    REQUEST,
    EnrolReply,
    EnrolRequest,
    MessageError,
    new_code,
    seal,
    unseal,
)
from edgeperf.coordinator.client import Client, ClientError, ClientInputError, find_coordinator
from edgeperf.coordinator.service import Coordinator
from edgeperf.coordinator.settings import Settings
from edgeperf.coordinator.trust import Authority

CONTENT = bytes(range(256)) * 9000
SHA = hashlib.sha256(CONTENT).hexdigest()


class Asker:
    """Requests with any token, so that refusals can be seen."""

    def __init__(self, url: str, token: str) -> None:
        self._place = urlsplit(url).netloc
        self._token = token

    def __call__(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Ask; returns status, headers and body."""
        connection = http.client.HTTPConnection(self._place, timeout=20)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        auth = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            connection.request(method, path, body, {**auth, **given})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return response.status, found, response.read()
        finally:
            connection.close()


@pytest.fixture
def board(client: Client) -> Asker:
    """Return an asker with the token of an enrolled board."""
    (raw,) = client.post("/v1/boards", {"names": ["pi5"]})
    return Asker(client.url, raw["token"])


def test_nobody_gets_in_without_the_right_token(client: Client, board: Asker) -> None:
    """Every path but health and enrolment asks for one; a board's opens only blobs."""
    paths = [
        ("GET", "/v1/boards"), ("POST", "/v1/boards"), ("GET", "/v1/boards/pi5"),
        ("DELETE", "/v1/boards/pi5"), ("POST", "/v1/boards/pi5/labels"),
        ("POST", "/v1/boards/pi5/drain"), ("POST", "/v1/codes"), ("GET", "/v1/runs"),
        ("POST", "/v1/runs"), ("GET", "/v1/runs/x"), ("POST", "/v1/runs/x/cancel"),
        ("GET", "/v1/runs/x/result"), ("GET", "/v1/runs/x/log"), ("POST", "/v1/models"),
        ("POST", "/v1/campaigns"), ("GET", "/v1/campaigns"), ("GET", "/v1/campaigns/x"),
        ("POST", "/v1/campaigns/x/cancel"),
    ]  # fmt: skip
    bodies = {
        "/v1/boards": b'{"names": ["a"]}',
        "/v1/runs": b'{"board": "a", "spec": {}}',
        "/v1/models": json.dumps({"sha256": "a" * 64, "size_bytes": 1, "format": "onnx"}).encode(),
        "/v1/campaigns": b'{"source": ""}',
    }
    nobody, forger = Asker(client.url, ""), Asker(client.url, "pi5.forged")
    for method, path in paths:
        body = bodies.get(path, b"{}") if method == "POST" else None
        for asker in (nobody, forger, board):
            assert asker(method, path, body)[0] == 401, (method, path)
    for method in ("GET", "HEAD", "PUT"):
        for asker in (nobody, forger):
            assert asker(method, f"/v1/blobs/{SHA}", b"")[0] == 401
    assert nobody("GET", "/v1/health")[0] == 200


def test_upload_breaks_off_and_goes_on(board: Asker) -> None:
    """The board asks how far it is, sends the rest, and the whole is checked."""
    path, total = f"/v1/blobs/{SHA}", len(CONTENT)
    status, headers, _ = board("HEAD", path)
    assert (status, headers["upload-offset"]) == (404, "0")
    place = f"bytes 0-999999/{total}"
    status, headers, _ = board("PUT", path, CONTENT[:1_000_000], Content_Range=place)
    assert (status, headers["upload-offset"]) == (202, "1000000")
    again = board("PUT", path, CONTENT[:1_000_000], Content_Range=place)
    assert (again[0], again[1]["upload-offset"]) == (409, "1000000")
    assert board("HEAD", path)[1]["upload-offset"] == "1000000"
    rest = f"bytes 1000000-{total - 1}/{total}"
    assert board("PUT", path, CONTENT[1_000_000:], Content_Range=rest)[0] == 201
    status, headers, _ = board("HEAD", path)
    assert (status, headers["content-length"]) == (200, str(total))
    assert board("PUT", path, CONTENT)[0] == 201


def test_connection_that_dies_keeps_what_came(client: Client, board: Asker) -> None:
    """Bytes before the break are not sent twice."""
    place = urlsplit(client.url).netloc
    connection = http.client.HTTPConnection(place, timeout=20)
    connection.putrequest("PUT", f"/v1/blobs/{SHA}")
    connection.putheader("Authorization", f"Bearer {board._token}")
    connection.putheader("Content-Length", str(len(CONTENT)))
    connection.endheaders()
    connection.send(CONTENT[:2_000_000])
    time.sleep(0.3)
    connection.close()
    time.sleep(0.3)
    offset = int(board("HEAD", f"/v1/blobs/{SHA}")[1]["upload-offset"])
    assert 0 < offset <= 2_000_000
    rest = f"bytes {offset}-{len(CONTENT) - 1}/{len(CONTENT)}"
    assert board("PUT", f"/v1/blobs/{SHA}", CONTENT[offset:], Content_Range=rest)[0] == 201


@pytest.mark.parametrize(
    ("name", "headers", "body", "status"),
    [
        (SHA, {}, b"something else", 422),
        ("..%2f..%2fetc%2fpasswd", {}, b"x", 404),
        ("A" * 64, {}, b"x", 400),
        (SHA, {"Content_Range": "bytes 0-0/99999999999999"}, b"x", 400),
        (SHA, {"Content_Range": "nonsense"}, b"x", 400),
        (SHA, {"Content_Range": "bytes 0-9/5"}, b"0123456789", 400),
        (hashlib.sha256(b"").hexdigest(), {"Content_Range": "bytes */0"}, b"", 201),
    ],
)
def test_uploads_that_cannot_be(
    board: Asker, name: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    """A wrong digest, a path, a size beyond the limit, a range that is none."""
    assert board("PUT", f"/v1/blobs/{name}", body, **headers)[0] == status


def test_board_reads_models_and_its_own_files_only(client: Client, board: Asker) -> None:
    """What another board uploaded is none of its business; a model is."""
    assert Asker(client.url, client._token)("PUT", f"/v1/blobs/{SHA}", CONTENT)[0] == 201
    assert board("GET", f"/v1/blobs/{SHA}")[0] == 400
    ref = {"sha256": SHA, "size_bytes": len(CONTENT), "format": "onnx", "name": "m.onnx"}
    client.post("/v1/models", ref)
    status, _, content = board("GET", f"/v1/blobs/{SHA}")
    assert (status, content) == (200, CONTENT)
    status, headers, rest = board("GET", f"/v1/blobs/{SHA}", Range="bytes=2000000-")
    assert (status, rest) == (206, CONTENT[2_000_000:])
    assert headers["content-range"] == f"bytes 2000000-{len(CONTENT) - 1}/{len(CONTENT)}"
    assert board("GET", f"/v1/blobs/{SHA}", Range=f"bytes={len(CONTENT)}-")[0] == 416
    missing = {**ref, "sha256": "b" * 64}
    with pytest.raises(ClientInputError, match="upload it first"):
        client.post("/v1/models", missing)


def test_a_board_fills_no_more_than_its_share(tmp_path: Any) -> None:
    """A small file is taken, the next is refused for good; the administrator is not bound."""
    data = tmp_path / "coordinator"
    settings = Settings(data=data, broker_port=0, http_port=0, board_space_gib=6000 / 1024**3)
    with Coordinator(settings):
        client = find_coordinator(url=None, token_file=None, ca_file=None, data=data)
        (raw,) = client.post("/v1/boards", {"names": ["pi5"]})
        files = [bytes([i]) * 5000 for i in range(2)]
        names = [f"/v1/blobs/{hashlib.sha256(content).hexdigest()}" for content in files]
        board = Asker(client.url, raw["token"])
        assert board("PUT", names[0], files[0])[0] == 201
        status, _, answer = board("PUT", names[1], files[1])
        assert (status, "--board-space" in json.loads(answer)["error"]) == (507, True)
        assert Asker(client.url, client._token)("PUT", names[1], files[1])[0] == 201


def test_bodies_are_bounded_and_checked(client: Client) -> None:
    """Too large, not JSON, a field that nobody knows: one line each."""
    ask = Asker(client.url, client._token)
    assert ask("POST", "/v1/boards", b"x" * 2_000_000)[0] == 400
    for body, expected in (
        (b"not json", "malformed"),
        (b'{"names": []}', "length >= 1"),
        (b'{"names": ["a"], "x": 1}', "unknown field `x`"),
    ):
        status, _, answer = ask("POST", "/v1/boards", body)
        assert status == 400
        assert expected in json.loads(answer)["error"]
    for name in ("UPPER", "a/b", "a b", "x" * 41, "../x"):
        with pytest.raises(ClientInputError, match="a name is"):
            client.post("/v1/boards", {"names": [name]})


def _join(url: str, code: str, **fields: Any) -> tuple[int, bytes]:
    request = EnrolRequest(**({"device": "pi5", "agent": "1"} | fields))
    status, _, answer = Asker(url, "")("POST", ENROL_PATH, seal(request, code, REQUEST))
    return status, answer


def test_joining_with_a_code(client: Client) -> None:
    """The answer opens with the code, works at once, and the code never again."""
    code = client.post("/v1/codes", {"board": "pi5"})["code"]
    status, answer = _join(client.url, code)
    assert status == 200
    reply = unseal(answer, code, REPLY, EnrolReply)
    assert (reply.device, reply.fleet) == ("pi5", "default")
    assert code.replace("-", "") not in answer.decode()
    assert reply.broker.password not in answer.decode()  # type: ignore[operator]
    with pytest.raises(MessageError):
        unseal(answer, new_code(), REPLY, EnrolReply)
    assert Asker(client.url, reply.token)("HEAD", f"/v1/blobs/{SHA}")[0] == 404
    assert _join(client.url, code)[0] == 403


def test_code_of_another_board_and_no_code_at_all(client: Client) -> None:
    """Refused; and after ten tries nobody may try for a while."""
    code = client.post("/v1/codes", {"board": "pi4"})["code"]
    status, answer = _join(client.url, code)
    assert (status, "is for 'pi4'" in answer.decode()) == (403, True)
    ask = Asker(client.url, "")
    assert ask("POST", ENROL_PATH, b"\x00" * 100)[0] == 403
    statuses = [_join(client.url, new_code())[0] for _ in range(11)]
    assert statuses == [403] * 10 + [429]
    assert client.get("/v1/boards") == []


def test_code_that_is_too_old(client: Client) -> None:
    """It is forgotten."""
    code = client.post("/v1/codes", {"board": "pi5", "ttl_s": 0.05})["code"]
    time.sleep(0.1)
    assert _join(client.url, code)[0] == 403


def test_board_with_a_key_of_its_own_gets_a_certificate(tmp_path: Any) -> None:
    """Its name is the board's, whatever the request says, and the fleet's CA signed it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "_coordinator")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    pem = request.public_bytes(serialization.Encoding.PEM).decode()
    authority = Authority(tmp_path)
    cert = x509.load_pem_x509_certificate(authority.certify(pem, "pi5").encode())
    cert.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.ca_pem.encode()))
    assert cert.subject.rfc4514_string() == "CN=pi5"
    assert cert.public_key() == key.public_key()
    with pytest.raises(MessageError, match="not a certificate request"):
        authority.certify("nonsense", "pi5")


def test_client_says_what_is_wrong(tmp_path: Any) -> None:
    """Nobody there, a wrong URL, a token that cannot be read: one line, right status."""
    with pytest.raises(ClientError, match="is it running") as caught:
        Client("http://127.0.0.1:1", "t").get("/v1/health")
    assert caught.value.exit_code == 3
    with pytest.raises(ClientInputError, match="expected http://"):
        Client("ftp://x", "t")
    settings = Settings(data=tmp_path, listen="127.0.0.2", broker_port=0, http_port=0)
    with (
        Coordinator(settings) as running,
        pytest.raises(ClientError, match=r"its certificate is not trusted.*--ca"),
    ):
        Client(running.url, "t").get("/v1/health")


def test_health_tells_when_the_broker_is_gone(client: Client, tmp_path: Any, until: Any) -> None:
    """A monitor sees 503, and 200 again after the coordinator has mended it."""
    pid = int((tmp_path / "coordinator" / "broker" / "broker.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)

    def health() -> int:
        return Asker(client.url, "")("GET", "/v1/health")[0]

    until(lambda: health() == 503)
    until(lambda: health() == 200)
    assert msgspec.json.decode(client.download("/v1/health"))["broker_up"]
