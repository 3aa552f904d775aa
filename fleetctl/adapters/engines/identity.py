"""Evidence, adapter layer: what an inference server serves, read from pages that cost it nothing. Never a completion; never raises.

A page that is not there (404 and the like) leaves its part unknown. A server that does not answer gives no identity at all: silence is
no change.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

from fleetctl.adapters.engines.api import Api
from fleetctl.domain.identity import FLAGS, Identity

TEXTS = ("Straße, café, 東京, 🙂, русский", "def f(x):\n    return x + 1\n\n\tif True:\n", "31415926535 8979323846 2,643,383.2795")
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]
ASK_S = 1.0
"""For all pages of one server together."""
MAY_DIFFER = [
    "kv_cache_dtype",
    "attention_backend",
    "tp_size",
    "dp_size",
    "mem_fraction_static",
    "chunked_prefill_size",
    "max_running_requests",
]
"""Flags that are shown and may differ; those that may not are `FLAGS`."""
_SAMPLING = ["temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty"]


class _Silent(Exception):
    """The server does not answer."""


class _Pages:
    """The pages of one server, all within one deadline."""

    def __init__(self, api: Api) -> None:
        self._api, self._end = api, time.monotonic() + ASK_S

    def get(self, method: str, path: str, body: object = None) -> Any:
        """Return a page's JSON, None where it is not there. Raises _Silent."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise _Silent
        answer = self._api.call(method, path, body, timeout_s=left)
        if answer.status == 0 or answer.status in (408, 429, 500) or answer.status >= 502:
            raise _Silent
        return answer.body if answer.status == 200 else None


def read_identity(api: Api) -> Identity | None:
    """Return what a server serves, None where it does not answer within a second."""
    try:
        return _read(_Pages(api))
    except _Silent:
        return None


def _read(api: _Pages) -> Identity:
    listed = _mapping(api.get("GET", "/v1/models")).get("data")
    models = [m for m in listed if isinstance(m, dict)] if isinstance(listed, list) else []
    base = next((m for m in models if not m.get("parent") and _text(m.get("id"))), {})
    props = _mapping(api.get("GET", "/props"))
    server = _mapping(api.get("GET", "/get_server_info")) if not props else {}
    info = _mapping(api.get("GET", "/info")) if not props and not server else {}
    version = _mapping(api.get("GET", "/version")) if not props and not info else {}
    model = _text(base.get("id"))[:200]
    told = _flags(base, props, {**server, **info})
    return Identity(
        model=model,
        engine=_engine(base, props, server, info, version),
        weights=_weights(base, props, server, info),
        tokenizer=_tokens(api, model, llama=bool(props)),
        chat_template=_template(api, model, props),
        adapters=tuple(sorted((_text(m.get("id"))[:200], _last(m.get("root"))) for m in models if m.get("parent") and _text(m.get("id")))),
        flags=_hash(told) if told else "",
        told=told,
        shown={k: str({**server, **info}[k])[:80] for k in MAY_DIFFER if k in {**server, **info}},
    )


def _engine(*pages: Mapping[str, Any]) -> str:
    base, props, server, info, version = pages
    if props:
        return f"llama.cpp {_text(props.get('build_info'))}".strip()[:80]
    if info.get("model_id"):
        return f"tgi {_text(info.get('version'))}".strip()[:80]
    found = _text(server.get("version")) or _text(version.get("version"))
    return f"{_text(base.get('owned_by'))} {found}".strip()[:80]


def _weights(base: Mapping[str, Any], props: Mapping[str, Any], server: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    """Return a hash of the revision, or of what stands for it: the file's shape and type for GGUF. "" where only a name is told."""
    if info.get("model_sha"):
        return _hash([info["model_id"], info["model_sha"]])
    if server.get("revision"):
        return _hash([server.get("model_path"), server["revision"]])
    meta = _mapping(base.get("meta"))
    if props and meta.get("n_params"):
        return _hash([_last(props.get("model_path")), meta.get("n_params"), meta.get("size"), meta.get("ftype"), meta.get("n_vocab")])
    return ""


def _tokens(api: _Pages, model: str, *, llama: bool) -> str:
    ids = []
    for text in TEXTS:
        body = {"content": text} if llama else {"model": model, "prompt": text}
        found = _mapping(api.get("POST", "/tokenize", body)).get("tokens")
        if not isinstance(found, list):
            return ""
        ids.append(found)
    return _hash(ids)


def _template(api: _Pages, model: str, props: Mapping[str, Any]) -> str:
    if props:
        text = props.get("chat_template")
        return _hash(text) if isinstance(text, str) and text else ""
    found = _mapping(api.get("POST", "/tokenize", {"model": model, "messages": CHAT})).get("tokens")
    return _hash(found) if isinstance(found, list) else ""


def _flags(base: Mapping[str, Any], props: Mapping[str, Any], server: Mapping[str, Any]) -> dict[str, str]:
    told = {k: str(server[k])[:80] for k in FLAGS if server.get(k) is not None}
    if base.get("max_model_len") is not None:
        told["max_model_len"] = str(base["max_model_len"])
    settings = _mapping(props.get("default_generation_settings"))
    if settings.get("n_ctx") is not None:
        told["n_ctx"] = str(settings["n_ctx"])
    if settings:
        params = _mapping(settings.get("params"))
        told |= {k: str(params[k]) for k in _SAMPLING if k in params}
    return told


def _text(value: object) -> str:
    """Return a text, "" for anything else: a null is no name."""
    return value if isinstance(value, str) else ""


def _last(path: object) -> str:
    return str(path or "").rstrip("/").rsplit("/", 1)[-1][:200]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
