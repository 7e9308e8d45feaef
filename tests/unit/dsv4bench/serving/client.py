"""A server with a fake engine, asked through its ASGI interface, and readers of what it answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dsv4bench.model.tokenizer import Tokenizer
from dsv4bench.serving.app import make_app
from dsv4bench.serving.bridge import EngineBridge
from dsv4bench.serving.generation import PromptReader
from dsv4bench.serving.profiling import ProfileControl, TracingPlan
from dsv4bench.serving.service import EngineFacts, Service, ServiceOptions
from dsv4bench.tracing.recorder import NullRecorder, Recorder
from tests.unit.dsv4bench.serving.fake_engine import FakeEngine

TOKENIZER = Tokenizer()


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def events(self) -> list[Any]:
        """The events of a stream, which must end as a stream does."""
        lines = self.body.decode().split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""]
        return [msgspec.json.decode(line.removeprefix("data: ")) for line in lines[:-2]]


class Client:
    """Asks an ASGI application."""

    def __init__(self, service: Service, engine: FakeEngine) -> None:
        self.service = service
        self.engine = engine
        self._app = make_app(service)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, b"", headers)

    async def post(self, path: str, document: Any = None, **headers: str) -> Answer:
        body = document if isinstance(document, bytes) else msgspec.json.encode(document)
        return await self.ask("POST", path, body, {"content-type": "application/json", **headers})

    async def complete(self, **fields: Any) -> Answer:
        return await self.post("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 4, **fields})

    async def chat(self, content: str = "Hi", **fields: Any) -> Answer:
        messages = [{"role": "user", "content": content}]
        return await self.post("/v1/chat/completions", {"messages": messages, "max_tokens": 4, **fields})

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: dict[str, str],
        *,
        leaving: asyncio.Event | None = None,
    ) -> Answer:
        """One request; the client leaves when `leaving` is set."""
        answer = Answer()
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}
            await (leaving or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                answer.chunks.append(message.get("body", b""))
                answer.body += answer.chunks[-1]

        names = {name.replace("_", "-"): value for name, value in headers.items()}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in names.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        await self._app(scope, receive, send)
        return answer


@asynccontextmanager
async def serving(
    engine: FakeEngine | None = None,
    *,
    ready: bool = True,
    recorder: Recorder | None = None,
    profile_output: Path | None = None,
    strace: bool = True,
    strace_always: bool = False,
    **options: Any,
) -> AsyncIterator[Client]:
    """A service that is ready, with the given `ServiceOptions`."""
    chosen: dict[str, Any] = {
        "model": "tiny",
        "created_s": 1,
        "api_key": None,
        "most_requests": 64,
        "most_body_bytes": 1 << 16,
        "speculative_tokens": 1,
        "prefix_reuse": False,
        "max_model_len": 256,
        **options,
    }
    engine = engine or FakeEngine()
    prompts = PromptReader(TOKENIZER, 129280, chosen["max_model_len"])
    service = Service(ServiceOptions(**chosen), prompts, recorder, profiled=profile_output is not None)
    if ready:
        bridge = EngineBridge(engine, asyncio.get_running_loop())
        plan = TracingPlan(profile_output, strace, strace_always, device_phases=False)
        profile = ProfileControl(plan, recorder or NullRecorder(), bridge)
        service.engine = EngineFacts(bridge, profile, {"hits": 3, "misses": 0})
        service.lifecycle.enter("ready")
    try:
        yield Client(service, engine)
    finally:
        engine.close()
    assert service.admission.count == 0
    if service.engine is not None:
        assert not service.engine.bridge.streams
