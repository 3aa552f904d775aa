"""Bench: source lines per CPU second against hipify-perl, hazards found, names that agree with the table.

hipify-perl (Debian 13: apt-get install hipify-perl) runs with its warnings on, since without them it reports nothing;
FLEETCTL_HIPIFY_PERL names another one.
"""

from __future__ import annotations

import csv
import os
import resource
import shutil
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from fleetctl.adapters.source_tree import SourceTreeReader
from fleetctl.assess.gather import gather
from fleetctl.assess.names import coverage, status_of
from fleetctl.catalog.portability import load_rule_book, shipped_names
from fleetctl.domain.portability import USABLE, TextFile
from tests.cases.cuda_tree import write_tree

HAZARDS = Path(__file__).resolve().parents[1] / "cases" / "hazards"
FILES = 400
PERL_REPEATS = 10


def lines_per_cpu_second() -> float:
    """Scan a tree of about 200,000 lines, reading included, and return lines per CPU second."""
    book = load_rule_book()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = write_tree(folder, FILES)
        begin = time.process_time()
        gatherer = gather(book, "gfx942", SourceTreeReader().read(folder))
        findings = gatherer.findings(datetime.now(UTC))
        spent = time.process_time() - begin
    if gatherer.counts.lines != lines or not findings:
        raise SystemExit(f"{gatherer.counts.lines} lines were read of {lines}, {len(findings)} findings")
    print(f"{lines} lines, headers included, in {spent:.2f} CPU seconds")
    return lines / spent


def hipify_perl_lines_per_cpu_second() -> float | None:
    """Return lines per CPU second of hipify-perl with warnings, None where it is not installed."""
    perl = os.environ.get("FLEETCTL_HIPIFY_PERL") or shutil.which("hipify-perl")
    if not perl:
        print("hipify-perl is not installed")
        return None
    with tempfile.TemporaryDirectory() as name:
        lines = write_tree(Path(name), 1, PERL_REPEATS)
        source = next(Path(name).rglob("*.cu"))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*perl.split(), str(source)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    print(f"hipify-perl: {lines} lines in {spent:.2f} CPU seconds")
    return lines / spent


def hazards() -> tuple[int, int]:
    """Return how many of the probe set were found, and how many there are."""
    book = load_rule_book()
    with (HAZARDS / "expected.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    found = 0
    for row in rows:
        read = TextFile(path=row["file"], text=(HAZARDS / row["file"]).read_text("utf-8"))
        findings = gather(book, "gfx942", [read]).findings(datetime.now(UTC))
        found += row["rule"] in {f.rule for f in findings}
    return found, len(rows)


def names_that_agree() -> tuple[int, int]:
    """Return how many rows of the shipped table are classified as the table says, and how many rows there are."""
    names = load_rule_book().names
    rows = list(csv.DictReader(shipped_names().splitlines()))
    agree = 0
    for row in rows:
        said = "covered" if row["status"] in USABLE else "unsupported"
        agree += status_of(row["cuda_name"], names) == row["status"] and coverage(row["cuda_name"], names) == said
    return agree, len(rows)


def fields() -> dict[str, object]:
    """Return the fields of this part."""
    ours = lines_per_cpu_second()
    perl = hipify_perl_lines_per_cpu_second()
    found, all_ = hazards()
    agree, rows = names_that_agree()
    return {
        "lines_per_cpu_second": round(ours),
        "hipify_perl_lines_per_cpu_second": None if perl is None else round(perl, 1),
        "hazards_found": found,
        "hazards": all_,
        "api_agree": agree,
        "api_rows": rows,
    }
