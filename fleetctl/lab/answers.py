"""Lab, lab layer: what an emulated engine is asked and what it answers, in OpenAI's shapes. Never decides when; never I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fleetctl.lab.sampler import VOCABULARY, top_logprobs

MOST_TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Ask:
    """One completion request, checked.

    Args:
        logprobs: top log-probabilities per token that were asked for, 0 to 20; -1 for none at all.
    """

    is_chat: bool
    prompt: str
    max_tokens: int
    temperature: float
    is_stream: bool
    logprobs: int


def read_ask(body: bytes, *, is_chat: bool, most: int) -> Ask:
    """Read a request's body.

    Args:
        most: tokens that an answer may have.

    Raises:
        ValueError: it is not a request of this API; the text is for the client.
    """
    data = json.loads(body or b"null")
    if not isinstance(data, dict):
        raise ValueError("the body is not a JSON object")
    prompt = _chat_prompt(data.get("messages")) if is_chat else _plain_prompt(data.get("prompt"))
    asked = data.get("max_tokens")
    if asked is None:
        asked = data.get("max_completion_tokens", 16)
    if type(asked) is not int or asked < 1:
        raise ValueError("max_tokens is not a number from 1")
    temperature = data.get("temperature", 1.0)
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)) or not 0 <= temperature <= 2:
        raise ValueError("temperature is not a number from 0 to 2")
    return Ask(is_chat, prompt, min(asked, most), float(temperature), data.get("stream") is True, _logprobs(data, is_chat))


def _plain_prompt(given: Any) -> str:
    if isinstance(given, list) and len(given) == 1:
        given = given[0]
    if not isinstance(given, str) or not given:
        raise ValueError("prompt is not a text")
    return given


def _chat_prompt(given: Any) -> str:
    if not isinstance(given, list) or not given:
        raise ValueError("messages is not a list of messages")
    parts = []
    for message in given:
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, str) or not isinstance(message.get("role"), str):
            raise ValueError("a message has no role and text content")
        parts.append(f"{message['role']}: {content}\n")
    return "".join(parts)


def _logprobs(data: dict[str, Any], is_chat: bool) -> int:
    if is_chat:
        if data.get("logprobs") is not True:
            return -1
        count = data.get("top_logprobs", 0)
    else:
        count = data.get("logprobs")
        if count is None or count is False:
            return -1
    count = 0 if count is None else count
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_TOP_LOGPROBS:
        raise ValueError(f"log-probabilities are not a number from 0 to {MOST_TOP_LOGPROBS}")
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer.

    Args:
        model: name, already JSON text with its quotes.
        created: Unix seconds.
        tokens: numbers in the vocabulary.
    """

    ask: Ask
    id_: str
    model: str
    created: int
    tokens: list[int]
    prompt_tokens: int
    cached_tokens: int

    def whole(self) -> bytes:
        """Return the body of a plain answer."""
        text = "".join([VOCABULARY[t] for t in self.tokens])
        lp = self._logprobs(self.tokens, 0)
        if self.ask.is_chat:
            kind, said = "chat.completion", f'"message":{{"role":"assistant","content":"{text}"}}'
        else:
            kind, said = "text_completion", f'"text":"{text}"'
        return (
            f'{{"id":"{self.id_}","object":"{kind}","created":{self.created},"model":{self.model},"choices":'
            f'[{{"index":0,{said},"logprobs":{lp},"finish_reason":"length"}}],"usage":{self._usage()}}}'
        ).encode()

    def event(self, index: int) -> bytes:
        """Return the event of one token (0-based)."""
        token = self.tokens[index]
        lp = self._logprobs([token], index)
        finish = '"length"' if index == len(self.tokens) - 1 else "null"
        if self.ask.is_chat:
            role = '"role":"assistant",' if index == 0 else ""
            said = f'"delta":{{{role}"content":"{VOCABULARY[token]}"}}'
        else:
            said = f'"text":"{VOCABULARY[token]}"'
        return f'data: {{{self._stem()},"choices":[{{"index":0,{said},"logprobs":{lp},"finish_reason":{finish}}}]}}\n\n'.encode()

    def last_event(self) -> bytes:
        """Return the event with the usage, and the end mark."""
        return f'data: {{{self._stem()},"choices":[],"usage":{self._usage()}}}\n\ndata: [DONE]\n\n'.encode()

    def _stem(self) -> str:
        kind = "chat.completion.chunk" if self.ask.is_chat else "text_completion"
        return f'"id":"{self.id_}","object":"{kind}","created":{self.created},"model":{self.model}'

    def _usage(self) -> str:
        made = len(self.tokens)
        return (
            f'{{"prompt_tokens":{self.prompt_tokens},"completion_tokens":{made},"total_tokens":{self.prompt_tokens + made},'
            f'"prompt_tokens_details":{{"cached_tokens":{self.cached_tokens}}}}}'
        )

    def _logprobs(self, tokens: list[int], first: int) -> str:
        count = self.ask.logprobs
        if count < 0:
            return "null"
        tops = [[(VOCABULARY[t], round(p, 6)) for t, p in top_logprobs(token, max(1, count))] for token in tokens]
        if self.ask.is_chat:
            content = [{**_entry(*top[0]), "top_logprobs": [_entry(*t) for t in top[:count]]} for top in tops]
            return json.dumps({"content": content})
        at = sum(len(VOCABULARY[t]) for t in self.tokens[:first])
        offsets = []
        for top in tops:
            offsets.append(at)
            at += len(top[0][0])
        return json.dumps(
            {
                "tokens": [top[0][0] for top in tops],
                "token_logprobs": [top[0][1] for top in tops],
                "top_logprobs": [dict(top[:count]) for top in tops],
                "text_offset": offsets,
            }
        )


def _entry(word: str, logprob: float) -> dict[str, Any]:
    return {"token": word, "logprob": logprob, "bytes": list(word.encode())}


def error(message: str, kind: str) -> bytes:
    """Return the body of an error in OpenAI's shape."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": None}}).encode()


def models(model: str, born: int, max_model_len: int) -> bytes:
    """Return the list of models; it says that this one is emulated.

    Args:
        model: name as JSON text; born: Unix seconds.
    """
    return (
        f'{{"object":"list","data":[{{"id":{model},"object":"model","created":{born},"owned_by":"fleetctl-lab",'
        f'"max_model_len":{max_model_len},"emulated":true}}]}}'
    ).encode()
