"""Assess, adapter layer: OCI image layouts and `docker save` archives: configuration, and layers from the top. Never pulls, never runs.

A file that an upper layer replaced or removed is not looked at. Blobs whose digest is another than the manifest says are named.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from fleetctl.adapters.source_tree.archives import read_tar
from fleetctl.adapters.source_tree.blob import Blob
from fleetctl.adapters.source_tree.bounds import Bounds, OverBound, Spent
from fleetctl.adapters.source_tree.packed import Stream
from fleetctl.domain.portability import ImageFacts, Read, Skipped, TextFile

MOST_LAYERS = 200
MOST_IMAGES = 20
MOST_CONFIG = 4 * 2**20
SYSTEM = re.compile(
    r"(?:usr/(?:include|lib|lib64|libexec|share|bin|sbin|src/(?:linux|cudnn_samples|tensorrt|python)[^/]*)|lib|lib64|bin|sbin"
    r"|usr/local/(?:cuda[^/]*|lib/python[^/]*|share|include)"
    r"|opt/(?:conda|rocm[^/]*|nvidia|venv)|root/\.cache|var/(?:lib|cache)|proc|sys|boot|etc(?!/os-release))/"
)
DISTRIBUTION = re.compile(
    r"(?:^|/)(?:site|dist)-packages/[^/]+\.(?:dist-info/METADATA|egg-info/PKG-INFO)\Z|(?:^|/)var/lib/dpkg/status(?:\.d/[^/]+)?\Z"
    r"|(?:^|/)conda-meta/[^/]+\.json\Z"
)
PROGRAM = re.compile(
    r"(?:usr/)?s?bin/[^/.]+\Z|(?:usr/)?lib/lib[^/]+\.so[^/]*\Z|(?:^|.*/)lib(?:nvinfer|nvonnxparser|tensorrt)[^/]*\.so[^/]*\Z"
)
"""Programs and libraries where a person's own may lie among the system's (distributions have theirs a folder deeper), and TensorRT's."""
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")
Open = Callable[[str], Blob | None]


def read_layout(path: str, open_: Open, bounds: Bounds, spent: Spent) -> Iterator[Read]:
    """Yield what the images of an OCI layout say.

    Args:
        open_: gives the blob of a name inside the layout, such as "blobs/sha256/..."; None where there is none.
    """
    index = _json(open_("index.json"))
    seen = 0
    missing: list[str] = []
    for manifest in _manifests(index, open_, 0, missing):
        seen += 1
        yield from _image(path, manifest, _json(_blob(manifest.get("config"), open_)), open_, bounds, spent)
    if not seen:
        yield Skipped(path=path, reason="image layout: it names no image that is there", hides=True)
    elif missing:
        yield Skipped(path=path, reason=f"image layout: {len(missing)} of its images are not there", hides=True)


def _image(path: str, manifest: dict[str, Any], config: Any, open_: Open, bounds: Bounds, spent: Spent) -> Iterator[Read]:
    if isinstance(config, dict):
        yield _facts(path, config, ())
    else:
        yield Skipped(path=path, reason="image: its configuration is not there", hides=True)
    layers = [entry for entry in _list(manifest.get("layers")) if isinstance(entry, dict)]
    yield from _layers(path, [_blob(e, open_) for e in layers], [str(e.get("digest")) for e in layers], bounds, spent)


def read_saved(path: str, open_: Open, bounds: Bounds, spent: Spent) -> Iterator[Read]:
    """Yield what the images of a `docker save` archive say."""
    seen = 0
    for image in _list(_json(open_("manifest.json")))[:MOST_IMAGES]:
        if not isinstance(image, dict):
            continue
        seen += 1
        config = _json(open_(str(image.get("Config"))))
        if isinstance(config, dict):
            yield _facts(path, config, tuple(str(t) for t in _list(image.get("RepoTags")))[:10])
        else:
            yield Skipped(path=path, reason="image: its configuration is not there", hides=True)
        names = [str(n) for n in _list(image.get("Layers"))]
        digests = [f"sha256:{n.rpartition('/')[2]}" if n.startswith("blobs/sha256/") else "" for n in names]
        yield from _layers(path, [open_(n) for n in names], digests, bounds, spent)
    if not seen:
        yield Skipped(path=path, reason="image archive: it names no image", hides=True)


def _manifests(index: Any, open_: Open, depth: int, missing: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the manifests of images; those of a platform that the layout left out, and attestations, are no images of it."""
    for entry in _list(index.get("manifests") if isinstance(index, dict) else None)[:MOST_IMAGES]:
        found = _json(_blob(entry, open_))
        if not isinstance(found, dict):
            platform = entry.get("platform") if isinstance(entry, dict) else None
            if not isinstance(platform, dict) or platform.get("architecture") == "amd64":
                missing.append(str(entry)[:80])
        elif "manifests" in found and depth < 3:
            yield from _manifests(found, open_, depth + 1, missing)
        elif not _is_attestation(found):
            yield found


def _is_attestation(manifest: dict[str, Any]) -> bool:
    """Tell whether a manifest holds signatures or provenance and no files. Source: BuildKit's in-toto and cosign's media types."""
    types = [str(e.get("mediaType")) for e in _list(manifest.get("layers")) if isinstance(e, dict)]
    return bool(types) and all("in-toto" in t or "cosign" in t or "sbom" in t for t in types)


def _blob(descriptor: Any, open_: Open) -> Blob | None:
    digest = _DIGEST.match(str(descriptor.get("digest"))) if isinstance(descriptor, dict) else None
    return open_(f"blobs/sha256/{digest.group(1)}") if digest else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _json(blob: Blob | None) -> Any:
    if blob is None or blob.size > MOST_CONFIG:
        return None
    try:
        return json.loads(blob.read(0, MOST_CONFIG))
    except (ValueError, RecursionError):
        return None


def _facts(path: str, config: dict[str, Any], tags: tuple[str, ...]) -> ImageFacts:
    inner = config.get("config")
    settings = inner if isinstance(inner, dict) else {}
    env = tuple(str(e)[:2000] for e in _list(settings.get("Env")))[:500]
    labels = settings.get("Labels")
    base = [str(labels[k])[:300] for k in ("org.opencontainers.image.base.name",) if isinstance(labels, dict) and k in labels]
    values = dict(e.split("=", 1) for e in env if "=" in e)
    if "TRITON_SERVER_VERSION" in values:
        base.append(f"nvcr.io/nvidia/tritonserver:{values['TRITON_SERVER_VERSION'][:20]}")
    elif "NVIDIA_PYTORCH_VERSION" in values:
        base.append(f"nvcr.io/nvidia/pytorch:{values['NVIDIA_PYTORCH_VERSION'][:20]}")
    elif "CUDA_VERSION" in values or "NVIDIA_REQUIRE_CUDA" in values:
        base.append(f"nvidia/cuda:{values.get('CUDA_VERSION', '')[:20]}")
    command = tuple(str(c)[:2000] for c in (*_list(settings.get("Entrypoint")), *_list(settings.get("Cmd"))))[:200]
    return ImageFacts(path=path, env=env, command=command, base=(*tags, *base))


def _layers(path: str, blobs: list[Blob | None], digests: list[str], bounds: Bounds, spent: Spent) -> Iterator[Read]:
    seen: set[str] = set()
    hidden: set[str] = set()
    if not blobs:
        yield Skipped(path=path, reason="image: it has no layers", hides=True)
    if len(blobs) > MOST_LAYERS:
        yield Skipped(path=path, reason=f"image: more than {MOST_LAYERS} layers", hides=True)
    for blob, digest in list(zip(blobs, digests, strict=True))[-MOST_LAYERS:][::-1]:
        if blob is None:
            yield Skipped(path=path, reason="image: a layer is not there", hides=True)
            continue
        top = _Above(seen, hidden)
        yield from _layer(path, blob, digest, bounds, spent, top)
        seen |= top.mine
        hidden |= top.gone
        if len(seen) > bounds.members:
            yield Skipped(path=path, reason="image: too many files", hides=True)
            return


class _Above:
    """Tells of one layer's files which are to be looked at: not replaced or removed above, and not part of the system."""

    def __init__(self, seen: set[str], hidden: set[str]) -> None:
        self._seen, self._hidden = frozenset(seen), frozenset(hidden)
        self.mine: set[str] = set()
        self.gone: set[str] = set()

    def __call__(self, name: str) -> bool:
        folder, _, last = name.rpartition("/")
        if last.startswith(".wh."):
            self.gone.add(folder if last == ".wh..wh..opq" else f"{folder}/{last[4:]}".lstrip("/"))
            return False
        if name in self._seen or self._is_hidden(name):
            return False
        self.mine.add(name)
        return DISTRIBUTION.search(name) is not None or PROGRAM.match(name) is not None or not SYSTEM.match(name)

    def _is_hidden(self, name: str) -> bool:
        while name:
            if name in self._hidden:
                return True
            name = name.rpartition("/")[0]
        return False


def _layer(path: str, blob: Blob, digest: str, bounds: Bounds, spent: Spent, wanted: Callable[[str], bool]) -> Iterator[Read]:
    sum_ = hashlib.sha256()
    try:
        stream = Stream(blob, bounds, spent)
    except OverBound as e:
        yield Skipped(path=path, reason=f"layer: {e}", hides=True)
        return
    stream.watch_packed(sum_.update)
    for read in read_tar(path, stream, bounds, spent, wanted=wanted, system=lambda n: SYSTEM.match(n) is not None):
        if isinstance(read, TextFile) and read.path.endswith("!etc/os-release"):
            yield _release(read)
        else:
            yield read
    try:
        while stream.read(2**20):
            pass
    except OverBound as e:
        yield Skipped(path=path, reason=f"layer: {e}", hides=True)
        return
    if _DIGEST.match(digest) and f"sha256:{sum_.hexdigest()}" != digest:
        yield Skipped(path=path, reason="image: a layer's digest is another than the manifest says", hides=True)


def _release(read: TextFile) -> ImageFacts:
    values = dict(line.split("=", 1) for line in read.text.splitlines() if "=" in line)
    name, version = (values.get(k, "").strip("\"'")[:30] for k in ("ID", "VERSION_ID"))
    return ImageFacts(path=read.path, base=(f"{name}:{version}.",) if name and version else ())
