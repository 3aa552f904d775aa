"""The health gate's question to a server: with the server's own key, and no waiting for what no time mends. STAND-IN server."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest

from tests.fakes.ansible_world import PLAYBOOKS
from tests.fakes.role_tasks import rendered

KEY = 'k"e\\y$`x='
TOKEN = {"usage": {"completion_tokens": 1}}


@pytest.fixture(scope="module")
def answers() -> ModuleType:
    path = PLAYBOOKS / "roles" / "health_gate" / "library" / "model_answers.py"
    spec = importlib.util.spec_from_file_location("model_answers", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def server(code: int, said: object, key: str = "") -> Iterator[int]:
    """A STAND-IN server that answers with a code, and with 401 where it is not asked with its key."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            good = not key or self.headers["authorization"] == f"Bearer {key}"
            body = json.dumps(said).encode()
            self.send_response(code if good else 401)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made.server_address[1]
        made.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("code", "said", "refused"),
    [
        (401, {}, True),
        (403, {}, True),
        (400, {}, True),
        (404, {"error": {"message": "The model `m` does not exist."}}, True),
        (404, {"detail": "Not Found"}, False),
        (408, {}, False),
        (425, {}, False),
        (429, {}, False),
        (500, {}, False),
        (503, {}, False),
    ],
)
def test_only_an_answer_that_time_does_not_change_ends_the_waiting(answers: ModuleType, code: int, said: object, refused: bool) -> None:
    with server(code, said) as port:
        good, why, hopeless = answers.completion(port, "m", 5)
    assert (good, hopeless) == (False, refused)
    assert f"it answers {code}" in why
    assert ("wants a key" in why) == (code in (401, 403))


def test_a_server_is_asked_with_the_key_of_its_own_environment(answers: ModuleType, tmp_path: Path) -> None:
    environment = tmp_path / "chat.env"
    environment.write_text(rendered("model_server", "environment.j2", {"item": {"environment": {"A": "1", "VLLM_API_KEY": KEY}}}))
    names = ["LLAMA_API_KEY", "VLLM_API_KEY"]
    assert answers.key_of(str(environment), names) == KEY
    assert answers.key_of(str(environment), ["OTHER"]) == answers.key_of(str(tmp_path / "none"), names) == ""
    with server(200, TOKEN, KEY) as port:
        assert answers.completion(port, "m", 5, KEY) == (True, "", False)
        assert answers.completion(port, "m", 5)[0] is False
