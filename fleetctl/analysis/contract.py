"""Evidence, analysis layer: is an answer of the serving contract right, and is it alike on both arms? Pure; never I/O.

Texts are never compared: two good sides may say different things. What is compared: status, shape, token counts of fixed prompts
(tokenizer and chat template show in them), stops, streams' ends, usage, log-probabilities that are numbers.

Source: canary.md 4.3 (log-probabilities of -9999 on one GPU, ROCm/vllm issue 572), 4.2 (the chat template moves a score by 5 points).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from math import isfinite

from fleetctl.domain.identity import ContractAnswer, ContractCall, ContractResult

REFUSED = frozenset({400, 404, 405, 422, 501})
"""How an engine says that it does not know a feature."""
LEAST_LOGPROB = -1000.0
"""A log-probability below this is a fault of the arithmetic, not an unlikely token."""


def result(call: ContractCall, baseline: ContractAnswer, canary: ContractAnswer) -> ContractResult:
    """Return how one call went: each arm against its own expectation, then the one against the other."""
    if call.optional and baseline.status in REFUSED and canary.status in REFUSED:
        return ContractResult(call=call.id, kind="unsupported")
    here, there = problem(call, baseline), problem(call, canary)
    if here and there:
        return ContractResult(call=call.id, kind="both_broken", baseline=here, canary=there)
    if here or there:
        return ContractResult(call=call.id, kind="broken", baseline=here, canary=there)
    for path in _strings(call.expect.get("same")):
        one, other = lookup(baseline.body, path), lookup(canary.body, path)
        if one != other:
            text = f"{path} is {_short(other)}, on the baseline {_short(one)}"
            return ContractResult(call=call.id, kind="broken", canary=text)
    return ContractResult(call=call.id, kind="ok")


def problem(call: ContractCall, answer: ContractAnswer) -> str:
    """Return the first thing that is wrong with one arm's answer, "" where it is right."""
    if answer.status == 0:
        return f"no answer: {answer.error[:120]}"
    wanted = call.expect.get("status")
    if isinstance(wanted, (list, tuple)) and answer.status not in wanted:
        return f"status {answer.status}, not {' or '.join(str(w) for w in wanted)}"
    return next((text for name, check in _CHECKS.items() if name in call.expect for text in check(call.expect[name], answer)), "")


def lookup(body: object, path: str) -> object:
    """Return the value at a path such as "choices.0.text", None where there is none."""
    at = body
    for part in path.split("."):
        if isinstance(at, Mapping):
            at = at.get(part)
        elif isinstance(at, (list, tuple)) and part.isdigit() and int(part) < len(at):
            at = at[int(part)]
        else:
            return None
    return at


def _has(wanted: object, a: ContractAnswer) -> Iterator[str]:
    yield from (f"{path} is missing" for path in _strings(wanted) if lookup(a.body, path) is None)


def _equals(wanted: object, a: ContractAnswer) -> Iterator[str]:
    for path, value in _pairs(wanted):
        found = lookup(a.body, path)
        if found != value:
            yield f"{path} is {_short(found)}, not {_short(value)}"


def _at_most(wanted: object, a: ContractAnswer) -> Iterator[str]:
    for path, most in _pairs(wanted):
        found = lookup(a.body, path)
        if not isinstance(found, int) or not isinstance(most, int) or found > most:
            yield f"{path} is {_short(found)}, above {most}"


def _count(wanted: object, a: ContractAnswer) -> Iterator[str]:
    for path, n in _pairs(wanted):
        found = lookup(a.body, path)
        if not isinstance(found, list) or len(found) != n:
            yield f"{path} has {len(found) if isinstance(found, list) else 'no'} entries, not {n}"


def _sum(wanted: object, a: ContractAnswer) -> Iterator[str]:
    del wanted
    parts = [lookup(a.body, f"usage.{k}") for k in ("prompt_tokens", "completion_tokens", "total_tokens")]
    if not all(isinstance(p, int) for p in parts) or parts[0] + parts[1] != parts[2]:  # type: ignore[operator]
        yield "the usage does not add up"


def _text(wanted: object, a: ContractAnswer) -> Iterator[str]:
    found = lookup(a.body, str(wanted))
    if not isinstance(found, str) or not found:
        yield f"{wanted} is no text"


def _listed(wanted: object, a: ContractAnswer) -> Iterator[str]:
    found = lookup(a.body, "data")
    names = [m.get("id") for m in found if isinstance(m, Mapping)] if isinstance(found, list) else []
    if wanted not in names:
        yield f"{_short(wanted)} is not in the list of models"


def _lacks(wanted: object, a: ContractAnswer) -> Iterator[str]:
    for path, text in _pairs(wanted):
        found = lookup(a.body, path)
        if not isinstance(found, str) or str(text) in found:
            yield f"{path} is no text without {text!r}"


def _is_cut(a: ContractAnswer) -> bool:
    return lookup(a.body, "choices.0.finish_reason") == "length"


def _json(wanted: object, a: ContractAnswer) -> Iterator[str]:
    path = str(lookup(wanted, "path"))
    try:
        parsed = json.loads(str(lookup(a.body, path)))
    except (ValueError, RecursionError):
        if not _is_cut(a):
            yield f"{path} is no JSON"
        return
    keys = _strings(lookup(wanted, "required"))
    missing = [k for k in keys if not isinstance(parsed, dict) or k not in parsed]
    if missing:
        yield f"{path} lacks {', '.join(missing)}"


def _tool_call(wanted: object, a: ContractAnswer) -> Iterator[str]:
    if _is_cut(a):
        return
    name = lookup(a.body, "choices.0.message.tool_calls.0.function.name")
    if name != lookup(wanted, "name"):
        yield f"no call of {lookup(wanted, 'name')}"
        return
    try:
        arguments = json.loads(str(lookup(a.body, "choices.0.message.tool_calls.0.function.arguments")))
    except (ValueError, RecursionError):
        yield "the arguments of the tool's call are no JSON"
        return
    missing = [k for k in _strings(lookup(wanted, "required")) if not isinstance(arguments, dict) or k not in arguments]
    if missing:
        yield f"the tool's call lacks {', '.join(missing)}"


def _error(wanted: object, a: ContractAnswer) -> Iterator[str]:
    del wanted
    texts = (lookup(a.body, "error.message"), lookup(a.body, "message"), lookup(a.body, "detail"), lookup(a.body, "error"))
    if not any(isinstance(t, (str, list)) and t for t in texts):
        yield "the refusal gives no reason"


def _logprobs(wanted: object, a: ContractAnswer) -> Iterator[str]:
    found = list(tokens_of(lookup(a.body, "choices.0.logprobs")))
    least, top = lookup(wanted, "least"), lookup(wanted, "top")
    if not isinstance(least, int) or len(found) < least:
        yield "no log-probabilities"
    for logprob, tops in found:
        if any(not isfinite(p) or p > 1e-6 or p < LEAST_LOGPROB for p in (logprob, *tops)):
            yield "log-probabilities that are none"
            return
        if isinstance(top, int) and len(tops) < top:
            yield f"{len(tops)} log-probabilities for a token, at least {top} were asked for"
            return


def tokens_of(logprobs: object) -> Iterator[tuple[float, tuple[float, ...]]]:
    """Yield the chosen token's log-probability and the top ones, in both of the API's shapes; NaN stands for what is no number."""
    content = lookup(logprobs, "content")
    if isinstance(content, list):
        for entry in content:
            tops = lookup(entry, "top_logprobs")
            rows = tops if isinstance(tops, list) else []
            yield _number(lookup(entry, "logprob")), tuple(_number(lookup(t, "logprob")) for t in rows)
        return
    chosen, tops = lookup(logprobs, "token_logprobs"), lookup(logprobs, "top_logprobs")
    for i, p in enumerate(chosen if isinstance(chosen, list) else []):
        row = tops[i] if isinstance(tops, list) and i < len(tops) and isinstance(tops[i], dict) else {}
        yield _number(p), tuple(_number(v) for v in row.values())


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else float("nan")


def _stream(wanted: object, a: ContractAnswer) -> Iterator[str]:
    if lookup(wanted, "done") and not a.ended:
        yield "the stream does not end in [DONE]"
    least = lookup(wanted, "least")
    if isinstance(least, int) and len(a.events) < least:
        yield f"{len(a.events)} events, at least {least} were to come"
    if lookup(wanted, "usage") and not any(isinstance(lookup(e, "usage.completion_tokens"), int) for e in a.events):
        yield "the stream has no usage"
    reasons = {lookup(e, "choices.0.finish_reason") for e in a.events} - {None}
    allowed = _strings(lookup(wanted, "finish"))
    if allowed and not reasons & set(allowed):
        yield "the stream does not say why it ended"
    if lookup(wanted, "logprobs") and not any(any(True for _ in tokens_of(lookup(e, "choices.0.logprobs"))) for e in a.events):
        yield "the stream has no log-probabilities"


def _strings(value: object) -> tuple[str, ...]:
    return tuple(str(v) for v in value) if isinstance(value, (list, tuple)) else ()


def _pairs(value: object) -> tuple[tuple[str, object], ...]:
    return tuple((str(k), v) for k, v in value.items()) if isinstance(value, Mapping) else ()


def _short(value: object) -> str:
    text = "absent" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_CHECKS: Mapping[str, Callable[[object, ContractAnswer], Iterator[str]]] = {
    "has": _has,
    "sum": _sum,
    "equals": _equals,
    "at_most": _at_most,
    "count": _count,
    "text": _text,
    "listed": _listed,
    "lacks": _lacks,
    "json": _json,
    "tool_call": _tool_call,
    "error": _error,
    "logprobs": _logprobs,
    "stream": _stream,
}
