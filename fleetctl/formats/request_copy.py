"""Evidence and migrate, formats layer: what of a user's request may be sent a second time. Never I/O, never decides who may do so."""

from __future__ import annotations

from typing import Any, Literal

KEPT = frozenset({"model", "messages", "prompt", "stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias"})
"""All else of a body (user, metadata, store, keys, extensions) is left out."""
ACTS = frozenset({"tools", "tool_choice", "functions", "function_call", "web_search_options", "mcp_servers", "plugins"})
"""A call that may act on the world is not repeated."""
CopyPath = Literal["chat/completions", "completions"]


class Refused(Exception):
    """This copy may not be sent again; the text is one of a few fixed words, for counting."""


def safe_body(data: object) -> tuple[CopyPath, dict[str, Any]]:
    """Return where a copy goes, and the keys of a request that may be sent again; the caller adds how much is asked for.

    Raises:
        Refused: not a request for text alone, or one with tools or several answers.
    """
    if not isinstance(data, dict):
        raise Refused("not_json")
    if any(data.get(key) for key in ACTS):
        raise Refused("tools")
    if data.get("n", 1) not in (1, None) or data.get("best_of", 1) not in (1, None):
        raise Refused("several_answers")
    kept = {k: v for k, v in data.items() if k in KEPT}
    is_chat = "messages" in data
    if is_chat:
        kept["messages"] = _bare_messages(data["messages"])
    elif not isinstance(data.get("prompt"), str):
        raise Refused("not_text" if "prompt" in data else "no_prompt")
    return "chat/completions" if is_chat else "completions", kept


def asked_tokens(data: object, most: int) -> int:
    """Return how many tokens a request asks for, at most `most`."""
    asked = [data.get(k) for k in ("max_tokens", "max_completion_tokens")] if isinstance(data, dict) else []
    return min([most, *(a for a in asked if type(a) is int and a > 0)])


def _bare_messages(messages: Any) -> list[dict[str, Any]]:
    """Return the messages with their role and text alone: names, keys and whatever servers add are nobody else's."""
    if not isinstance(messages, list) or not messages:
        raise Refused("no_prompt")
    bare = []
    for m in messages:
        if not isinstance(m, dict):
            raise Refused("no_prompt")
        if m.get("tool_calls") or m.get("function_call") or m.get("role") in ("tool", "function"):
            raise Refused("tools")
        if not isinstance(m.get("role"), str):
            raise Refused("no_prompt")
        bare.append({"role": m["role"], "content": _text(m.get("content"))})
    return bare


def _text(content: Any) -> str | list[dict[str, str]]:
    """Return a message's text, or the text of its parts. A picture's address would be fetched again by the server."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Refused("not_text")
    parts = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else part
        if not isinstance(text, str):
            raise Refused("not_text")
        parts.append({"type": "text", "text": text})
    return parts
