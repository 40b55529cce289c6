"""The HTTP interface as one application: routes, and errors as one line of JSON."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgeperf import EdgeperfError, InputError
from edgeperf.agent.messages import ENROL_PATH
from edgeperf.coordinator.blobs import BlobDigestError, BlobFullError
from edgeperf.coordinator.http import blobs, boards, campaigns, packages, runs
from edgeperf.coordinator.http.auth import NotAllowedError
from edgeperf.coordinator.http.packages import UnknownPackageError
from edgeperf.coordinator.http.parts import Parts, reply
from edgeperf.coordinator.shares import BlobUnlistedError
from edgeperf.coordinator.store import StoreError
from edgeperf.coordinator.store.campaigns import UnknownCampaignError
from edgeperf.coordinator.store.devices import UnknownBoardError
from edgeperf.coordinator.store.runs import UnknownRunError

_ROUTES = [
    Route("/v1/health", runs.health),
    Route(ENROL_PATH, boards.enroll, methods=["POST"]),
    Route("/v1/blobs/{sha256}", blobs.head, methods=["HEAD"]),
    Route("/v1/blobs/{sha256}", blobs.get, methods=["GET"]),
    Route("/v1/blobs/{sha256}", blobs.put, methods=["PUT"]),
    Route("/v1/codes", boards.invite, methods=["POST"]),
    Route("/v1/boards", boards.list_boards, methods=["GET"]),
    Route("/v1/boards", boards.admit, methods=["POST"]),
    Route("/v1/boards/{board}", boards.show_board, methods=["GET"]),
    Route("/v1/boards/{board}", boards.revoke, methods=["DELETE"]),
    Route("/v1/boards/{board}/labels", boards.relabel, methods=["POST"]),
    Route("/v1/boards/{board}/drain", boards.drain, methods=["POST"]),
    Route("/v1/runs", runs.start, methods=["POST"]),
    Route("/v1/runs", runs.results, methods=["GET"]),
    Route("/v1/runs/{run}", runs.show, methods=["GET"]),
    Route("/v1/runs/{run}/cancel", runs.cancel, methods=["POST"]),
    Route("/v1/runs/{run}/result", runs.result_file, methods=["GET"]),
    Route("/v1/runs/{run}/log", runs.log_file, methods=["GET"]),
    Route("/v1/models", runs.add_model, methods=["POST"]),
    Route("/v1/campaigns", campaigns.submit, methods=["POST"]),
    Route("/v1/campaigns", campaigns.list_campaigns, methods=["GET"]),
    Route("/v1/campaigns/{campaign}", campaigns.show, methods=["GET"]),
    Route("/v1/campaigns/{campaign}/cancel", campaigns.cancel, methods=["POST"]),
    Route("/simple/", packages.projects, methods=["GET"]),
    Route("/simple/{project}/", packages.files, methods=["GET"]),
    Route("/packages/{file}", packages.wheel, methods=["GET"]),
]

#: Most particular first.
_STATUS: tuple[tuple[type[EdgeperfError], int], ...] = (
    (NotAllowedError, 401),
    (UnknownBoardError, 404),
    (UnknownRunError, 404),
    (UnknownCampaignError, 404),
    (UnknownPackageError, 404),
    (BlobDigestError, 422),
    (BlobFullError, 507),
    (BlobUnlistedError, 503),
    (StoreError, 503),
    (InputError, 400),
    (EdgeperfError, 500),
)


def make_app(parts: Parts) -> Starlette:
    """Return the application that serves *parts*."""
    app = Starlette(
        routes=_ROUTES,
        exception_handlers={EdgeperfError: _explain, HTTPException: _refuse, Exception: _bug},
    )
    app.state.parts = parts
    return app


def _explain(request: Request, error: Exception) -> Response:
    del request
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
    exit_code = error.exit_code if isinstance(error, EdgeperfError) else 3
    return reply({"error": str(error), "exit_code": exit_code}, status)


def _refuse(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return reply({"error": f"{request.method} {request.url.path[:100]}: no such thing"}, status)


def _bug(request: Request, error: Exception) -> Response:
    del request
    return reply({"error": f"a bug in the coordinator: {type(error).__name__}"}, 500)
