"""Lab, lab layer: a real language model, SmolLM2-135M served by llama.cpp (through xllamacpp). Never emulated; small, but real arithmetic.

Run as `python -m fleetctl.lab.llm --config <unit.json>`. The two sides differ by the type of their KV cache (f16 against q8_0), which gives
real numerical drift; the fault `kv_cache` makes the process start itself again with another type, the fault `crash` ends it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fleetctl.lab.faults import FaultsFile, faults_path
from fleetctl.lab.processes import is_port_free

CACHE_TYPES = {"f16": 1, "q4_0": 2, "q8_0": 8}
"""Numbers of ggml_type. Source: llama.cpp, ggml/include/ggml.h."""

FAULTS_EVERY_S = 0.2
EXIT_PORT_TAKEN = 75
EXIT_CRASH_FAULT = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmConfig:
    """What a unit file says to the real model.

    Args:
        port: on 127.0.0.1, above 0.
        model_path: the GGUF file.
        kv: type of the KV cache: f16, q8_0 or q4_0.
        threads: that compute, from 1.
        slots: requests computed at a time, from 1; context_tokens is shared by them.
        embeddings: also serve /v1/embeddings (the mean over a text's tokens).
    """

    port: int
    model: str
    model_path: Path
    kv: str
    threads: int = 1
    slots: int = 4
    context_tokens: int = 4096
    embeddings: bool = False

    @classmethod
    def read(cls, path: Path) -> LlmConfig:
        """Read the `config` part of a unit file; its numbers may be strings.

        Raises:
            ValueError: a missing key, an unknown cache type, or a model file that is not there.
        """
        config = json.loads(path.read_bytes())["config"]
        try:
            read = cls(
                port=int(config["port"]),
                model=str(config["model"]),
                model_path=Path(config["model_path"]),
                kv=str(config["kv"]),
                threads=int(config.get("threads", 1)),
                embeddings=config.get("embeddings", 0) in (1, "1", "true"),
            )
        except KeyError as e:
            raise ValueError(f"config has no {e.args[0]}") from None
        if read.kv not in CACHE_TYPES:
            raise ValueError(f"kv is {read.kv!r}, not one of {', '.join(CACHE_TYPES)}")
        if not read.model_path.is_file():
            raise ValueError(f"the model {read.model_path} is not there")
        return read


def _serve(config: LlmConfig, kv: str) -> object:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(config.model_path)
    params.model_alias = [config.model]
    params.hostnames = ["127.0.0.1"]
    params.port = config.port
    params.n_ctx = config.context_tokens
    params.n_parallel = config.slots
    params.n_batch = params.n_ubatch = 256
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config.threads
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type(CACHE_TYPES[kv])
    params.cache_ram_mib = 0
    if config.embeddings:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    params.n_threads_http = 4
    params.endpoint_metrics = True
    params.ui = False
    params.verbosity = 1
    return xllamacpp.Server(params)


def _leave(number: int, frame: FrameType | None) -> None:
    """End without the server's own tear-down, which can hang for over a minute while a request is being computed."""
    os._exit(0)


def _watch(faults: FaultsFile, kv: str, argv: list[str], stop: threading.Event) -> None:
    while not stop.wait(FAULTS_EVERY_S):
        if not faults.poll():
            continue
        if faults.current.crashes:
            os._exit(EXIT_CRASH_FAULT)
        if (faults.current.kv_cache or "") != kv:
            sys.stdout.write("fault kv_cache changed: this process starts itself again\n")
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, "-m", "fleetctl.lab.llm", *argv])  # noqa: S606 - argv, no shell


def main(argv: list[str]) -> int:
    """Serve for `--config <unit.json>` until SIGTERM. Returns an exit code."""
    if len(argv) != 2 or argv[0] != "--config":
        sys.stderr.write("usage: python -m fleetctl.lab.llm --config <unit.json>\n")
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    path = Path(argv[1])
    try:
        config = LlmConfig.read(path)
    except (OSError, ValueError, KeyError) as e:
        sys.stderr.write(f"{path} cannot be used: {e}\n")
        return 2
    if not is_port_free(config.port):
        sys.stderr.write(f"port {config.port} is taken\n")
        return EXIT_PORT_TAKEN
    faults = FaultsFile(faults_path(path))
    faults.poll()
    if faults.current.crashes:
        return EXIT_CRASH_FAULT
    fault_kv = faults.current.kv_cache
    server = _serve(config, fault_kv or config.kv)
    sys.stdout.write(f"llama.cpp serves {config.model} on 127.0.0.1:{config.port}, KV cache {fault_kv or config.kv}\n")
    sys.stdout.flush()
    _watch(faults, fault_kv, argv, threading.Event())
    del server
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
