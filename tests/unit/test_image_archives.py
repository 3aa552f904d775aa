"""Images in forms that tools write besides plain ones: zstd layers, archives compressed as a whole; what cannot be read is stated."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.adapters.source_tree import SourceTreeReader, packed
from fleetctl.adapters.source_tree.bounds import MIB, Bounds
from fleetctl.domain.portability import ImageFacts, Skipped, TextFile
from tests.cases.binaries import tar

zstandard = pytest.importorskip("zstandard", reason="zstandard is not installed: pip install 'fleetctl[images]'")
KERNEL = b"__global__ void k(float *v) { v[0] = 1; }\n"
BELOW = {"app/old.cu": KERNEL, "app/kept.cu": KERNEL}
ABOVE = {"app/.wh.old.cu": b"", "app/kept.cu": b"int new_one;\n"}
CONFIG = {"config": {"Env": ["CUDA_VERSION=12.4.1"]}}


def zstd(data: bytes) -> bytes:
    """Return two frames with a skippable one between and after, as tools write that let parts of a layer be fetched alone."""
    skippable = b"\x50\x2a\x4d\x18" + (64).to_bytes(4, "little") + bytes(64)
    half = len(data) // 2
    one, two = (zstandard.ZstdCompressor().compress(part) for part in (data[:half], data[half:]))
    return bytes(one + skippable + two + skippable)


def oci(pack: Callable[[bytes], bytes]) -> dict[str, bytes]:
    """Return the files of an OCI layout whose layers are packed so; the index last, as docker save writes it."""
    blobs: dict[str, bytes] = {}

    def blob(data: bytes) -> dict[str, object]:
        name = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{name}"] = data
        return {"digest": f"sha256:{name}", "size": len(data)}

    layers = [blob(pack(tar(members))) for members in (BELOW, ABOVE)]
    manifest = blob(json.dumps({"config": blob(json.dumps(CONFIG).encode()), "layers": layers}).encode())
    return {**blobs, "index.json": json.dumps({"manifests": [manifest]}).encode(), "oci-layout": b"{}"}


def saved() -> dict[str, bytes]:
    """Return the files of a `docker save` archive in the older form."""
    one, two = "a" * 64, "b" * 64
    manifest = [{"Config": "c.json", "RepoTags": ["vllm/vllm-openai:v0.9"], "Layers": [f"{one}/layer.tar", f"{two}/layer.tar"]}]
    files = {f"{one}/layer.tar": tar(BELOW), f"{two}/layer.tar": tar(ABOVE), "c.json": json.dumps(CONFIG).encode()}
    return {**files, "manifest.json": json.dumps(manifest).encode()}


def seen(path: Path, bounds: Bounds | None = None) -> tuple[dict[str, str], set[str], list[str]]:
    """Return texts by member, the bases that the configuration names, and what was skipped."""
    reads = list(SourceTreeReader(bounds).read(path))
    bases = {b for r in reads if isinstance(r, ImageFacts) for b in r.base}
    assert all(r.hides for r in reads if isinstance(r, Skipped))
    texts = {r.path.rpartition("!")[2]: r.text for r in reads if isinstance(r, TextFile)}
    return texts, bases, [r.reason for r in reads if isinstance(r, Skipped)]


EXPECTED: tuple[dict[str, str], set[str], list[str]] = ({"app/kept.cu": "int new_one;\n"}, {"nvidia/cuda:12.4.1"}, [])


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_layers_of_zstd_are_read(tmp_path: Path, kind: str) -> None:
    files = oci(zstd)
    path = tmp_path / "image.tar"
    path.write_bytes(tar(files))
    if kind == "folder":
        path = tmp_path / "image"
        for name, data in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
    assert seen(path) == EXPECTED


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd], ids=["gz", "bz2", "xz", "zst"])
@pytest.mark.parametrize("files", [oci(gzip.compress), saved()], ids=["oci", "saved"])
def test_an_image_archive_that_is_compressed_as_a_whole_is_read(
    tmp_path: Path, pack: Callable[[bytes], bytes], files: dict[str, bytes]
) -> None:
    path = tmp_path / "image"
    path.write_bytes(pack(tar(files)))
    texts, bases, skipped = seen(path)
    assert (texts, skipped) == (EXPECTED[0], [])
    assert "nvidia/cuda:12.4.1" in bases


def test_a_source_archive_of_zstd_is_read(tmp_path: Path) -> None:
    (tmp_path / "source.tar.zst").write_bytes(zstd(tar({"a/b.cu": KERNEL})))
    assert seen(tmp_path)[0] == {"a/b.cu": KERNEL.decode()}


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "find_spec", lambda name: None)
    (tmp_path / "image.tar").write_bytes(tar(oci(zstd)))
    texts, bases, skipped = seen(tmp_path / "image.tar")
    assert (texts, bases) == ({}, {"nvidia/cuda:12.4.1"})
    assert skipped == ["layer: compressed with zstd, which needs: pip install 'fleetctl[images]'"] * 2


def header_of_8_gib() -> bytes:
    """Return the header of a tar member that is said to hold 8 GiB."""
    head = tarfile.TarInfo("zeros.bin")
    head.size = 8 * 1024 * MIB - 1
    return head.tobuf()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (zstandard.ZstdCompressor(level=3).compress(header_of_8_gib() + bytes(90 * MIB)), "grows more than 100 times"),
        (b"\x28\xb5\x2f\xfd" + random.Random(5).randbytes(500), "damaged"),
        (b"\x28\xb5\x2f\xfd\x00\xf8" + bytes(50), "damaged"),  # asks for a window of 3.75 TiB
    ],
    ids=["bomb", "junk", "window"],
)
def test_zstd_that_lies_is_stated(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "x.tar.zst").write_bytes(data)
    texts, _, skipped = seen(tmp_path)
    assert texts == {}
    assert any(why in reason for reason in skipped) or skipped == ["archive: not a tar archive, or damaged"]


def test_a_packed_image_larger_than_is_kept_is_stated_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    path = tmp_path / "image.tar.gz"
    path.write_bytes(gzip.compress(tar({"blobs/sha256/x": os.urandom(3 * MIB), **oci(gzip.compress)})))
    texts, _, (why,) = seen(path, Bounds(unpacked_image=MIB))
    assert texts == {}
    assert why == "image archive: larger than 1 MiB unpacked: decompress it first"
    assert list((tmp_path / "scratch").iterdir()) == []
