"""Every check, also the slow ones, file by file; what passed at this commit is not run again. Run by `make test-full`.

Results are kept in .cache/full/<commit>.json; with changes that are not committed the name says so, and they count for that state alone.
Standard output ends with one JSON object: the counts per promise and in all. `--again` forgets what was kept, `--list` only shows it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "full"
FILE_LIMIT_S = 3600.0

PROMISES: Mapping[str, str] = {
    "P1 kill -9 at any step: same end": r"test_migrate_kill|test_store_kill|test_tick_kill|test_fleetctl_killed|test_terraform_killed",
    "P2 no effect twice, a stale token refused": (
        r"fenc|stale_writes|stopped_and_revived|racing_writers|lease_holders|refuses_stale|contract/test_router|contract/test_provisioner"
    ),
    "P3 switch in 2 s, nobody cut": r"test_the_switch_costs|test_haproxy_split",
    "P4 regressions found, A/A in peace": (
        r"test_a_regression_at_half|test_alike_sides|test_a_target_that_breaks|test_judge_simulated|test_sudden|test_rollback_bench|test_canary_bench"
    ),
    "P5 never above the cap": r"_cap[_.]|contract/test_router",
    "P6 nothing that serves is destroyed": r"test_holds|test_hands|test_release|test_provision_(beside|saga)|test_check_provision",
    "P7 no evidence, no progress": r"test_haproxy_killed|test_a_dead_server|lost_evidence",
    "P8 one writer per fleet and per cell": (
        r"racing|/test_[a-z_]*leases?[_.]|::test_(a_)?lease_|contract/test_store|test_ticker_and_migrate|one_run_at_a_time"
    ),
    "P9 router, controller or store down": r"test_haproxy_guard|ticker_is_killed|test_ticker_and_migrate|store_is_gone|haproxy_is_gone",
    "P10 blast radius and freeze windows": r"test_freeze|freeze_window|freeze_binds|test_plan_properties|test_rebalance_limits",
    "P11 home without the store": r"test_home|store_is_gone|ways_home|full_fallback_is_stepped|store_and_the_router_gone",
    "P12 what was approved is what runs": r"digest|tampered|test_provisioner|test_terraform_runs",
    "P1-P10 in made-up histories": r"tests/sim/",
    "P13 audit finds edit, deletion, reordering": r"audit|chain|verify",
    "P14 a second person": r"second_person|author|approv",
    "P15 begun on an older release, finished on this one": r"older_release|test_store_format|golden/test_digests",
}
"""Which tests prove which promise, by a pattern on the test's id; one test may count for several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one test ended: passed, failed or skipped; seconds; text of a failure or skip."""

    id: str
    outcome: str
    seconds: float
    text: str = ""


def state_name() -> str:
    """Return the commit, and a digest of what differs from it where anything does."""

    def git(*args: str) -> str:
        return subprocess.run(["git", *args], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    try:
        commit, changed = git("rev-parse", "HEAD").strip(), git("status", "--porcelain") + git("diff", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return "no-commit"
    return f"{commit}-changed-{hashlib.sha256(changed.encode()).hexdigest()[:12]}" if changed.strip() else commit


def read(path: Path) -> dict[str, Result]:
    """Return what was kept; empty where there is nothing that can be read."""
    try:
        return {row["id"]: Result(**row) for row in json.loads(path.read_text())["results"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def keep(path: Path, results: Mapping[str, Result]) -> None:
    """Replace the kept results in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}.new")
    rows = [asdict(r) for _, r in sorted(results.items())]
    new.write_text(json.dumps({"format_version": 1, "results": rows}, indent=1) + "\n")
    os.replace(new, path)


def collect(only: Sequence[str]) -> dict[str, list[str]]:
    """Return the ids of all tests by file."""
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--no-header", "-p", "no:cacheprovider", *only]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    ids = [line for line in done.stdout.splitlines() if "::" in line and not line.startswith((" ", "ERROR"))]
    if done.returncode not in (0, 5) or not ids:
        sys.exit(f"the tests cannot be collected:\n{done.stdout}\n{done.stderr}")
    files: dict[str, list[str]] = {}
    for id_ in ids:
        files.setdefault(id_.split("::")[0], []).append(id_)
    return files


def run_file(file: str, wanted: Sequence[str], whole: bool) -> list[Result]:
    """Run the tests of one file that are still wanted."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        argv = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", f"--junit-xml={report}", "-o", "junit_family=xunit1"]
        began = time.monotonic()
        with (Path(folder) / "ids").open("w") as ids:
            ids.write("\n".join(wanted) + "\n")
        try:
            which = [file] if whole else [f"@{ids.name}"]
            env = {**os.environ, "FLEETCTL_NEW_EXAMPLES": "1"}
            code = subprocess.run([*argv, *which], cwd=ROOT, check=False, timeout=FILE_LIMIT_S, env=env).returncode
        except subprocess.TimeoutExpired:
            code = -1
        found = read_report(report, wanted)
    missing = [id_ for id_ in wanted if id_ not in {r.id for r in found}]
    why = f"pytest ended with {code} after {time.monotonic() - began:.0f} s before this test had a result"
    return found + [Result(id=id_, outcome="failed", seconds=0.0, text=why) for id_ in missing]


def read_report(report: Path, wanted: Sequence[str]) -> list[Result]:
    """Return the results in a JUnit report, under the ids that were collected."""
    if not report.exists():
        return []
    by_key = {_key(id_): id_ for id_ in wanted}
    found: dict[str, Result] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name, file = case.get("name", ""), case.get("file", "")
        inner = case.get("classname", "").removeprefix(file.removesuffix(".py").replace("/", ".")).lstrip(".")
        id_ = by_key.get((file, inner, name))
        if id_ is None:
            continue
        bad = next((e for e in case if e.tag in ("failure", "error")), None)
        skipped = next((e for e in case if e.tag == "skipped"), None)
        outcome = "failed" if bad is not None else "skipped" if skipped is not None else "passed"
        why = bad if bad is not None else skipped
        text = (why.get("message") or "")[:300] if why is not None else ""
        if id_ not in found or found[id_].outcome == "passed":
            found[id_] = Result(id=id_, outcome=outcome, seconds=float(case.get("time", "0")), text=text)
    return list(found.values())


def _key(id_: str) -> tuple[str, str, str]:
    file, *inner, name = id_.split("::", 2) if id_.count("::") > 1 and "[" not in id_.split("::")[1] else id_.split("::", 1)
    return file, ".".join(inner), name


def by_promise(results: Mapping[str, Result]) -> dict[str, dict[str, int]]:
    """Return the counts of each promise."""
    out = {}
    for promise, pattern in PROMISES.items():
        out[promise] = dict(Counter(r.outcome for id_, r in results.items() if re.search(pattern, id_)))
    return out


def of_promise(files: Mapping[str, Sequence[str]], name: str) -> dict[str, list[str]]:
    """Return the tests of one promise, such as "P3", by file; all where no name is given."""
    if not name:
        return {file: list(ids) for file, ids in files.items()}
    pattern = next((p for promise, p in PROMISES.items() if promise.split()[0] == name), None)
    if pattern is None:
        sys.exit(f"there is no promise {name}: {', '.join(p.split()[0] for p in PROMISES)}")
    chosen = {file: [id_ for id_ in ids if re.search(pattern, id_)] for file, ids in files.items()}
    return {file: ids for file, ids in chosen.items() if ids}


def show(results: Mapping[str, Result], files: Mapping[str, Sequence[str]]) -> None:
    """Print one row per file, one per promise, and every failure and skip."""
    print(f"\n{'FILE':<52} {'PASSED':>6} {'FAILED':>6} {'SKIPPED':>7} {'SECONDS':>8}")
    for file, ids in files.items():
        own = [results[i] for i in ids if i in results]
        n = Counter(r.outcome for r in own)
        print(f"{file:<52} {n['passed']:>6} {n['failed']:>6} {n['skipped']:>7} {sum(r.seconds for r in own):>8.1f}")
    print(f"\n{'PROMISE':<52} {'PASSED':>6} {'FAILED':>6} {'SKIPPED':>7}")
    for promise, counts in by_promise(results).items():
        print(f"{promise:<52} {counts.get('passed', 0):>6} {counts.get('failed', 0):>6} {counts.get('skipped', 0):>7}")
    for r in results.values():
        if r.outcome != "passed":
            print(f"{r.outcome}: {r.id}: {r.text.splitlines()[0] if r.text else ''}")


def _run_all(files: Mapping[str, Sequence[str]], results: dict[str, Result], path: Path, *, only_list: bool) -> None:
    """Run file by file what has not passed, and keep the results after each."""
    for file, ids in files.items():
        wanted = [i for i in ids if i not in results or results[i].outcome == "failed"]
        if only_list or not wanted:
            continue
        print(f"\n== {file}: {len(wanted)} of {len(ids)} tests", flush=True)
        results.update({r.id: r for r in run_file(file, wanted, whole=len(wanted) == len(ids))})
        keep(path, results)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is not yet passed at this state. Returns 0 where nothing failed, 1 else."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true", help="forget what was kept of this state")
    parser.add_argument("--list", action="store_true", help="show what was kept, run nothing")
    parser.add_argument("--promise", default="", metavar="P3", help="only the tests of this promise")
    parser.add_argument("paths", nargs="*", help="only these files or folders")
    args = parser.parse_args(argv)
    began, path = time.monotonic(), CACHE / f"{state_name()}.json"
    files = of_promise(collect(args.paths), args.promise)
    results = {} if args.again else read(path)
    try:
        _run_all(files, results, path, only_list=args.list)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on after the last whole file", file=sys.stderr)
        return 130
    chosen = {i: results[i] for ids in files.values() for i in ids if i in results}
    show(chosen, files)
    total = Counter(r.outcome for r in chosen.values())
    print(f"kept in {path.relative_to(ROOT)}")
    left = sum(len(ids) for ids in files.values()) - len(chosen)
    print(
        json.dumps(
            {
                "state": path.stem,
                "seconds": round(time.monotonic() - began, 1),
                "passed": total["passed"],
                "failed": total["failed"],
                "skipped": total["skipped"],
                "not_run": left,
                "promises": by_promise(chosen),
            }
        )
    )
    return 1 if total["failed"] or left else 0


if __name__ == "__main__":
    sys.exit(main())
