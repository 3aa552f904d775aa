"""Lab, lab layer: counts of the emulated engine under vLLM's metric names and bucket bounds. Never a measurement of a real engine."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

TTFT_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)
TOKEN_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
REQUEST_BOUNDS = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
"""Bucket bounds in seconds. Source: vllm 0.33.0, vllm/v1/metrics/buckets.py and loggers.py (2026-11-30)."""

FINISHED_REASONS = ("stop", "length", "abort", "error")


def length_bounds(max_model_len: int) -> tuple[float, ...]:
    """Return the 1-2-5 series up to `max_model_len` tokens. Source: vllm 0.33.0, as above."""
    out: list[float] = []
    scale = 1
    while scale <= max_model_len:
        out += [m * scale for m in (1, 2, 5) if m * scale <= max_model_len]
        scale *= 10
    return tuple(out)


class Histogram:
    """A cumulative histogram with fixed upper bounds."""

    def __init__(self, name: str, bounds: Sequence[float]) -> None:
        self.name = name
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value` (in the metric's unit) `times` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def lines(self, labels: str) -> Iterator[tuple[str, float]]:
        """Yield sample name with labels and its value."""
        total = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            total += count
            edge = "+Inf" if bound is None else repr(float(bound))
            yield f'{self.name}_bucket{{{labels},le="{edge}"}}', total
        yield f"{self.name}_count{{{labels}}}", total
        yield f"{self.name}_sum{{{labels}}}", self._sum


class EngineMetrics:
    """All that the emulated engine counts.

    Args:
        model: label model_name.
        max_model_len: tokens; bounds of the length histograms depend on it.
    """

    def __init__(self, model: str, max_model_len: int) -> None:
        escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        self._labels = f'model_name="{escaped}",engine="0"'
        self.running = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.finished = dict.fromkeys(FINISHED_REASONS, 0)
        self._ttft = Histogram("vllm:time_to_first_token_seconds", TTFT_BOUNDS)
        self._gap = Histogram("vllm:inter_token_latency_seconds", TOKEN_BOUNDS)
        self._mean_gap = Histogram("vllm:request_time_per_output_token_seconds", TOKEN_BOUNDS)
        self._whole = Histogram("vllm:e2e_request_latency_seconds", REQUEST_BOUNDS)
        self._queue = Histogram("vllm:request_queue_time_seconds", REQUEST_BOUNDS)
        self._inference = Histogram("vllm:request_inference_time_seconds", REQUEST_BOUNDS)
        self._prefill = Histogram("vllm:request_prefill_time_seconds", REQUEST_BOUNDS)
        self._decode = Histogram("vllm:request_decode_time_seconds", REQUEST_BOUNDS)
        self._prompt = Histogram("vllm:request_prompt_tokens", length_bounds(max_model_len))
        self._generation = Histogram("vllm:request_generation_tokens", length_bounds(max_model_len))

    def finish(self, *, reason: str, prompt: int, cached: int, generated: int, ttft_s: float, whole_s: float) -> None:
        """Count one finished request; times in seconds from arrival, lengths in tokens. Failed ones count no latency."""
        self.finished[reason] += 1
        if reason in ("abort", "error"):
            return
        self.prompt_tokens += prompt
        self.cached_tokens += cached
        self.generation_tokens += generated
        decode = max(0.0, whole_s - ttft_s)
        self._ttft.observe(ttft_s)
        if generated > 1:
            gap = decode / (generated - 1)
            self._gap.observe(gap, generated - 1)
            self._mean_gap.observe(gap)
        self._whole.observe(whole_s)
        self._queue.observe(0.0)
        self._inference.observe(whole_s)
        self._prefill.observe(ttft_s)
        self._decode.observe(decode)
        self._prompt.observe(prompt)
        self._generation.observe(generated)

    def render(self, *, nan: bool = False) -> str:
        """Return the Prometheus text; with `nan` every value is NaN (the fault)."""
        out: list[str] = []
        for name, kind, samples in self._families():
            out.append(f"# HELP {name} emulated, under vLLM's name.\n# TYPE {name} {kind}\n")
            out += (f"{sample} {'NaN' if nan else repr(float(value))}\n" for sample, value in samples)
        return "".join(out)

    def _families(self) -> Iterator[tuple[str, str, list[tuple[str, float]]]]:
        lab = self._labels
        for name, value in (
            ("vllm:num_requests_running", float(self.running)),
            ("vllm:num_requests_waiting", 0.0),
            ("vllm:kv_cache_usage_perc", min(1.0, self.running / 256)),
        ):
            yield name, "gauge", [(f"{name}{{{lab}}}", value)]
        for name, value in (
            ("vllm:prompt_tokens", self.prompt_tokens),
            ("vllm:prompt_tokens_cached", self.cached_tokens),
            ("vllm:generation_tokens", self.generation_tokens),
            ("vllm:prefix_cache_queries", self.prompt_tokens),
            ("vllm:prefix_cache_hits", self.cached_tokens),
            ("vllm:num_preemptions", 0),
        ):
            yield f"{name}_total", "counter", [(f"{name}_total{{{lab}}}", value)]
        name = "vllm:request_success_total"
        yield name, "counter", [(f'{name}{{{lab},finished_reason="{reason}"}}', n) for reason, n in self.finished.items()]
        for h in (self._ttft, self._gap, self._mean_gap, self._whole, self._queue, self._inference, self._prefill, self._decode):
            yield h.name, "histogram", list(h.lines(lab))
        for h in (self._prompt, self._generation):
            yield h.name, "histogram", list(h.lines(lab))
