"""Evidence, adapter layer: what a server would say next at each position of a given text (teacher forcing). Never judges, never retries.

Where the server gives log-probabilities of the prompt (vLLM, SGLang's OpenAI API: `prompt_logprobs`) one call tells a whole text. Where it
does not (llama.cpp), every prefix is a call of its own for one token with its 20 likeliest; the server's prompt cache makes that cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetctl.adapters.engines.api import Api
from fleetctl.analysis.contract import lookup
from fleetctl.domain.identity import ContractAnswer
from fleetctl.domain.quality import Choice
from fleetctl.errors import EvidenceUnavailable

TOP = 20


class ForcedTexts:
    """One arm that can be asked what it would say next.

    Args:
        model: the base model or an adapter model, by its name.
    """

    def __init__(self, api: Api, model: str, *, who: str = "") -> None:
        self._api, self._model, self._who = api, model, who or model
        self._whole: bool | None = None

    def tokens(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a text. Raises EvidenceUnavailable where the server does not tell."""
        for body in ({"content": text, "model": self._model}, {"prompt": text, "model": self._model}):
            found = lookup(self._api.call("POST", "/tokenize", body).body, "tokens")
            if isinstance(found, list) and found and all(isinstance(t, int) for t in found):
                return tuple(found)
        raise self._cannot("it does not tell tokens (/tokenize)")

    def goes_on(self, ids: Sequence[int], count: int) -> tuple[int, ...]:
        """Return the ids of the likeliest continuation, at most `count` tokens. Raises EvidenceUnavailable."""
        answer = self._ask(ids, max_tokens=count, logprobs=1)
        rows = lookup(answer.body, "choices.0.logprobs.content")
        known = [lookup(r, "id") for r in rows] if isinstance(rows, list) else []
        found = tuple(i for i in known if isinstance(i, int))
        if found and len(found) == len(known):
            return found
        text = lookup(answer.body, "choices.0.text")
        if not isinstance(text, str) or not text:
            raise self._cannot("it gives no continuation")
        return self.tokens(text)[:count]

    def choices(self, ids: Sequence[int], after: Sequence[int]) -> tuple[Choice, ...]:
        """Return what it would say at each position of `after`, the text before being forced. Raises EvidenceUnavailable."""
        if self._whole is not False:
            found = self._at_once(ids, after)
            self._whole = found is not None
            if found is not None:
                return found
        return tuple(self._one([*ids, *after[:i]]) for i in range(len(after)))

    def _at_once(self, ids: Sequence[int], after: Sequence[int]) -> tuple[Choice, ...] | None:
        answer = self._ask([*ids, *after], max_tokens=1, prompt_logprobs=TOP)
        rows = lookup(answer.body, "choices.0.prompt_logprobs")
        if not isinstance(rows, list) or len(rows) != len(ids) + len(after):
            return None
        found = [_from_prompt(row) for row in rows[len(ids) :]]
        return tuple(c for c in found if c is not None) if all(c is not None for c in found) else None

    def _one(self, ids: Sequence[int]) -> Choice:
        answer = self._ask(ids, max_tokens=1, logprobs=TOP, cache_prompt=True)
        choice = _from_answer(answer)
        if choice is None:
            raise self._cannot("it gives no log-probabilities")
        return choice

    def _ask(self, ids: Sequence[int], **more: object) -> ContractAnswer:
        answer = self._api.call("POST", "/v1/completions", {"model": self._model, "prompt": list(ids), "temperature": 0, **more})
        if answer.status != 200:
            raise self._cannot(answer.error or f"status {answer.status}")
        return answer

    def _cannot(self, why: str) -> EvidenceUnavailable:
        return EvidenceUnavailable("evidence.quality", f"{self._who} cannot be compared token by token: {why}.")


def _from_answer(answer: ContractAnswer) -> Choice | None:
    """Read the choice of the first token, in both of the API's shapes."""
    entry = lookup(answer.body, "choices.0.logprobs.content.0")
    if isinstance(entry, Mapping):
        tops = entry.get("top_logprobs")
        rows = [(_name(t), t.get("logprob")) for t in tops if isinstance(t, dict)] if isinstance(tops, list) else []
        return _choice([(name, p) for name, p in rows if isinstance(p, (int, float))])
    row = lookup(answer.body, "choices.0.logprobs.top_logprobs.0")
    return _choice([(str(k), v) for k, v in row.items() if isinstance(v, (int, float))]) if isinstance(row, Mapping) else None


def choices_of(answer: ContractAnswer) -> tuple[Choice, ...]:
    """Return a whole answer's choices token by token, in both of the API's shapes; () where no log-probabilities were told."""
    content = lookup(answer.body, "choices.0.logprobs.content")
    if isinstance(content, list):
        found = [_entry(row) for row in content]
        return tuple(c for c in found if c is not None) if all(c is not None for c in found) else ()
    rows, said = lookup(answer.body, "choices.0.logprobs.top_logprobs"), lookup(answer.body, "choices.0.logprobs.tokens")
    if not isinstance(rows, list) or not isinstance(said, list) or len(rows) != len(said):
        return ()
    plain = [[(str(k), v) for k, v in row.items() if isinstance(v, (int, float))] if isinstance(row, Mapping) else [] for row in rows]
    return tuple(c for row in plain if (c := _choice(row)) is not None)


def _entry(row: object) -> Choice | None:
    """Read one token of an answer: it was the likeliest one, and `top` holds what else was likely."""
    if not isinstance(row, Mapping) or not isinstance(row.get("logprob"), (int, float)):
        return None
    tops = row.get("top_logprobs")
    named = [(_name(t), t.get("logprob")) for t in tops if isinstance(t, Mapping)] if isinstance(tops, list) else []
    top = tuple((name, float(p)) for name, p in named if isinstance(p, (int, float)))
    return Choice(token=_name(row), logprob=float(row["logprob"]), top=top or ((_name(row), float(row["logprob"])),))


def _from_prompt(row: Any) -> Choice | None:
    if not isinstance(row, Mapping):
        return None
    values = [(str(k), lookup(v, "logprob")) for k, v in row.items()]
    return _choice([(k, p) for k, p in values if isinstance(p, (int, float))])


def _name(entry: Mapping[str, Any]) -> str:
    """Name a token by its id where that is told, else by its text."""
    return str(entry["id"]) if isinstance(entry.get("id"), int) else str(entry.get("token"))


def _choice(rows: Sequence[tuple[str, float]]) -> Choice | None:
    if not rows:
        return None
    ranked = sorted(rows, key=lambda r: (-r[1], r[0]))
    return Choice(token=ranked[0][0], logprob=float(ranked[0][1]), top=tuple((t, float(p)) for t, p in ranked))
