"""Inventory, adapter layer: what each running server serves, as it says itself: vLLM, SGLang, TGI, Triton, llama.cpp. Never a completion.

An engine is known by its metrics page first (its families' names), then by the paths that only it answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fleetctl.adapters.engines.exposition import engine_of, sums
from fleetctl.adapters.engines.wire import Server, Silent, base_of, engine_id
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.tags import short
from fleetctl.domain.units import Instant, Scalar

LEAST_UPTIME_S = 60.0
"""A server that runs for less has no rate worth telling."""


class EngineDiscovery:
    """`PartedDiscovery` of inference servers; one part per server.

    Args:
        name: of this source; urls: "host:port" or http(s) addresses; key: gives a bearer token, None for none; now: the time.
    """

    def __init__(
        self, name: str, urls: tuple[str, ...], now: Callable[[], Instant], *, key: Callable[[], str] | None = None, ca_file: str = ""
    ) -> None:
        self._name = name
        self._urls = urls
        self._now = now
        self._key = key
        self._ca_file = ca_file

    @property
    def name(self) -> str:
        """Return "engine" and the source's name."""
        return f"engine {self._name}"

    def parts(self) -> tuple[str, ...]:
        """Return the servers' addresses."""
        return tuple(dict.fromkeys(self._urls))

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Yield what one server says, or all of them; one that is silent is a gap."""
        for url in [scope] if scope else self.parts():
            yield from self._look(url)

    def _look(self, url: str) -> Iterator[Facts | Gap]:
        try:
            headers = {"Authorization": f"Bearer {self._key()}"} if self._key else {}
            server = Server(url, ca_file=self._ca_file, headers=headers)
            values = self._values(server)
        except (ValueError, Silent) as e:
            yield Gap(scope=url, reason=f"the server does not answer: {e}", source=self.name, code="inventory.engine")
            return
        if server.refused:
            text = f"the server answers {server.refused}: the key is missing, expired or has too few rights"
            yield Gap(scope=url, reason=text, source=self.name, code="credentials.engine", mend="Set: the source's secrets.key")
        elif not values:
            yield Gap(scope=url, reason="no inference server that fleetctl knows answers there", source=self.name, code="inventory.engine")
        if not values:
            return
        first: dict[str, Scalar] = {"engine": engine_id(url), "address": base_of(url)[1]}
        kept = {k: v for k, v in values.items() if v is not None and v != ""}
        yield Facts(values={**first, **kept}, source=self.name, seen_at=self._now())
        if "model" not in kept:
            text = f"{kept['software']} answers, but does not say which model it serves"
            yield Gap(scope=url, reason=text, source=self.name, code="inventory.engine")

    def _values(self, server: Server) -> dict[str, Scalar]:
        status, body = server.get("/metrics")
        page = body.decode("utf-8", "replace") if status == 200 else ""
        engine = engine_of(page) or _by_paths(server)
        if not engine:
            return {}
        counted, model = sums(page, engine)
        values: dict[str, Scalar] = {"software": engine, "model": short(model), **_rates(counted)}
        values |= {k: v for k, v in _ASK[engine](server).items() if v is not None and v != ""}
        return values


def _rates(counted: Mapping[str, float]) -> dict[str, Scalar]:
    """Return running and waiting requests, and means since the server's start."""
    out: dict[str, Scalar] = {what: int(counted[what]) for what in ("running", "waiting") if what in counted}
    uptime = time.time() - counted.get("started", time.time())
    requests = counted.get("requests", 0.0)
    if uptime >= LEAST_UPTIME_S and "requests" in counted:
        out["requests_per_s"] = round(requests / uptime, 4)
    if requests > 0:
        out |= {f"{what}_tokens": round(counted[what] / requests, 1) for what in ("input", "output") if what in counted}
    return out


def _by_paths(server: Server) -> str:
    """Tell the engine whose metrics page is switched off or elsewhere."""
    info = _mapping(server.json("/info"))
    if "model_id" in info and "max_total_tokens" in info:
        return "tgi"
    if "model_path" in _mapping(server.json("/get_model_info")):
        return "sglang"
    if "default_generation_settings" in _mapping(server.json("/props")):
        return "llama.cpp"
    if "extensions" in _mapping(server.json("/v2")):
        return "triton"
    owners = {_text(m.get("owned_by")) for m in _models(server)}
    return next((e for e in ("vllm", "sglang", "llama.cpp") if e.replace(".", "") in {o.replace(".", "") for o in owners}), "")


def _openai(server: Server) -> dict[str, Scalar]:
    """Return what the OpenAI list of models says: base model, adapter models (those with a parent), longest request."""
    models = _models(server)
    base = [m for m in models if not _text(m.get("parent")) and _text(m.get("id"))]
    adapters = sorted({_text(m.get("id")) for m in models if _text(m.get("parent"))} - {""})
    return {
        "model": _text(base[0].get("root")) or _text(base[0].get("id")) if base else None,
        "served_as": short(" ".join(_text(m.get("id")) for m in base)),
        "adapters": short(" ".join(adapters)),
        "context_tokens": _whole(base[0].get("max_model_len")) if base else None,
    }


def _vllm(server: Server) -> dict[str, Scalar]:
    return {**_openai(server), "engine_version": _text(_mapping(server.json("/version")).get("version"))}


def _sglang(server: Server) -> dict[str, Scalar]:
    info = _mapping(server.json("/get_server_info"))
    model = _mapping(server.json("/get_model_info")).get("model_path")
    listed = _openai(server)
    return {**listed, "model": _text(model) or listed["model"], "engine_version": _text(info.get("version"))}


def _tgi(server: Server) -> dict[str, Scalar]:
    info = _mapping(server.json("/info"))
    return {
        "model": _text(info.get("model_id")),
        "precision": _text(info.get("model_dtype")),
        "engine_version": _text(info.get("version")),
        "context_tokens": _whole(info.get("max_total_tokens")),
    }


def _triton(server: Server) -> dict[str, Scalar]:
    listed = server.json("/v2/repository/index", "POST")
    ready = [m for m in listed if isinstance(m, dict) and m.get("state", "READY") == "READY"] if isinstance(listed, list) else []
    names = " ".join(sorted({_text(m.get("name")) for m in ready} - {""}))
    return {"model": short(names) or None, "engine_version": _text(_mapping(server.json("/v2")).get("version"))}


def _llama(server: Server) -> dict[str, Scalar]:
    props = _mapping(server.json("/props"))
    length = _whole(_mapping(props.get("default_generation_settings")).get("n_ctx"))
    path = _text(props.get("model_path"))
    listed = _openai(server)
    return {
        **listed,
        "model": path.rsplit("/", 1)[-1] or listed["model"],
        "engine_version": _text(props.get("build_info")),
        "context_tokens": length,
    }


_ASK: Mapping[str, Callable[[Server], dict[str, Scalar]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tgi": _tgi,
    "triton": _triton,
    "llama.cpp": _llama,
}


def _models(server: Server) -> list[Mapping[str, Any]]:
    listed = _mapping(server.json("/v1/models")).get("data")
    return [m for m in listed if isinstance(m, dict)] if isinstance(listed, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


MOST_TOKENS = 10**12
"""A longer context is a lie."""


def _whole(value: Any) -> int | None:
    """Return a number of tokens, None for what is none: true and false are no numbers."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_TOKENS else None


def _text(value: Any) -> str:
    return short(value) if isinstance(value, str) else ""
