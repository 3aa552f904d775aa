"""Evidence, adapter layer: free answers and embeddings of one model name on one arm. Never judges, never retries, keeps no text."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from fleetctl.adapters.engines.api import Api
from fleetctl.adapters.engines.forced import choices_of
from fleetctl.analysis.contract import lookup
from fleetctl.domain.identity import ContractAnswer
from fleetctl.domain.quality import Spoken
from fleetctl.domain.workload import ChatApi
from fleetctl.errors import EvidenceUnavailable

TOP = 5
BATCH = 8
"""Texts that are embedded by one call."""
MOST_DIMENSIONS = 16_384


class FreeAnswers:
    """One arm that answers prompts, at temperature 0.

    Args:
        model: the base model or an adapter model, by its name; max_tokens: of an answer, from 1.
    """

    def __init__(self, api: Api, model: str, *, kind: ChatApi = "chat", max_tokens: int = 64) -> None:
        self._api, self._model, self._kind, self._max_tokens = api, model, kind, max_tokens
        self._logprobs = True

    def answer(self, prompt: str) -> Spoken:
        """Return the whole answer. Raises EvidenceUnavailable (evidence.answers) where there is none."""
        answer = self._ask(prompt)
        if answer.status in (400, 422) and self._logprobs:  # a server without log-probabilities still answers
            self._logprobs = False
            answer = self._ask(prompt)
        text = lookup(answer.body, "choices.0.message.content" if self._kind == "chat" else "choices.0.text")
        if answer.status != 200 or not isinstance(text, str):
            why = answer.error or (f"status {answer.status}" if answer.status != 200 else "no text")
            raise EvidenceUnavailable("evidence.answers", f"{self._model} gives no answer: {why}.")
        return Spoken(text=text, choices=choices_of(answer), finish=str(lookup(answer.body, "choices.0.finish_reason") or "")[:40])

    def _ask(self, prompt: str) -> ContractAnswer:
        body: dict[str, object] = {"model": self._model, "max_tokens": self._max_tokens, "temperature": 0, "seed": 0}
        if self._kind == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
            more: dict[str, object] = {"logprobs": True, "top_logprobs": TOP}
        else:
            body["prompt"] = prompt
            more = {"logprobs": TOP}
        path = "/v1/chat/completions" if self._kind == "chat" else "/v1/completions"
        return self._api.call("POST", path, {**body, **(more if self._logprobs else {})})


def embed(api: Api, model: str, texts: Sequence[str]) -> list[list[float]]:
    """Return a vector per text, in their order, by /v1/embeddings.

    Raises:
        EvidenceUnavailable: evidence.embeddings, where the server gives none.
    """
    out: list[list[float]] = []
    for start in range(0, len(texts), BATCH):
        part = list(texts[start : start + BATCH])
        answer = api.call("POST", "/v1/embeddings", {"model": model, "input": part})
        rows = lookup(answer.body, "data")
        found = sorted(rows, key=_index) if answer.status == 200 and isinstance(rows, list) else []
        vectors = [v for row in found if (v := _vector(lookup(row, "embedding"))) is not None]
        if len(vectors) != len(part):
            why = answer.error or (f"status {answer.status}" if answer.status != 200 else "not a vector per text")
            raise EvidenceUnavailable("evidence.embeddings", f"{model} gives no embeddings (/v1/embeddings): {why}.")
        out += vectors
    return out


def _index(row: object) -> int:
    found = lookup(row, "index")
    return found if isinstance(found, int) else 0


def _vector(value: object) -> list[float] | None:
    if not isinstance(value, list) or not 0 < len(value) <= MOST_DIMENSIONS:
        return None
    if not all(isinstance(x, (int, float)) and not isinstance(x, bool) and isfinite(x) for x in value):
        return None
    return [float(x) for x in value]
