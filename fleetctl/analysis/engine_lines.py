"""Judge, pure layer: what of a log's lines an engine, a runtime or a driver says itself. Never a user's words, never I/O.

Engines can log requests: a prompt that quotes an error must send nobody home. Kept of a line is what stands before the request's
text, before the first quoted words and before data; a line of level debug or info tells of no fault. A prompt that was printed as it
is, over several lines, ends with the next line that begins as a log's, a runtime's or a driver's line does.
Shapes: vLLM (`Received request ...: prompt: '...'`), SGLang (`text='...'`), TGI, Triton and llama.cpp (`request: {...}`), JSON lines,
tracebacks, ROCm's runtime (`:0:rocdevice.cpp`), the kernel's ring buffer.
"""

from __future__ import annotations

import json
import re

MOST_LINE = 8_192
"""Characters of a line that are looked at."""
_MESSAGE = ("message", "msg", "MESSAGE", "event", "error", "exception", "exc_info", "stack", "traceback")
_LEVEL = ("level", "levelname", "severity", "lvl")
_QUIET = frozenset({"debug", "info", "trace", "notice", "verbose", "d", "i"})
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_WORDS = re.compile(
    r"""\b(?:(?P<users>prompts?|messages|inputs?|input_text|texts?|content)|body|request|query|payload|completion|generated|output)
        ["']?\s*[:=]\s*(?=\S)""",
    re.IGNORECASE | re.VERBOSE,
)
"""A request's text comes after these; after the later ones only where no error follows (`request: RuntimeError: ...`)."""
_ERROR = re.compile(r"[\w.]*(?:Error|Exception)\b|(?:HIP|CUDA|ROCm) error\b")
_QUOTE = re.compile(r"(?<![\w(])[\"'`“‘]|(?<!Error)(?<!Exception)\([\"'`“‘]|\{")
"""Quoted words and data; an apostrophe within a word and the quotes of `RuntimeError('...')` are none."""
_SHOWN_LEVEL = re.compile(r"(?:\A|[\s\[<|=(])(DEBUG|INFO|TRACE|NOTICE|VERBOSE)(?=[\s\]>|:)]|\Z)", re.IGNORECASE)
_BEGINS = re.compile(
    r"""\A(?:
        [\[<(]?\d{4}[-/]\d\d[-/]\d\d | [\[<(]?\d\d[-:/]\d\d[-:/\s] | [IWEF]\d{4}\s | [\[<(]?\d+\.\d+[\]>)]?\s   # a time
      | [\[<(]?(?:DEBUG|INFO|TRACE|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b                                  # a level
      | \((?:EngineCore|APIServer|Worker|VllmWorker|Ray)[^)]{0,60}\) | \[rank\d+\] | \[TP\d+ | (?:srv|slot|que|main|llama_\w+|ggml_\w+)[:\s]
      | :\d:[\w./-]+\.(?:cpp|hpp)\s*: | NVRM:\s | amdgpu[\s:] | \[drm | kernel:\s | (?:\w{3}\s+\d+\s)?\d\d:\d\d:\d\d
      | Memory\saccess\sfault\sby\sGPU\s | HW\sException\sby\sGPU\s | GPU\score\sdump | terminate\scalled | Fatal\sPython\serror
      | Traceback\s\(most | [\w.]+(?:Error|Exception):\s | (?:HIP|CUDA|ROCm)\serror:
    )""",
    re.VERBOSE,
)
"""How a line begins that no prompt goes on with, unless somebody means it to."""
_BEFORE = 120
"""Characters from the beginning within which a line's level stands."""


class OwnLines:
    """Says of each line of one log, in their order, what its writer says itself."""

    def __init__(self) -> None:
        self._in_prompt = False

    def own(self, line: str) -> str:
        """Return the part of a line that is no user's text; "" of a line that tells of no fault."""
        text = _ANSI.sub("", line[:MOST_LINE])
        if text.lstrip().startswith("{"):
            return self._of_data(text)
        if self._in_prompt:
            if not _BEGINS.match(text):
                return ""
            self._in_prompt = False
        kept, user = _cut(text)
        self._in_prompt = _goes_on(user)
        level = _SHOWN_LEVEL.search(kept[:_BEFORE])
        return "" if level is not None else kept

    def _of_data(self, text: str) -> str:
        """Take a JSON line's message; a request that is printed as data is a user's."""
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            return ""
        self._in_prompt = False
        if not isinstance(row, dict) or any(str(row.get(k, "")).lower() in _QUIET for k in _LEVEL):
            return ""
        said = [row[k] for k in _MESSAGE if isinstance(row.get(k), str)]
        lines = [part for text in said for part in text.splitlines()]
        inner = OwnLines()
        return "\n".join(own for part in lines if not part.lstrip().startswith("{") and (own := inner.own(part)))


def _cut(text: str) -> tuple[str, str | None]:
    """Return what stands before a user's words, and these; None where there are none."""
    end, user = len(text), None
    for found in _WORDS.finditer(text):
        if found["users"] or not _ERROR.match(text, found.end()):
            end, user = found.start(), text[found.end() :]
            break
    quote = _QUOTE.search(text, 0, end)
    return (text[: quote.start()], user) if quote is not None else (text[:end], user)


def _goes_on(user: str | None) -> bool:
    """Tell whether a user's words may go on in the next line: they were not quoted, or their quote is not closed."""
    if user is None:
        return False
    quote = user[:1]
    if quote in "[{(":
        return False  # printed as data, on one line
    if quote not in "\"'":
        return True
    return re.search(rf"(?<!\\)(?:\\\\)*{quote}\s*(?:[,)\]}}]|\Z)", user[1:]) is None
