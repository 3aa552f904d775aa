"""The shape of the load: lengths, arrivals, traces, texts."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import pytest

from fleetctl.errors import ConfigInvalid
from fleetctl.lab.load_shapes import SENTENCES, TableShape, TraceShape, prompt_text, read_trace

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_the_table_keeps_rate_and_lengths() -> None:
    shape = TableShape(150.0, random.Random(1))
    seen = [shape.next() for _ in range(6000)]
    assert abs(statistics.mean(a.gap_s for a in seen) * 150 - 1) < 0.05
    assert abs(statistics.median(a.context_tokens for a in seen) - 1020) < 60
    assert abs(statistics.median(a.generated_tokens for a in seen) - 129) < 15
    assert min(a.context_tokens for a in seen) >= 1
    assert max(a.context_tokens for a in seen) <= 14050


def test_a_trace_keeps_its_gaps_at_another_rate(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows_text = ["2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.6805900,396,109", "2023-11-16 18:15:51.6805900,0,0"]
    path.write_text(HEAD + "\n".join(rows_text) + "\n", encoding="utf-8")
    rows = read_trace(path)
    assert [r[0] for r in rows] == [0.0, 4.0, 5.0]
    assert rows[2][1:] == (1, 1)
    shape = TraceShape(rows, 10.0)
    seen = [shape.next() for _ in range(6)]
    assert [round(a.gap_s, 6) for a in seen] == [0.1, 0.16, 0.04] * 2
    assert [a.context_tokens for a in seen[:3]] == [374, 396, 1]
    assert TraceShape(rows, 10.0, first=1).next().context_tokens == 396


def test_all_mistakes_of_a_trace_at_once(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(HEAD + "yesterday,1,1\n2023-11-16 18:15:50,x,1\n2023-11-16 18:15:51,5,-1\n")
    with pytest.raises(ConfigInvalid) as e:
        read_trace(path)
    assert e.value.code == "config.trace"
    assert [d.split(": ")[0] for d in e.value.details] == [f"{path}:{n}" for n in (2, 3, 4)]


@pytest.mark.parametrize("text", ["", "A,B\n1,2\n", HEAD, HEAD + "2023-11-16 18:15:50,1,1\n", HEAD + "2023-11-16 18:15:50,1,1\n" * 2])
def test_a_trace_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ConfigInvalid, match="trace"):
        read_trace(path)
    with pytest.raises(ConfigInvalid, match="No such file"):
        read_trace(tmp_path / "absent.csv")


def test_texts_are_whole_questions_within_their_bound() -> None:
    dice = random.Random(2)
    longest = max(len(s) for s in SENTENCES)
    for _ in range(500):
        room = dice.randint(1, 2000)
        text = prompt_text(dice.randint(1, 14050), room, dice)
        assert len(text) <= max(room, longest)
        assert text[0].isupper()
        assert text[-1] in ".?"
        assert text.isascii()
    lengths = [len(prompt_text(1020, 2000, dice)) for _ in range(300)]
    assert 150 < statistics.mean(lengths) < 260
