"""The report: self-contained, escaped, bounded in size, says what happened."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.domain.ids import CellId
from fleetctl.domain.report import ChainHead, ReportData
from fleetctl.views.report import render_report
from fleetctl.views.report_charts import Chart, Line, clock, nice_step, svg, thinned, time_step
from fleetctl.views.report_series import counted_once, evidence_charts, share_chart, stories
from tests.cases.planning_fleet import NOW, cell, lab_fleet
from tests.cases.report_story import event, good_looks, told


class Balanced(HTMLParser):
    """Notes every tag that is not closed in order, and every attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.attributes: set[str] = set()
        self.tags: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(page: str) -> Balanced:
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert parser.faults == []
    assert parser.open == []
    return parser


def test_one_file_without_script_or_outside_asset() -> None:
    page = render_report(told())
    seen = parsed(page)
    assert "script" not in seen.tags
    assert not {"src", "style", "onload", "onclick", "srcset"} & seen.attributes
    assert not {"img", "link", "iframe", "object", "base", "form"} & seen.tags
    assert not re.search(r"https?:|url\(|@import", page)
    assert all(href.startswith("#") for href in re.findall(r'href="([^"]*)"', page))
    targets = set(re.findall(r'id="([^"]*)"', page))
    assert {href[1:] for href in re.findall(r'href="([^"]*)"', page)} <= targets


def test_the_policy_names_exactly_the_style_sheet_that_is_there() -> None:
    page = render_report(told())
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.S)
    wanted = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{wanted}'" in page


def test_it_says_what_happened() -> None:
    text = " ".join("".join(parsed(render_report(told())).text).split())
    for said in (
        "Reached soak2chat-lab, stream-lab",
        "Rolled back1on evidence: summary-lab",
        "Brought home1by order: chat-lab",
        "Client errors3of 38,412 requests",
        "The plan saves, USD/h100.64",
        "Audit logholds13 events in 3 chains",
        "FAIL at 100",
        "PASS at 20",
        "time since start, min:s",
        "Evidence lane accepted: 1 request/s cannot give latency evidence, by ana@example.com",
        "no latency evidence (the router's log has none for streams)",
        "emulated engine: 20 ms to the first token",
        "overlap:",
        "home by order of ana, 4 ms to zero",
    ):
        assert said in text
    assert all(c.head in text for c in told().chains)


def test_nothing_has_happened_yet() -> None:
    text = "".join(parsed(render_report(ReportData(made_at=NOW, fleet=lab_fleet(), plan=None))).text)
    assert "No cell has started" in text
    assert "No plan was made" in text
    assert "No event yet" in text


def test_a_broken_chain_is_shown() -> None:
    data = replace(told(), chains=(ChainHead(cell=CellId("chat-lab"), events=3, head="ab", broken="link 2 was edited"),))  # type: ignore[arg-type]
    text = "".join(parsed(render_report(data)).text)
    assert "Audit logbroken" in text
    assert "link 2 was edited" in text


@settings(max_examples=25, deadline=None)
@given(st.text(min_size=1, max_size=40))
def test_hostile_text_stays_text(evil: str) -> None:
    evil = f'"><script>alert(1)</script><a href="http://x">{evil}\x1b[2J'
    name = CellId(evil)
    fleet = lab_fleet(name=evil, cells=(cell("chat-lab", "chat"),))
    looks = tuple(replace(row, cell=name, why=evil) for row in good_looks("x", 0)[:12])
    data = ReportData(
        made_at=NOW,
        fleet=fleet,
        plan=None,
        looks={name: looks},
        events=(replace(event(1, evil, evil), cell=name),),
        lab=((evil, evil, evil),),
        chains=(ChainHead(cell=name, events=1, head=evil, broken=evil),),  # type: ignore[arg-type]
    )
    page = render_report(data)
    seen = parsed(page)
    assert "script" not in seen.tags
    assert "\x1b" not in page
    assert "<script" not in page
    assert 'href="http' not in page


def test_a_long_migration_gives_a_page_of_bounded_size() -> None:
    row = good_looks("chat-lab", 0)[40]
    looks = tuple(replace(row, at=NOW + timedelta(seconds=10 * i)) for i in range(6_000))
    data = replace(told(), looks={CellId("chat-lab"): looks})
    assert len(render_report(data)) < 300_000


def test_thinning_keeps_peaks_and_the_last_point() -> None:
    points = [(float(i), 1000.0 if i == 4321 else float(i % 7)) for i in range(10_000)]
    kept = thinned(points, 200)
    assert len(kept) <= 200
    assert (4321.0, 1000.0) in kept
    assert kept[-1] == points[-1]
    assert kept == sorted(kept)
    assert thinned(points[:50]) == points[:50]


def test_attempts_are_counted_once_per_step() -> None:
    looks = good_looks("chat-lab", 0)
    attempts, errors = counted_once(looks)
    ends = [row for row, after in pairwise(looks) if row.arms and after.phase != row.phase] + [looks[-1]]
    assert attempts == sum(c.attempts for row in ends for c in row.arms.values())
    assert errors == sum(c.errors for row in ends for c in row.arms.values())
    assert counted_once(()) == (0, 0)


def test_each_guardrail_has_a_line_against_each_bound() -> None:
    story = next(s for s in stories(told()) if s.cell == "chat-lab")
    fail, passing = evidence_charts(story)
    assert [line.name for line in fail.lines] == [line.name for line in passing.lines] == ["all together", "errors", "latency"]
    assert fail.bounds[0][:2] == (100.0, "FAIL at 100")
    assert passing.bounds[0][:2] == (20.0, "PASS at 20")
    assert all(fail.low <= value <= fail.high for line in (*fail.lines, *passing.lines) for _, value in line.points)
    share = share_chart(story)
    assert [band.name for band in share.bands][:3] == ["preflight", "canary 10 %", "ramp 50 %"]
    assert (share.low, share.high) == (0.0, 100.0)


def test_axes_for_people() -> None:
    assert [nice_step(x) for x in (0.3, 1.0, 3.1, 7.0, 26.0)] == [0.5, 1.0, 5.0, 10.0, 50.0]
    assert [clock(s, length) for s, length in ((95.0, 180.0), (7200.0, 36000.0), (172800.0, 700000.0))] == ["1:35", "2 h", "2 d"]
    for seconds in (1.0, 13.0, 170.0, 5400.0, 86400.0, 6e6):
        assert seconds / time_step(seconds) <= 8


def test_values_outside_the_axis_are_drawn_at_its_edge() -> None:
    line = Line(name="x", style="fail", points=((0.0, 1e300), (5.0, 0.0), (50.0, 1.0)))
    drawn = svg(Chart(title="t", unit="u", seconds=10.0, low=0.01, high=100.0, lines=(line,), is_log=True))
    numbers = [float(n) for n in re.findall(r"[ML](-?[\d.]+) ", drawn)]
    assert all(0 <= n <= 540 for n in numbers)
    assert "nan" not in drawn
    assert "inf" not in drawn
