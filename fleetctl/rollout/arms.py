"""Migrate, pure layer: what both arms say that they serve; one odd answer changes nothing. Never I/O, clock, randomness."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.domain.identity import ArmsIdentity
from fleetctl.domain.rollout import Rollout


def note_arms(r: Rollout, found: ArmsIdentity | None) -> Rollout:
    """Remember what the arms say: a change counts when two answers, given at different moments, agree."""
    if found is None or found.at == r.arms.at:
        return r
    mark = found.hash()
    sure = r.arms.last in ("", mark)
    return replace(r, arms=replace(r.arms, last=mark, at=found.at, sure=sure))


def noted(r: Rollout, mark: str) -> Rollout:
    """Remember what the arms serve; what was gathered of others is forgotten as soon as evidence begins."""
    return replace(r, identity=mark, anew=r.anew or r.identity not in ("", mark))
