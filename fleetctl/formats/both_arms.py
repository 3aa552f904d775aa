"""Migrate, formats layer: checks of both arms, from the fleet file's shape, and their files of prompts. Never opens a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from fleetctl.domain.quality import Form, Item, Match
from fleetctl.domain.workload import CHECKS, CheckName, CheckSpec
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_schema import ChecksShape, PolicyChecksShape

MOST_ITEMS = 20_000
MOST_PROMPT = 200_000
"""Characters of one prompt."""
_FILES = ("texts", "prompts", "items")


def to_checks(own: ChecksShape, policy: PolicyChecksShape) -> tuple[CheckSpec, ...]:
    """Return the checks that a workload names or the policy requires, in the order in which they are run."""
    return tuple(
        default_check(name, getattr(own, name), policy) for name in CHECKS if getattr(own, name) is not None or name in policy.required
    )


def default_check(name: CheckName, shape: Any = None, policy: PolicyChecksShape | None = None) -> CheckSpec:
    """Return a check as a workload's shape has it, with shipped settings where it is None."""
    given: Mapping[str, Any] = {} if shape is None else {k: getattr(shape, k) for k in type(shape).model_fields}
    policy = policy or PolicyChecksShape()
    return CheckSpec(
        name=name,
        file=next((str(given[key]) for key in _FILES if given.get(key)), ""),
        api=given.get("api", "chat"),
        numbers={k: float(v) for k, v in sorted(given.items()) if isinstance(v, (int, float)) and k in _named(shape)},
        valid_for=policy.valid,
        is_auto=policy.run == "auto",
    )


def _named(shape: Any) -> frozenset[str]:
    return frozenset(shape.model_fields_set) if shape is not None else frozenset()


def parse_items(text: str, name: str, *, is_scored: bool) -> tuple[Item, ...]:
    """Return the prompts of a file of JSON lines, each once.

    Args:
        is_scored: each needs what is expected.

    Raises:
        ConfigInvalid: config.items, with up to ten bad lines.
    """
    found: list[Item] = []
    wrong: list[str] = []
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        item = _item(line, is_scored=is_scored)
        if isinstance(item, str):
            wrong.append(f"{name}:{number}: {item}")
        elif item.prompt in seen:
            wrong.append(f"{name}:{number}: the prompt stands here twice, and a repeat shows nothing")
        else:
            seen.add(item.prompt)
            found.append(item)
        if len(wrong) >= 10 or len(found) > MOST_ITEMS:
            break
    if len(found) > MOST_ITEMS:
        wrong.append(f"{name} holds over {MOST_ITEMS:,} prompts")
    if not found and not wrong:
        wrong.append(f"{name} holds no prompt")
    if wrong:
        raise ConfigInvalid("config.items", wrong[0] if len(wrong) == 1 else f"{name} has mistakes.", details=tuple(wrong))
    return tuple(found)


def _item(line: str, *, is_scored: bool) -> Item | str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return "is no JSON"
    if not isinstance(row, dict):
        return 'is no object such as {"prompt": "..."}'
    unknown = sorted(set(row) - {"prompt", "expect", "match", "form"})
    if unknown:
        return f"unknown key {unknown[0][:40]!r}"
    prompt, expect, match, form = row.get("prompt"), row.get("expect", ""), row.get("match", "exact"), row.get("form", "text")
    if not isinstance(prompt, str) or not 0 < len(prompt) <= MOST_PROMPT:
        return f"prompt is no text of 1 to {MOST_PROMPT:,} characters"
    if isinstance(expect, bool) or not isinstance(expect, (str, int, float)) or (is_scored and str(expect).strip() == ""):
        return "expect is no text and no number"
    if match not in get_args(Match):
        return f"match must be {', '.join(get_args(Match))}"
    if form not in get_args(Form):
        return f"form must be {', '.join(get_args(Form))}"
    return Item(prompt=prompt, expect=str(expect), match=match, form=form)
