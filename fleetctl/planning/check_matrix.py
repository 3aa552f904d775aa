"""Configure, pure layer: refuses what the matrix does not know before a change. Never I/O, never a default for an unknown value."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import date, timedelta
from difflib import get_close_matches

from fleetctl.domain.matrix import LAYERS, OF_THE_HOST, UNKNOWN, Matrix, NodeFacts, PackageRepository, Release, SigningKey, Wanted
from fleetctl.domain.people import Diagnostic
from fleetctl.domain.portability import TARGETS

EXPIRY_NOTICE = timedelta(days=90)
"""How long ahead the end of a key is told.

Source: AMD's key ended unannounced in 2019, 2021, 2023 and 2025 (ROCm/legacy-rocm-build #5268).
"""

_CDNA = re.compile(r"gfx9")
ZLUDA_REFUSAL = "ZLUDA cannot run on CDNA accelerators ({target}): its compiler emits 32-wide wavefronts only and CDNA runs 64-wide ones"
"""Source: vosen/ZLUDA docs/src/faq.md and ptx/src/pass/llvm/emit.rs."""


def check_matrix(matrix: Matrix, wanted: Wanted, today: date) -> tuple[Diagnostic, ...]:
    """Return everything that keeps a run from starting (errors) and what will soon (warnings); () is good.

    Args:
        today: key expiry is judged against it.
    """
    release = matrix.release(wanted.release)
    if release is None:
        known = ", ".join(r.id for r in matrix.releases)
        return (_error("matrix.release", "release", f"{wanted.release!r} is not a combination that the matrix knows; it knows: {known}"),)
    if wanted.vendor != release.vendor:
        return (_error("matrix.vendor", "vendor", f"the hosts are {wanted.vendor}'s, and {release.id} is for {release.vendor}'s"),)
    found = [*_layer(matrix, release, wanted), *_repositories(matrix, release, wanted, today), *_pins(release, wanted)]
    return tuple(found)


def check_platforms(matrix: Matrix, wanted: Wanted, platforms: Collection[str]) -> tuple[Diagnostic, ...]:
    """Refuse bare metal on a release that is for Azure's kernels: its guests' driver, devices and tuning are other ones. () is good."""
    release = matrix.release(wanted.release)
    if release is None or "bare-metal" not in platforms or release.kernel_flavour != "azure":
        return ()
    text = (
        f"{release.id} is for Azure guests; the shipped matrix has no release for bare metal. Put one into a matrix of your own "
        "(`matrix:` of the nodes file), with the kernel that your hosts run; docs/how-to/make-rocm-nodes.md says how"
    )
    return (_error("matrix.platform", "roles.host_tuning_platform", text),)


def check_node(release: Release, node: NodeFacts) -> tuple[Diagnostic, ...]:
    """Return why a node is not what the release is for; () is good."""
    found: list[Diagnostic] = []
    if (node.os, node.os_version) != (release.os, release.os_version):
        found.append(
            _error(
                "matrix.node",
                node.host,
                f"runs {node.os} {node.os_version}, and {release.id} is for {release.os} {release.os_version} only",
            )
        )
    series = ".".join(node.kernel.split(".")[:2])
    if release.kernel_series not in ("any", series):
        found.append(_error("matrix.node", node.host, f"runs kernel {node.kernel}, and {release.id} is for {release.kernel_series} only"))
    if release.kernel_flavour and not node.kernel.endswith("-" + release.kernel_flavour):
        found.append(_error("matrix.node", node.host, f"runs kernel {node.kernel}, which is not of the flavour {release.kernel_flavour}"))
    return tuple(found)


def release_variables(matrix: Matrix, wanted: Wanted) -> dict[str, object]:
    """Return the variables that the roles get from a release that `check_matrix` let pass."""
    release = matrix.release(wanted.release)
    if release is None:
        raise ValueError(wanted.release)
    repositories: list[dict[str, object]] = []
    for r in release.repositories:
        key = matrix.key(r.key)
        uri = _uri(release, r, wanted)
        if key is not None and uri != OF_THE_HOST:
            row: dict[str, object] = {"name": r.name, "uri": uri, "suite": r.suite, "components": r.components}
            repositories.append(row | {"fingerprint": key.fingerprint})
    found: dict[str, object] = {
        "preflight_release": release.id,
        "preflight_os": release.os,
        "preflight_os_version": release.os_version,
        "preflight_kernel_series": release.kernel_series,
        "preflight_kernel_flavour": release.kernel_flavour,
        "preflight_kernel_packages": [*release.kernel_packages],
        "apt_ready_repositories": repositories,
        "kernel_pin_packages": _packages(release.kernel_packages),
        "node_manifest_release": release.id,
        "node_manifest_packages": [*release.kernel_packages, *release.driver_packages, *release.rocm_packages],
        "node_manifest_made_of": _made_of(release, wanted),
        **_image_variables(release, wanted),
    }
    if release.vendor == "nvidia":
        return found | {"nvidia_driver_packages": _packages(release.driver_packages), "model_server_vendor": "nvidia"}
    download = matrix.download(wanted.layer)
    return found | {
        "amdgpu_driver_packages": _packages(release.driver_packages),
        "rocm_packages": _packages(release.rocm_packages),
        "rocm_target": wanted.gpu_target,
        "translation_layer_kind": wanted.layer,
        "translation_layer_target": wanted.gpu_target,
        "translation_layer_licence_accepted": wanted.layer in wanted.accepted_licences,
        "translation_layer_url": download.url if download else "",
        "translation_layer_sha256": download.sha256 if download else "",
    }


def keys_of(matrix: Matrix, wanted: Wanted, keys: Mapping[str, str]) -> dict[str, str]:
    """Return armoured keys by name of repository too, from keys by the name of a key: two repositories may be signed by one."""
    release = matrix.release(wanted.release)
    return {**keys, **{r.name: keys[r.key] for r in (release.repositories if release else ()) if r.key in keys}}


def _uri(release: Release, repository: PackageRepository, wanted: Wanted) -> str:
    """Return where a repository's packages are fetched from: its mirror, where there is one."""
    one = wanted.mirror if len(release.repositories) == 1 else ""
    return wanted.mirrors.get(repository.name, one or repository.uri)


def _image_variables(release: Release, wanted: Wanted) -> dict[str, object]:
    """Return the image that is pulled and that servers in containers run in: the one that the node's manifest states."""
    if not wanted.container or not release.image_digest.startswith("sha256:"):
        return {}
    image = f"{full_name(release.image)}@{release.image_digest}"
    return {"container_engine_images": [image], "model_server_image": image}


def full_name(image: str) -> str:
    """Return an image's name with its registry and without its tag: engines take a digest or a tag, and podman asks for the registry.

    Source: distribution/reference, normalize.go: a first part without '.' and ':' that is not localhost is a part of docker.io's names.
    """
    name, _, tag = image.rpartition(":")
    name = image if not name or "/" in tag else name
    first, _, rest = name.partition("/")
    if rest and ("." in first or ":" in first or first == "localhost"):
        return name
    return f"docker.io/{name}" if rest else f"docker.io/library/{name}"


def _made_of(release: Release, wanted: Wanted) -> dict[str, str]:
    image = {"image": release.image, "image_digest": release.image_digest} if wanted.container else {}
    layer = {"layer": wanted.layer} if release.vendor == "amd" else {}
    return {"driver": release.driver, "rocm": release.rocm, **layer, **image}


def _packages(versions: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "version": "" if version == "newest" else version} for name, version in versions.items()]


def _layer(matrix: Matrix, release: Release, wanted: Wanted) -> Iterator[Diagnostic]:
    if release.vendor != "amd":
        return
    if wanted.layer not in LAYERS:
        yield _error("matrix.layer", "layer", f"{wanted.layer!r} is none of {', '.join(LAYERS)}")
        return
    if wanted.gpu_target not in TARGETS:
        near = get_close_matches(wanted.gpu_target, TARGETS, n=1)
        text = f"{wanted.gpu_target!r} is no architecture of AMD's" + (f"; the nearest is {near[0]}" if near else "")
        yield _error("matrix.target", "gpu_target", f"{text}. An MI300X is a gfx942")
        return
    if wanted.layer == "zluda" and _CDNA.match(wanted.gpu_target):
        yield _error("matrix.layer", "layer", ZLUDA_REFUSAL.format(target=wanted.gpu_target) + "; take native, hip or scale")
        return
    if wanted.layer not in release.layers:
        offered = ", ".join(release.layers) or "none"
        yield _error("matrix.layer", "layer", f"{wanted.layer} is not known to work with {release.id}; known: {offered}")
    if wanted.layer == "scale" and "scale" not in wanted.accepted_licences:
        text = "SCALE's free licence forbids commercial use, outputs included; nobody has accepted a licence on record"
        yield _error("matrix.layer", "layer", f"{text}. Put accepted_licences: [scale] into the nodes file")
    download = matrix.download(wanted.layer)
    if download is not None:
        if download.url == UNKNOWN:
            yield _unknown(f"downloads.{download.name}", "url")
        if download.sha256 == UNKNOWN:
            yield _unknown(f"downloads.{download.name}", "sha256")


def _repositories(matrix: Matrix, release: Release, wanted: Wanted, today: date) -> Iterator[Diagnostic]:
    names = [r.name for r in release.repositories]
    if wanted.mirror and len(names) > 1:
        text = f"{release.id} has {len(names)} repositories; give a mirror of each by name: {', '.join(f'{n}: ...' for n in names)}"
        yield _error("matrix.mirror", "mirror", text)
    for name in sorted(set(wanted.mirrors) - set(names)):
        yield _error("matrix.mirror", f"mirror.{name}", f"{release.id} has no such repository; it has: {', '.join(names)}")
    for r in release.repositories:
        if _uri(release, r, wanted) == UNKNOWN:
            yield _unknown(f"releases.{release.id}", f"repositories.{r.name}")
    for name in dict.fromkeys(r.key for r in release.repositories):
        yield from _key(matrix, release, name, today)


def _key(matrix: Matrix, release: Release, name: str, today: date) -> Iterator[Diagnostic]:
    key = matrix.key(name)
    if key is None:
        yield _error("matrix.key", "key", f"{release.id} names the key {name!r}, which the matrix does not have")
        return
    if key.fingerprint == OF_THE_HOST:
        return
    if key.fingerprint == UNKNOWN:
        yield _unknown(f"keys.{key.name}", "fingerprint")
    yield from _expiry(key, today)


def _expiry(key: SigningKey, today: date) -> Iterator[Diagnostic]:
    if key.expires == UNKNOWN:
        yield _unknown(f"keys.{key.name}", "expires")
    elif key.expires != "never":
        left = date.fromisoformat(key.expires) - today
        if left <= timedelta(0):
            yield _error("matrix.key_expired", f"keys.{key.name}", f"the key has expired on {key.expires}; pin the renewed one")
        elif left <= EXPIRY_NOTICE:
            text = f"the key expires on {key.expires}, in {left.days} days; pin the renewed one before"
            yield Diagnostic(severity="warning", code="matrix.key_expires", path=f"keys.{key.name}", text=text)


def _pins(release: Release, wanted: Wanted) -> Iterator[Diagnostic]:
    for packages in (release.kernel_packages, release.driver_packages, release.rocm_packages):
        for name, version in packages.items():
            if version == UNKNOWN:
                yield _unknown(f"releases.{release.id}", f"packages.{name}")
    if wanted.container:
        if release.image == UNKNOWN:
            yield _unknown(f"releases.{release.id}", "image")
        if release.image_digest == UNKNOWN:
            yield _unknown(f"releases.{release.id}", "image_digest")


def _unknown(where: str, field: str) -> Diagnostic:
    return _error(
        "matrix.unknown_value",
        f"{where}.{field}",
        f"no source gives this value. Read it from the vendor and put it into pins of the nodes file: {where}: {{{field}: ...}}",
    )


def _error(code: str, path: str, text: str) -> Diagnostic:
    return Diagnostic(severity="error", code=code, path=path, text=text)
