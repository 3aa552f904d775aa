"""The version matrix: what is unknown is refused with how to fill it, keys are looked at 90 days ahead, ZLUDA never runs on CDNA."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from importlib.resources import files

import pytest

from fleetctl.catalog.matrix import load_matrix, parse_matrix
from fleetctl.domain.ids import HostId
from fleetctl.domain.matrix import LAYERS, Layer, Matrix, NodeFacts, Release, Wanted
from fleetctl.domain.pool import Vendor
from fleetctl.errors import ConfigInvalid
from fleetctl.planning.check_matrix import check_matrix, check_node, check_platforms, full_name, keys_of, release_variables
from fleetctl.planning.matrix_pins import Pins, with_pins

TODAY = date(2026, 11, 30)
RELEASE = "amdgpu-30.30.3-rocm-7.2-ubuntu-24.04"
AMD = "https://repo.radeon.com"
PINS: Pins = {
    "keys.amd-rocm": {"fingerprint": "AB" * 20, "expires": "2027-08-31"},
    f"releases.{RELEASE}": {
        "image_digest": "sha256:" + "0" * 64,
        "packages.amdgpu-dkms": "1:6.16.6-1",
        "packages.rocminfo": "1.0",
        "packages.amd-smi-lib": "1.0",
        "packages.linux-image-azure-6.8": "6.8.0-1059.65",
        "packages.linux-headers-azure-6.8": "6.8.0-1059.65",
        "packages.linux-modules-extra-azure-6.8": "6.8.0-1059.65",
    },
}


def wanted(layer: Layer = "native", release: str = RELEASE, target: str = "gfx942", *licences: str) -> Wanted:
    return Wanted(release=release, layer=layer, gpu_target=target, accepted_licences=licences)


def pinned() -> Matrix:
    matrix, faults = with_pins(load_matrix(), PINS)
    assert faults == ()
    return matrix


def test_every_row_has_source_and_date_and_no_checksum_is_invented() -> None:
    matrix = load_matrix()
    assert all(k.source and k.as_of for k in matrix.keys)
    assert all(d.source and d.as_of for d in matrix.downloads)
    assert all(r.source and r.as_of for r in matrix.releases)
    assert {d.sha256 for d in matrix.downloads} == {"unknown"}
    assert {k.fingerprint for k in matrix.keys} == {"unknown", "of-the-host"}


def test_what_no_source_gives_is_refused_and_the_text_says_how_to_fill_it() -> None:
    found = check_matrix(load_matrix(), wanted(), TODAY)
    assert {d.severity for d in found} == {"error"}
    assert {d.code for d in found} == {"matrix.unknown_value"}
    assert {d.path for d in found} == {f"{where}.{field}" for where, of in PINS.items() for field in of}
    assert all("pins of the nodes file" in d.text for d in found)


def test_pins_make_a_release_whole_and_it_becomes_role_variables() -> None:
    matrix = pinned()
    assert check_matrix(matrix, wanted(), TODAY) == ()
    made = release_variables(matrix, wanted())
    assert made["amdgpu_driver_packages"] == [{"name": "amdgpu-dkms", "version": "1:6.16.6-1"}]
    assert made["apt_ready_repositories"] == [
        {"name": name, "uri": uri, "suite": "noble", "components": "main", "fingerprint": "AB" * 20}
        for name, uri in (("amdgpu", f"{AMD}/amdgpu/30.30.3/ubuntu"), ("rocm", f"{AMD}/rocm/apt/7.2"))
    ]
    assert keys_of(matrix, wanted(), {"amd-rocm": "K", "own": "O"}) == {"amd-rocm": "K", "own": "O", "amdgpu": "K", "rocm": "K"}


def test_bare_metal_is_refused_on_releases_for_azures_guests_and_a_matrix_of_ones_own_may_have_it() -> None:
    for release in (r for r in load_matrix().releases if r.kernel_flavour == "azure"):
        (found,) = check_platforms(load_matrix(), wanted(release=release.id), {"bare-metal", "azure-guest"})
        assert (found.severity, found.code) == ("error", "matrix.platform")
        assert "matrix of your own" in found.text
    assert check_platforms(load_matrix(), wanted(), {"azure-guest"}) == ()
    own = replace(load_matrix(), releases=tuple(replace(r, kernel_flavour="generic") for r in load_matrix().releases))
    assert check_platforms(own, wanted(), {"bare-metal"}) == ()


def test_each_repository_has_a_mirror_of_its_own() -> None:
    matrix = pinned()
    both = replace(wanted(), mirrors={"amdgpu": "http://10.0.0.1/driver", "rocm": "http://10.0.0.1/rocm"})
    assert check_matrix(matrix, both, TODAY) == ()
    made = release_variables(matrix, both)["apt_ready_repositories"]
    assert isinstance(made, list)
    assert [r["uri"] for r in made] == ["http://10.0.0.1/driver", "http://10.0.0.1/rocm"]
    for wrong in (replace(wanted(), mirror="http://10.0.0.1/apt"), replace(wanted(), mirrors={"standin": "http://10.0.0.1"})):
        (found,) = check_matrix(matrix, wrong, TODAY)
        assert (found.severity, found.code) == ("error", "matrix.mirror")
        assert "amdgpu" in found.text


def test_a_matrix_of_ones_own_may_name_one_repository_or_a_list_and_one_mirror_then_is_enough() -> None:
    data = json.loads((files("fleetctl.catalog") / "data" / "matrix.json").read_text("utf-8"))
    row = next(r for r in data["releases"] if r["id"] == RELEASE)
    del row["repositories"]
    row |= {"repository": "unknown", "suite": "noble", "components": "main", "key": "amd-rocm"}
    own = parse_matrix(json.dumps(data), "mine.json")
    assert "repositories.amd-rocm" in {d.path.rpartition(f"{RELEASE}.")[2] for d in check_matrix(own, wanted(), TODAY)}
    filled, faults = with_pins(
        own, {**PINS, f"releases.{RELEASE}": {**PINS[f"releases.{RELEASE}"], "repositories.amd-rocm": "https://a.example"}}
    )
    assert (faults, check_matrix(filled, wanted(), TODAY)) == ((), ())
    mirrored = release_variables(filled, replace(wanted(), mirror="http://10.0.0.1/apt"))["apt_ready_repositories"]
    assert isinstance(mirrored, list)
    assert [(r["name"], r["uri"]) for r in mirrored] == [("amd-rocm", "http://10.0.0.1/apt")]
    row |= {"repositories": [{"name": "../x", "uri": "u", "suite": "s", "components": "c", "key": "amd-rocm"}]}
    with pytest.raises(ConfigInvalid):
        parse_matrix(json.dumps(data), "mine.json")


def test_each_ubuntu_release_with_a_driver_has_image_headers_and_more_modules_of_one_track_and_two_repositories() -> None:
    found = [r for r in load_matrix().releases if r.os == "ubuntu" and r.driver_packages]
    assert len(found) >= 3
    for r in found:
        track = f"{r.kernel_flavour}-{r.kernel_series}"
        assert set(r.kernel_packages) == {f"linux-{kind}-{track}" for kind in ("image", "headers", "modules-extra")}, r.id
        assert len({p.uri for p in r.repositories}) >= 2, "AMD ships its driver and ROCm from two repositories"
        assert any(r.driver in p.uri for p in r.repositories), r.id
        assert any(r.rocm in p.uri for p in r.repositories), r.id


@pytest.mark.parametrize(
    ("pins", "path"),
    [
        ({"keys.amd-rocm": {"fingerprint": "ab" * 20}}, "keys.amd-rocm.fingerprint"),
        ({"keys.amd-rocm": {"expires": "2027-13-01"}}, "keys.amd-rocm.expires"),
        ({"downloads.scale-1.7.1": {"sha256": "0" * 63}}, "downloads.scale-1.7.1.sha256"),
        ({"downloads.scale-1.7.1": {"url": "http://plain.example"}}, "downloads.scale-1.7.1.url"),
        ({"downloads.scale-1.7.1": {"version": "2"}}, "downloads.scale-1.7.1.version"),
        ({f"releases.{RELEASE}": {"driver": "31.60"}}, f"releases.{RELEASE}.driver"),
        ({f"releases.{RELEASE}": {"packages.rocminfo": "1; id"}}, f"releases.{RELEASE}.packages.rocminfo"),
        ({f"releases.{RELEASE}": {"packages.other": "1"}}, f"releases.{RELEASE}.packages.other"),
        ({f"releases.{RELEASE}": {"image": "other/image:1"}}, f"releases.{RELEASE}.image"),
        ({"releases.none": {"image": "x"}}, "releases.none"),
    ],
)
def test_a_pin_that_is_none_is_refused(pins: Pins, path: str) -> None:
    _, faults = with_pins(load_matrix(), pins)
    assert [(f.code, f.path) for f in faults] == [("matrix.pin", path)]


def test_an_unknown_combination_is_refused_and_the_known_ones_are_named() -> None:
    (found,) = check_matrix(load_matrix(), wanted(release="amdgpu-99-rocm-1-ubuntu-30.04"), TODAY)
    assert (found.severity, found.code) == ("error", "matrix.release")
    assert RELEASE in found.text


@pytest.mark.parametrize(
    ("today", "severity", "code"),
    [
        (date(2027, 6, 1), None, None),  # 91 days
        (date(2027, 6, 2), "warning", "matrix.key_expires"),  # 90 days
        (date(2027, 8, 30), "warning", "matrix.key_expires"),
        (date(2027, 8, 31), "error", "matrix.key_expired"),
        (date(2028, 1, 1), "error", "matrix.key_expired"),
    ],
)
def test_a_key_is_looked_at_90_days_ahead(today: date, severity: str | None, code: str | None) -> None:
    found = check_matrix(pinned(), wanted(), today)
    assert [(d.severity, d.code) for d in found] == ([] if severity is None else [(severity, code)])


@pytest.mark.parametrize("target", ["gfx942", "gfx90a", "gfx950"])
def test_zluda_is_refused_on_cdna_with_the_reason(target: str) -> None:
    found = check_matrix(pinned(), wanted("zluda", RELEASE, target), TODAY)
    assert [d.code for d in found] == ["matrix.layer"]
    assert "64-wide" in found[0].text


def test_zluda_on_rdna_and_scale_need_their_checksum_and_scale_a_licence() -> None:
    on_rdna = check_matrix(pinned(), wanted("zluda", RELEASE, "gfx1100"), TODAY)
    assert {d.path for d in on_rdna} == {"downloads.zluda-6.url", "downloads.zluda-6.sha256"}
    scale = check_matrix(pinned(), wanted("scale"), TODAY)
    assert [d.code for d in scale] == ["matrix.layer", "matrix.unknown_value", "matrix.unknown_value"]
    assert "licence" in scale[0].text
    assert [d.code for d in check_matrix(pinned(), wanted("scale", RELEASE, "gfx942", "scale"), TODAY)] == ["matrix.unknown_value"] * 2


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("release", load_matrix().releases, ids=lambda r: r.id)
def test_a_layer_that_a_release_does_not_offer_is_refused_whatever_it_is(release: Release, layer: Layer, target: str) -> None:
    asked = replace(wanted(layer, release.id, target, *LAYERS), vendor=release.vendor)
    refused = [d for d in check_matrix(load_matrix(), asked, TODAY) if d.code == "matrix.layer"]
    offered = layer in release.layers and not (layer == "zluda" and target == "gfx942")
    assert bool(refused) == (release.vendor == "amd" and not offered)


def test_a_release_is_whole_where_nothing_of_it_is_unknown() -> None:
    assert check_matrix(load_matrix(), wanted("hip", "debian-13-rocm-6.1.2"), TODAY) == ()


@pytest.mark.parametrize("target", ["", "gfx9999", "gfx94", "GFX942", "sm_90", "gfx942; id", "gfx942:xnack+"])
@pytest.mark.parametrize("layer", LAYERS)
def test_an_architecture_that_is_none_is_refused(layer: Layer, target: str) -> None:
    found = check_matrix(pinned(), wanted(layer, RELEASE, target, "scale"), TODAY)
    assert [(d.code, d.path) for d in found] == [("matrix.target", "gpu_target")]
    assert "gfx942" in found[0].text


@pytest.mark.parametrize("release", load_matrix().releases, ids=lambda r: r.id)
def test_hosts_of_the_other_vendor_are_refused(release: Release) -> None:
    other: Vendor = "nvidia" if release.vendor == "amd" else "amd"
    found = check_matrix(load_matrix(), replace(wanted(release=release.id), vendor=other), TODAY)
    assert [(d.code, d.path) for d in found] == [("matrix.vendor", "vendor")]


@pytest.mark.parametrize(
    ("os", "version", "kernel", "faults"),
    [
        ("ubuntu", "24.04", "6.8.0-1017-azure", 0),
        ("ubuntu", "22.04", "6.8.0-1017-azure", 1),
        ("ubuntu", "24.04", "6.11.0-1017-azure", 1),
        ("ubuntu", "24.04", "6.8.0-51-generic", 1),
        ("debian", "12", "6.1.0-30-amd64", 3),
    ],
)
def test_a_node_is_held_against_its_release(os: str, version: str, kernel: str, faults: int) -> None:
    release = load_matrix().release(RELEASE)
    assert release is not None
    found = check_node(release, NodeFacts(host=HostId("h"), os=os, os_version=version, kernel=kernel))
    assert len(found) == faults
    assert all(d.code == "matrix.node" for d in found)


@pytest.mark.parametrize("kernel", ["6.8.0-1017-azure", "6.17.0-1008-azure", "6.8.0-1030-aws", "5.15.0-1089-azure", "6.8.0-51-generic"])
@pytest.mark.parametrize("version", ["22.04", "24.04"])
def test_a_release_that_leaves_the_driver_alone_takes_every_kernel(version: str, kernel: str) -> None:
    release = load_matrix().release(f"nvidia-present-ubuntu-{version}")
    assert release is not None
    assert check_node(release, NodeFacts(host=HostId("h"), os="ubuntu", os_version=version, kernel=kernel)) == ()
    made = release_variables(load_matrix(), replace(wanted(release=release.id), vendor="nvidia"))
    assert (made["preflight_kernel_series"], made["preflight_kernel_flavour"], made["kernel_pin_packages"]) == ("any", "", [])
    assert made["model_server_vendor"] == "nvidia"


def test_only_a_release_that_brings_a_driver_asks_for_a_kernel() -> None:
    asking = [r for r in load_matrix().releases if r.kernel_series != "any" or r.kernel_flavour]
    assert all(r.driver_packages and r.kernel_packages for r in asking)


def test_a_broken_matrix_names_every_mistake() -> None:
    data = json.loads((files("fleetctl.catalog") / "data" / "matrix.json").read_text("utf-8"))
    data["keys"][0]["fingerprint"] = "AB"
    data["releases"][0]["layers"] = ["cuda"]
    data["releases"][1]["extra"] = "x"
    del data["releases"][2]["source"]
    data["downloads"].append(dict(data["downloads"][0]))
    with pytest.raises(ConfigInvalid) as caught:
        parse_matrix(json.dumps(data), "mine.json")
    assert caught.value.code == "config.matrix"
    assert len(caught.value.details) >= 5
    for text in ("{", "[]", '{"format_version": 2}'):
        with pytest.raises(ConfigInvalid):
            parse_matrix(text, "mine.json")


@pytest.mark.parametrize(("suite", "taken"), [("./", True), ("/", True), ("noble", False)])
def test_a_flat_repository_alone_has_no_components(suite: str, taken: bool) -> None:
    data = json.loads((files("fleetctl.catalog") / "data" / "matrix.json").read_text("utf-8"))
    data["releases"][0]["repositories"][0] |= {"suite": suite, "components": ""}
    if taken:
        assert parse_matrix(json.dumps(data), "mine.json").releases[0].repositories[0].components == ""
        return
    with pytest.raises(ConfigInvalid) as caught:
        parse_matrix(json.dumps(data), "mine.json")
    assert "repositories" in caught.value.details[0]


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("vllm/vllm-openai-rocm:0.28.0", "docker.io/vllm/vllm-openai-rocm"),
        ("ubuntu", "docker.io/library/ubuntu"),
        ("ubuntu:24.04", "docker.io/library/ubuntu"),
        ("localhost/a:1", "localhost/a"),
        ("127.0.0.1:5000/lab/image", "127.0.0.1:5000/lab/image"),
        ("127.0.0.1:5000/lab/image:1", "127.0.0.1:5000/lab/image"),
        ("registry.example/a/b:1.2", "registry.example/a/b"),
    ],
)
def test_an_image_is_named_as_an_engine_takes_it_beside_a_digest(image: str, name: str) -> None:
    assert full_name(image) == name


@pytest.mark.parametrize(("container", "given"), [(True, True), (False, False)])
def test_the_image_that_the_manifest_states_is_the_one_that_is_pulled_and_run(container: bool, given: bool) -> None:
    found = release_variables(pinned(), replace(wanted(), container=container))
    made_of = found["node_manifest_made_of"]
    assert isinstance(made_of, dict)
    assert ("image_digest" in made_of) == ("container_engine_images" in found) == ("model_server_image" in found) == given
    if given:
        image = f"{full_name(made_of['image'])}@{made_of['image_digest']}"
        assert (found["container_engine_images"], found["model_server_image"]) == ([image], image)
