"""The fleet's own package index: what a folder of wheels holds, as pip asks for it.

Boards without internet install and upgrade from their coordinator. Everybody may read: a
package is no secret, and a board that is not enrolled yet needs it most. A name from outside
is only looked up among the files that are there; it never becomes a path.

Source: PEP 503 (pages, normal form of a name, digest behind the address), PEP 427 (a
wheel's name begins with that of its project).
"""

import html
import re
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

from edgeperf import InputError
from edgeperf.coordinator.http.parts import parts_of

_SUMS = "SHA256SUMS"
_SUM = re.compile(r"([0-9a-f]{64}) [ *](\S+\.whl)")


class UnknownPackageError(InputError):
    """No such project or file is in the folder of packages."""


def projects(request: Request) -> Response:
    """List the projects."""
    names = sorted({_project(name) for name in _wheels(request)})
    return _page([(f"{name}/", name) for name in names])


def files(request: Request) -> Response:
    """List the wheels of one project, with their digests where ``SHA256SUMS`` has them."""
    wheels = _wheels(request)
    asked = _normal(request.path_params["project"])
    found = {name: path for name, path in wheels.items() if _project(name) == asked}
    if not found:
        raise UnknownPackageError(
            f"package {asked[:60]!r}: not in this index; collect it with deploy/build-wheelhouse"
        )
    return _page([(f"../../packages/{quote(n)}{_fragment(p)}", n) for n, p in found.items()])


def wheel(request: Request) -> Response:
    """Send a wheel."""
    name = request.path_params["file"]
    path = _wheels(request).get(name)
    if path is None:
        raise UnknownPackageError(f"package {name[:80]!r}: no such file in this index")
    return FileResponse(path, media_type="application/octet-stream")


def _wheels(request: Request) -> dict[str, Path]:
    """Return the wheels of all targets; those that two folders have are the same."""
    folder = parts_of(request).packages
    return {path.name: path for path in sorted(folder.rglob("*.whl")) if path.is_file()}


def _project(wheel_name: str) -> str:
    return _normal(wheel_name.partition("-")[0])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _fragment(path: Path) -> str:
    try:
        lines = path.with_name(_SUMS).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    sums = {found[2]: found[1] for line in lines if (found := _SUM.fullmatch(line))}
    return f"#sha256={sums[path.name]}" if path.name in sums else ""


def _page(links: list[tuple[str, str]]) -> Response:
    rows = "\n".join(
        f'<a href="{html.escape(to)}">{html.escape(text)}</a><br>' for to, text in links
    )
    return HTMLResponse(
        '<!DOCTYPE html>\n<html><head><meta name="pypi:repository-version" content="1.0">'
        f"<title>edgeperf</title></head><body>\n{rows}\n</body></html>\n"
    )
