"""Every rule and package rule has a line with its evidence in the reference; the notice of HIPIFY stands beside the table and in NOTICE."""

from __future__ import annotations

import re
from pathlib import Path

from fleetctl.catalog.portability import load_rule_book

ROOT = Path(__file__).resolve().parents[2]


def test_every_rule_has_its_line_with_evidence() -> None:
    book = load_rule_book()
    page = (ROOT / "docs" / "reference" / "assessment-rules.md").read_text("utf-8")
    lines = {m.group(1): line for line in page.splitlines() if (m := re.match(r"\| (?:<a id=\w+></a>)?([RP]\d{3}) \|", line))}
    assert set(lines) == {*book.rules, *(p.id for p in book.packages)}
    for evidence, id_ in [(r.evidence, r.id) for r in book.rules.values()] + [(p.evidence, p.id) for p in book.packages]:
        assert evidence.split(";")[0].replace("|", "\\|").replace("<", "&lt;") in lines[id_]


def test_the_notice_stands_beside_the_table_and_in_notice() -> None:
    notice = (ROOT / "fleetctl" / "catalog" / "data" / "NOTICE.hipify").read_text("utf-8")
    assert "Copyright (c) 2024 Advanced Micro Devices" in notice
    assert notice.strip() in (ROOT / "NOTICE").read_text("utf-8")
