"""Composition root, evidence: the sources that the fleet file names, made into one source per cell. Never decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.adapters.engines.scrapes import Page
    from fleetctl.adapters.paired.runner import PairSpec
    from fleetctl.adapters.paired.stream import Side
    from fleetctl.adapters.prometheus.scrapes import Target
    from fleetctl.domain.evidence import Arm
    from fleetctl.domain.fleet import Connection, Fleet
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.records import Record
    from fleetctl.domain.units import Instant
    from fleetctl.domain.workload import Cell
    from fleetctl.formats.replay import ReplayRequest
    from fleetctl.ports.traffic import EvidenceSource, Scraper

from fleetctl.formats.evidence_sources import LOG, metrics_of
from fleetctl.formats.quantities import parse_duration

TABLE_ENGINES: Mapping[str, tuple[str, str]] = {"llama.cpp": ("llamacpp", ""), "emulated": ("vllm", "0.33.0")}
"""Engines of the fleet file whose series have another system's names; the lab's emulated engine writes vLLM's."""
_GUARDRAIL_SERIES = {"latency": "e2e_seconds", "ttft": "ttft_seconds", "token_time": "time_per_output_token_seconds"}


class EvidenceMaker:
    """Makes each source once per workspace; a cell with several gets them combined.

    Args:
        log_of: the source over a cell's router's log; pin_headers: what pins a request at a router to an arm.
        folder: private, for recordings and beginnings; workspace: what paths in the fleet file are relative to.
    """

    def __init__(
        self,
        fleet: Callable[[], Fleet],
        log_of: Callable[[CellId], EvidenceSource],
        pin_headers: Callable[[CellId, Arm], Mapping[str, str]],
        *,
        workspace: Path,
        folder: Callable[[], Path],
        now: Callable[[], Instant],
    ) -> None:
        self._fleet, self._log_of, self._pin_headers = fleet, log_of, pin_headers
        self._workspace, self._folder, self._now = workspace, folder, now
        self._named: dict[str, EvidenceSource] = {}
        self._cells: dict[CellId, EvidenceSource] = {}

    def of(self, c: CellId) -> EvidenceSource:
        """Return the source of a cell's evidence."""
        if c not in self._cells:
            names = self._fleet().cell(c).evidence
            if names == (LOG,):
                return self._log_of(c)
            from fleetctl.usecases.evidence import Combined, Replayed

            replay = next((n for n in names if self._kind(n) == "replay"), None)
            if replay is None:
                self._cells[c] = Combined({name: self._log_of(c) if name == LOG else self._source(name) for name in names})
            else:
                others = {name: self._source(name) for name in names if name not in (LOG, replay)}
                leading = Combined({replay: self._source(replay), **others}, tolerant=tuple(others)) if others else self._source(replay)
                self._cells[c] = Replayed(replay, leading, self._log_of(c))
        return self._cells[c]

    def check(self, c: CellId) -> None:
        """Refuse what would only show once customers are on the target: prompts or recordings that cannot be used.

        Raises:
            ConfigInvalid: config.prompts, config.replay, config.evidence.
        """
        self.of(c)
        for name in self._fleet().cell(c).evidence:
            if self._kind(name) == "replay":
                self._check_distinct(name, c, self._replay_spec(self._connection(name), c).requests)

    def _check_distinct(self, name: str, c: CellId, requests: Sequence[ReplayRequest]) -> None:
        """Refuse a recording of too few different requests. Raises ConfigInvalid (config.replay)."""
        import json

        from fleetctl.errors import ConfigInvalid
        from fleetctl.planning.evidence_need import distinct_needed, phases_for

        fleet = self._fleet()
        least = distinct_needed(phases_for(fleet.policy, fleet.workload(fleet.cell(c).workload)))
        different = len({json.dumps([r.path, r.body], sort_keys=True) for r in requests})
        if different < least:
            text = f"evidence {name} of {c} holds {different:,} different requests, and {least:,} are needed at the margins of its steps"
            raise ConfigInvalid(
                "config.replay", f"{text}: fewer, sent again and again, pass what they do not hold.", hint="Record for longer"
            )

    def _connection(self, name: str) -> Connection:
        return next(e for e in self._fleet().evidence if e.name == name)

    def _kind(self, name: str) -> str:
        return LOG if name == LOG else self._connection(name).kind

    def _source(self, name: str) -> EvidenceSource:
        if name not in self._named:
            connection = self._connection(name)
            makers = {
                "probes": self._probes,
                "replay": self._replay,
                "scrape": self._scrape,
                "prometheus": self._prometheus,
                "logs": self._logs,
                "recording": self._recording,
            }
            self._named[name] = makers[connection.kind](connection)
        return self._named[name]

    def _cells_of(self, name: str) -> tuple[Cell, ...]:
        return tuple(c for c in self._fleet().cells if name in c.evidence)

    def _slo(self, name: str) -> dict[CellId, float]:
        fleet = self._fleet()
        promised = ((c.id, fleet.workload(c.workload).slo.latency_ms) for c in self._cells_of(name))
        return {c: ms for c, ms in promised if ms is not None}

    def _path(self, text: str) -> Path:
        return self._workspace / text

    def _secret(self, connection: Connection, what: str) -> Callable[[], str] | None:
        from fleetctl.adapters.secrets.files import FileSecrets

        ref = connection.secrets.get(what)
        return (lambda: FileSecrets(self._workspace).resolve(ref)) if ref is not None else None

    def _recording(self, connection: Connection) -> EvidenceSource:
        from fleetctl.adapters.recording.evidence import RecordedEvidence

        place = self._path(connection.settings.get("path", ""))
        return RecordedEvidence(place, now=self._now, slo_latency_ms=self._slo(connection.name))

    def _logs(self, connection: Connection) -> EvidenceSource:
        from fleetctl.adapters.engine_logs import EngineLogs, Place
        from fleetctl.adapters.engine_logs.places import LogCommand, LogFile
        from fleetctl.domain.evidence import ARMS
        from fleetctl.formats.evidence_sources import argv_of

        s = connection.settings

        def places(c: CellId) -> list[Place]:
            out: list[Place] = []
            for arm in ARMS:
                out += [LogFile(arm, self._path(name)) for name in s.get(f"{arm}_files", "").split()]
                out += [LogCommand(arm, key, argv_of(text)) for key, text in sorted(s.items()) if key.startswith(f"{arm}_argv.")]
            return out

        return EngineLogs(places, now=self._now, every_s=parse_duration(s.get("every", "2s")).total_seconds())

    def _probes(self, connection: Connection) -> EvidenceSource:
        from fleetctl.adapters.paired.prompts import read_prompts
        from fleetctl.adapters.paired.runner import PairedProbes, PairSpec
        from fleetctl.adapters.recording.evidence import RecordedEvidence
        from fleetctl.adapters.recording.files import Recorder
        from fleetctl.usecases.evidence import Probed

        s = connection.settings
        prompts = read_prompts(self._path(s["prompts"])) if s.get("prompts") else ()

        def spec(c: CellId) -> PairSpec:
            cell = self._fleet().cell(c)
            workload = self._fleet().workload(cell.workload)
            return PairSpec(
                sides={"baseline": self._sides(cell, "baseline", s), "canary": self._sides(cell, "canary", s)},
                model=workload.model.name,
                models=(workload.model.name, *workload.adapters),
                api="completions" if s.get("api") == "completions" else "chat",
                per_s=float(s.get("pairs_per_s", 1)),
                max_tokens=int(float(s.get("max_tokens", 32))),
                limit_s=parse_duration(s.get("limit", "30s")).total_seconds(),
                prompts=prompts,
            )

        folder = self._folder() / "probes" / connection.name
        recorded = RecordedEvidence(folder, now=self._now, metrics=("ttft", "token_time", "nll"), may_begin=True, per_class=50)
        return Probed(PairedProbes(spec, Recorder(folder, needed=recorded.needed).add), recorded, least=int(float(s.get("least", 200))))

    def _replay(self, connection: Connection) -> EvidenceSource:
        from fleetctl.adapters.paired.runner import PairedProbes
        from fleetctl.adapters.recording.evidence import RecordedEvidence
        from fleetctl.adapters.recording.files import Recorder
        from fleetctl.errors import CredentialsMissing, EvidenceUnavailable
        from fleetctl.usecases.evidence import Probed

        known: dict[CellId, PairSpec] = {}

        def spec(c: CellId) -> PairSpec:
            if c not in known:
                try:
                    known[c] = self._replay_spec(connection, c)
                except CredentialsMissing as e:  # while customers are there a key that is gone is lost evidence, not the end of the tick
                    raise EvidenceUnavailable("evidence.down", e.message, hint=e.hint) from e
            if self._now().timestamp() >= known[c].until_s:
                text = f"the recorded requests of {c} have expired: nothing is replayed any more"
                raise EvidenceUnavailable("evidence.replay_expired", text, hint="Record again, or choose another lane")
            return known[c]

        folder = self._folder() / "replays" / connection.name
        recorded = RecordedEvidence(folder, now=self._now, slo_latency_ms=self._slo(connection.name), may_begin=True, per_class=50)
        recorder = Recorder(folder, needed=recorded.needed)
        return Probed(PairedProbes(spec, recorder.add), recorded, least=int(float(connection.settings.get("least", 200))))

    def _replay_spec(self, connection: Connection, c: CellId) -> PairSpec:
        """Return what is replayed for a cell, as fast as the workload's shadow allows. Raises ConfigInvalid (config.replay)."""
        from fleetctl.adapters.paired.replay import load_replay, read_opted_out
        from fleetctl.adapters.paired.runner import PairSpec

        s, cell = connection.settings, self._fleet().cell(c)
        workload = self._fleet().workload(cell.workload)
        key, out = self._secret(connection, "key"), self._path(s["opted_out"])
        replay = load_replay(self._path(s["recording"]), c, {cell.region, *cell.regions}, self._now(), key() if key else "", out)
        return PairSpec(
            sides={"baseline": self._sides(cell, "baseline", s), "canary": self._sides(cell, "canary", s)},
            model=workload.model.name,
            models=(workload.model.name, *workload.adapters),
            per_s=workload.shadow.sample_per_s if workload.shadow is not None else 1.0,
            max_tokens=int(float(s.get("max_tokens", 64))),
            limit_s=parse_duration(s.get("limit", "30s")).total_seconds(),
            requests=replay.requests,
            until_s=replay.header.expires.timestamp(),
            opted_out=lambda: read_opted_out(out),
        )

    def _sides(self, cell: Cell, arm: Arm, settings: Mapping[str, str]) -> tuple[Side, ...]:
        from urllib.parse import urlsplit

        from fleetctl.adapters.paired.stream import Side
        from fleetctl.adapters.routers.route import SERVER_HEADER
        from fleetctl.wiring.routers import PINNING

        router = self._fleet().router(cell.router.name)
        if settings.get("via") == "endpoints" or router.kind not in PINNING:
            found = (urlsplit(f"//{e}") for e in _endpoints(cell, arm))
            return tuple(Side(host=f.hostname or "", port=f.port or 80) for f in found)
        url = urlsplit(router.settings.get("url", ""))
        return (
            Side(
                host=url.hostname or "",
                port=url.port or (443 if url.scheme == "https" else 80),
                is_tls=url.scheme == "https",
                path=f"/{cell.id}",
                headers=self._pin_headers(cell.id, arm),
                server_header=SERVER_HEADER,
                server_starts="b" if arm == "baseline" else "c",
            ),
        )

    def _scrape(self, connection: Connection) -> EvidenceSource:
        from fleetctl.adapters.engines.scrapes import Page, PageScraper
        from fleetctl.catalog.metrics import load_metrics

        s = connection.settings

        def pages(cell: Cell) -> tuple[Page, ...]:
            return tuple(
                Page(arm=a, url=url, system=system, version=v, needs=needs) for a, url, system, v, needs in self._targets(cell, connection)
            )

        scraper = PageScraper(
            {c.id: pages(c) for c in self._cells_of(connection.name)},
            load_metrics(),
            self._folder() / "scrapes" / connection.name,
            now=self._now,
            every_s=parse_duration(s.get("every", "5s")).total_seconds(),
            ca_file=s.get("ca_file", ""),
            key=self._secret(connection, "key"),
        )
        return self._counters(scraper, connection)

    def _prometheus(self, connection: Connection) -> EvidenceSource:
        from fleetctl.adapters.prometheus.client import PrometheusApi
        from fleetctl.adapters.prometheus.scrapes import OwnCounter, PrometheusScraper, Target, checked_series
        from fleetctl.catalog.metrics import load_metrics
        from fleetctl.errors import ConfigInvalid

        s = connection.settings
        own = []
        for key, text in s.items():
            if key.startswith("counter."):
                events, _, everything = text.partition(" / ")
                try:
                    counter = OwnCounter(name=key.removeprefix("counter."), events=checked_series(events), of=checked_series(everything))
                except ValueError as e:
                    raise ConfigInvalid("config.evidence", f"evidence {connection.name}, {key}: {e}.", hint="Correct the fleet file") from e
                own.append(counter)

        def targets(cell: Cell) -> tuple[Target, ...]:
            rows = self._targets(cell, connection)
            return tuple(Target(arm=a, instance=url, system=system, version=v, needs=needs) for a, url, system, v, needs in rows)

        api = PrometheusApi(s.get("url", ""), token=self._secret(connection, "token"), ca_file=s.get("ca_file", ""), timeout_s=3.0, tries=1)
        scraper = PrometheusScraper(
            api,
            {c.id: targets(c) for c in self._cells_of(connection.name)},
            load_metrics(),
            now=self._now,
            label=s.get("label", "instance"),
            own=tuple(own),
            arm_label=s.get("arm_label", "arm"),
        )
        return self._counters(scraper, connection)

    def _counters(self, scraper: Scraper, connection: Connection) -> EvidenceSource:
        from fleetctl.usecases.evidence import CounterEvidence

        return CounterEvidence(
            scraper,
            now=self._now,
            settle_s=_settle_s(connection.settings),
            slo_latency_ms=self._slo(connection.name),
            leads=lambda c: self._leads(self._fleet().cell(c), connection),
        )

    @staticmethod
    def _leads(cell: Cell, connection: Connection) -> bool:
        return cell.evidence[0] == connection.name

    def _targets(self, cell: Cell, connection: Connection) -> list[tuple[Arm, str, str, str, tuple[str, ...]]]:
        """Return arm, address, system, version and needed metrics of everything that is scraped for a cell."""
        from fleetctl.domain.metrics import VENDOR_EXPORTERS
        from fleetctl.domain.workload import Existing

        fleet, s = self._fleet(), connection.settings
        workload = fleet.workload(cell.workload)
        usual = TABLE_ENGINES.get(workload.engine, (workload.engine, workload.engine_version))
        kinds = {e.name: e.kind for e in fleet.evidence if e.name != connection.name}
        others, _ = metrics_of(kinds, cell.evidence, streaming=workload.traffic.streaming)
        needs = tuple(_GUARDRAIL_SERIES[g] for g in workload.guardrails if g in _GUARDRAIL_SERIES and g not in others)
        if self._leads(cell, connection):
            needs = ("requests_total", "errors_total", *needs)
        target = cell.target.pool if isinstance(cell.target, Existing) else cell.target
        source_vendor = fleet.pool(cell.source).vendor
        target_vendor = fleet.pool(target).vendor if target is not None else ("amd" if source_vendor == "nvidia" else "nvidia")
        out: list[tuple[Arm, str, str, str, tuple[str, ...]]] = []
        arms: tuple[tuple[Arm, str], ...] = (("baseline", source_vendor), ("canary", target_vendor))
        for arm, vendor in arms:
            system = s.get(f"{arm}_engine", usual[0])
            version = s.get(f"{arm}_version", usual[1] or workload.engine_version)
            out += [(arm, url, system, version, needs) for url in _endpoints(cell, arm)]
            out += [(arm, url, VENDOR_EXPORTERS[vendor], "", ()) for url in s.get(f"{arm}_gpus", "").split()]
        return out


def _endpoints(cell: Cell, arm: Arm) -> tuple[str, ...]:
    return cell.router.baseline_endpoints if arm == "baseline" else cell.router.canary_endpoints


def _settle_s(settings: Mapping[str, str]) -> float:
    return parse_duration(settings.get("settle", "30s")).total_seconds()


def read_recording(place: Path) -> tuple[list[Record], tuple[str, ...]]:
    """Return the records of a file or of every file in a folder, and up to 10 sentences of what was wrong with lines.

    Raises:
        EvidenceUnavailable: evidence.down, what cannot be read.
    """
    from fleetctl.adapters.recording.files import records_of
    from fleetctl.adapters.routers.log import lines_between, log_files, parse
    from fleetctl.errors import EvidenceUnavailable

    found: list[Record] = []
    wrong: dict[str, int] = {}
    try:
        logs = list(log_files(place).values()) if place.is_dir() else []
        plain = sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
        for path in [*logs, *plain]:
            with path.open("rb") as f:
                is_log = path in logs or b'"srv"' in f.read(2_048).partition(b"\n")[0]
            if is_log:
                for line, _ in lines_between(path, 0, None):
                    attempt = parse(line)
                    if not isinstance(attempt, str):
                        found.append(attempt)
                    elif attempt not in ("other", "pinned"):
                        text = f"{path.name}: lines that are {attempt}"
                        wrong[text] = wrong.get(text, 0) + 1
                continue
            for _, record in records_of(path):
                if isinstance(record, str):
                    wrong[f"{path.name}: {record}"] = wrong.get(f"{path.name}: {record}", 0) + 1
                else:
                    found.append(record)
    except OSError as e:
        raise EvidenceUnavailable("evidence.down", f"{place} cannot be read: {e.strerror or e}.", hint="Check the path") from e
    return found, tuple(f"{text} ({n})" for text, n in list(wrong.items())[:10])
