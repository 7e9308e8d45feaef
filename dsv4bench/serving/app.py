"""The endpoints as one ASGI application (docs/serving.md, Endpoints)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dsv4bench.serving.errors import RETRY_AFTER_S, ApiError, error_response
from dsv4bench.serving.generate import GenerationEndpoint
from dsv4bench.serving.json_response import json_response
from dsv4bench.serving.limits import check_key
from dsv4bench.serving.metrics import CONTENT_TYPE
from dsv4bench.serving.service import Service

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(service: Service) -> Starlette:
    """The application that serves one engine."""
    routes = [
        Route("/health", _health(service), methods=["GET"]),
        Route("/v1/models", _models(service), methods=["GET"]),
        Route("/v1/completions", GenerationEndpoint(service, "completions"), methods=["POST"]),
        Route("/v1/chat/completions", GenerationEndpoint(service, "chat"), methods=["POST"]),
        Route("/metrics", _metrics(service), methods=["GET"]),
        Route("/metrics/json", _metrics_json(service), methods=["GET"]),
    ]
    if service.profiled:
        routes += [
            Route("/start_profile", _start_profile(service), methods=["POST"]),
            Route("/stop_profile", _stop_profile(service), methods=["POST"]),
        ]
    return Starlette(routes=routes, exception_handlers={ApiError: _refused, HTTPException: _http_error})


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    if error.status_code == 404 and request.url.path in ("/start_profile", "/stop_profile"):
        message += "; the server was started without --profile"
    response = error_response(ApiError(error.status_code, message))
    response.headers.update(error.headers or {})
    return response


def _health(service: Service) -> Endpoint:
    async def health(_request: Request) -> Response:
        lifecycle = service.lifecycle
        if lifecycle.phase == "ready":
            return json_response({"status": "ok"})
        body = {"status": lifecycle.phase, "message": lifecycle.describe()}
        return json_response(body, 503, {"Retry-After": str(RETRY_AFTER_S)})

    return health


def _models(service: Service) -> Endpoint:
    async def models(request: Request) -> Response:
        options = service.options
        check_key(request, options.api_key)
        model = {
            "id": options.model,
            "object": "model",
            "created": options.created_s,
            "owned_by": "dsv4bench",
            "max_model_len": options.max_model_len,
        }
        return json_response({"object": "list", "data": [model]})

    return models


def _metrics(service: Service) -> Endpoint:
    async def metrics(_request: Request) -> Response:
        return Response(service.metrics.prometheus(), headers={"Content-Type": CONTENT_TYPE})

    return metrics


def _metrics_json(service: Service) -> Endpoint:
    async def metrics_json(_request: Request) -> Response:
        return json_response({**service.metrics.document(), **service.process_facts()})

    return metrics_json


def _start_profile(service: Service) -> Endpoint:
    async def start_profile(request: Request) -> Response:
        check_key(request, service.options.api_key)
        service.lifecycle.check_ready()
        assert service.engine is not None
        await service.engine.profile.start()
        return Response()

    return start_profile


def _stop_profile(service: Service) -> Endpoint:
    async def stop_profile(request: Request) -> Response:
        check_key(request, service.options.api_key)
        if service.engine is None:
            service.lifecycle.check_ready()
        assert service.engine is not None
        if await service.engine.profile.stop() is None:
            raise ApiError(409, "no profile window was opened; POST /start_profile opens one")
        return Response()

    return stop_profile
