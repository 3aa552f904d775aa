"""Reading trees, archives, images, binaries and models; whatever lies, is too large or leads away is stated, never followed or fatal."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from fleetctl.adapters.source_tree import SourceTreeReader
from fleetctl.adapters.source_tree.bounds import MIB, Bounds
from fleetctl.assess import file_kinds
from fleetctl.assess.other_languages import OTHER_LANGUAGES
from fleetctl.assess.text_rules import scopes_of
from fleetctl.domain.portability import ElfFile, ImageFacts, ModelFile, Read, Skipped, TextFile
from tests.cases.binaries import elf, fat_binary, onnx, safetensors, tar

KERNEL = b"__global__ void k(float *v) { v[0] = 1; }\n"


def read(path: Path, bounds: Bounds | None = None) -> list[Read]:
    return list(SourceTreeReader(bounds).read(path))


def reasons(reads: list[Read]) -> list[str]:
    return [r.reason for r in reads if isinstance(r, Skipped)]


def texts(reads: list[Read]) -> set[str]:
    return {r.path for r in reads if isinstance(r, TextFile)}


def put(folder: Path, **files: bytes) -> Path:
    for name, data in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def test_a_folder_is_read_and_other_files_are_not(tmp_path: Path) -> None:
    put(tmp_path, a_DOT_cu=KERNEL, sub__b_DOT_h=KERNEL, photo_DOT_jpg=b"\xff\xd8", Dockerfile=b"FROM x\n")
    put(tmp_path, _DOT_git__c_DOT_cu=KERNEL, node_modules__d_DOT_h=KERNEL)
    assert texts(read(tmp_path)) == {"a.cu", "sub/b.h", "Dockerfile"}


@pytest.mark.parametrize("name", ["requirements.txt", "a.py", "pyproject.toml"])
def test_a_byte_order_mark_hides_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xef\xbb\xbftensorrt_llm==1\n")
    assert [f.text for f in read(tmp_path) if isinstance(f, TextFile)] == ["tensorrt_llm==1\n"]


def test_one_file_is_read(tmp_path: Path) -> None:
    put(tmp_path, a_DOT_cu=KERNEL)
    assert texts(read(tmp_path / "a.cu")) == {"a.cu"}


def test_what_is_not_there_is_stated(tmp_path: Path) -> None:
    assert reasons(read(tmp_path / "nothing.cu")) == ["cannot be read: No such file or directory"]


def test_binary_junk_under_a_source_name_is_stated(tmp_path: Path) -> None:
    put(tmp_path, a_DOT_cu=os.urandom(64) + b"\0" * 9000)
    assert reasons(read(tmp_path)) == ["not text, though its name says so"]


def test_a_file_of_one_gigabyte_is_passed_by(tmp_path: Path) -> None:
    with (tmp_path / "huge.cu").open("wb") as stream:
        stream.truncate(2**30)
    with (tmp_path / "huge.bin").open("wb") as stream:
        stream.truncate(2**30)
    assert reasons(read(tmp_path)) == ["larger than 8 MiB"]


def test_a_folder_that_may_not_be_read_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, sub__a_DOT_cu=KERNEL, b_DOT_cu=KERNEL)
    real = os.scandir

    def refuses(path: str) -> object:  # root may read every folder, so the refusal is made here
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuses)
    found = read(tmp_path)
    assert reasons(found) == ["folder cannot be read: Permission denied"]
    assert texts(found) == {"b.cu"}


def test_links_are_not_followed(tmp_path: Path) -> None:
    put(tmp_path, a_DOT_cu=KERNEL)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self.cu").symlink_to("self.cu")
    (tmp_path / "passwd.cu").symlink_to("/etc/passwd")
    found = read(tmp_path)
    assert texts(found) == {"a.cu"}
    assert set(reasons(found)) == {"a symbolic link that leads out, not followed", "a symbolic link to nothing"}


def test_pipes_and_sockets_do_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.cu")
    assert reasons(read(tmp_path)) == ["cannot be read: is not a regular file"]


def test_folders_without_end(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 70)
    deep.mkdir(parents=True)
    assert reasons(read(tmp_path)) == ["folders nested too deeply"]


def test_too_many_files(tmp_path: Path) -> None:
    for i in range(12):
        (tmp_path / f"{i}.cu").write_bytes(KERNEL)
    found = read(tmp_path, Bounds(files=10))
    assert len(texts(found)) == 10
    assert reasons(found) == ["more than 10 files"]


def test_elf_files_say_what_they_need(tmp_path: Path) -> None:
    fat = fat_binary([(2, 90), (1, 80)]) + fat_binary([(2, 75)])
    put(tmp_path, app=elf({".nv_fatbin": fat, ".nvFatBinSegment": b"x"}, ["libcuda.so.1", "libm.so.6"]))
    hip = b"__CLANG_OFFLOAD_BUNDLE__ hipv4-amdgcn-amd-amdhsa--gfx90a hipv4-amdgcn-amd-amdhsa--gfx942:xnack- "
    put(tmp_path, lib_DOT_so=elf({".hip_fatbin": hip}), k_DOT_cubin=elf({}, machine=190))
    found = {r.path: r for r in read(tmp_path)}
    app, lib = found["app"], found["lib.so"]
    assert isinstance(app, ElfFile)
    assert (app.needed, app.sm, app.has_ptx) == (("libcuda.so.1", "libm.so.6"), ("compute_80", "sm_75", "sm_90"), True)
    assert isinstance(lib, ElfFile)
    assert lib.gfx == ("gfx90a", "gfx942")
    assert found["k.cubin"] == ModelFile(path="k.cubin", format="cubin")


@pytest.mark.parametrize("cut", [5, 40, 63, 200, -30])
def test_elf_files_that_lie_are_stated(tmp_path: Path, cut: int) -> None:
    put(tmp_path, app=elf({".nv_fatbin": fat_binary([(2, 90)])}, ["libcuda.so.1"])[:cut])
    assert all(r.startswith("ELF file: ") for r in reasons(read(tmp_path)))
    assert len(reasons(read(tmp_path))) == 1


def test_elf_with_wild_offsets(tmp_path: Path) -> None:
    data = bytearray(elf({".nv_fatbin": b"x" * 40}, ["libcuda.so.1"]))
    for i, at in enumerate(range(16, len(data) - 8, 7)):
        wild = bytearray(data)
        wild[at : at + 8] = struct.pack("<Q", 2**63 - 1 - i)
        (tmp_path / f"app{i}.so").write_bytes(bytes(wild))
    assert all(isinstance(r, (ElfFile, Skipped, ModelFile)) for r in read(tmp_path))


def test_model_headers(tmp_path: Path) -> None:
    put(tmp_path, m_DOT_safetensors=safetensors({"a": "F8_E4M3", "b": "BF16"}), n_DOT_gguf=b"GGUF" + struct.pack("<IQQ", 3, 5, 6))
    put(tmp_path, o_DOT_onnx=onnx(17), p_DOT_engine=b"ftrt" + b"\0" * 40, q_DOT_ptx=b".version 8.0")
    found = {r.path: r for r in read(tmp_path) if isinstance(r, ModelFile)}
    assert found["m.safetensors"].dtypes == ("BF16", "F8_E4M3")
    assert found["n.gguf"].facts == {"version": "3", "tensors": "5"}
    assert found["o.onnx"].facts == {"ir": "9", "producer": "torch", "opset": "17"}
    assert {found["p.engine"].format, found["q.ptx"].format} == {"tensorrt", "ptx"}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.safetensors", struct.pack("<Q", 2**60)), ("b.safetensors", struct.pack("<Q", 4) + b"{{{{"), ("c.safetensors", b""),
        ("d.gguf", b"GGUF"), ("e.onnx", b"\xff" * 40), ("f.onnx", b""), ("g.safetensors", b"version https://git-lfs\n"),
        ("h.safetensors", struct.pack("<Q", 200_000) + b"[" * 200_000),
    ],
)  # fmt: skip
def test_model_headers_that_lie(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert len(reasons(read(tmp_path))) == 1


def test_torchscript_is_told_from_weights_without_unpickling(tmp_path: Path) -> None:
    for name, member in (("a.pt", "a/code/x.py"), ("b.pth", "b/data.pkl"), ("c.pt2", "c/data/aotinductor/m.so")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(member, b"\x80\x02cos\nsystem\n")
    assert {(r.path, r.format) for r in read(tmp_path) if isinstance(r, ModelFile)} == {("a.pt", "torchscript"), ("c.pt2", "aotinductor")}


@pytest.mark.parametrize("pack", [lambda d: d, gzip.compress, bz2.compress, lzma.compress], ids=["tar", "gz", "bz2", "xz"])
def test_archives_are_read_and_their_names_stay_inside(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    data = tar({"src/a.cu": KERNEL, "../../etc/evil.cu": KERNEL, "/abs/b.h": KERNEL, "x.jpg": b"1" * 5000, "c.cu": KERNEL * 3000})
    (tmp_path / "t.tar").write_bytes(pack(data))
    found = read(tmp_path)
    assert texts(found) == {"t.tar!src/a.cu", "t.tar!abs/b.h", "t.tar!c.cu"}
    assert reasons(found) == ["a member's name leaves the archive"]
    assert not (tmp_path / "src").exists()


def test_links_in_archives_lead_nowhere(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        link = tarfile.TarInfo("a.cu")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        device = tarfile.TarInfo("b.cu")
        device.type = tarfile.CHRTYPE
        archive.addfile(device)
    (tmp_path / "t.tar").write_bytes(out.getvalue())
    assert read(tmp_path) == []


def test_a_gzip_bomb_is_stopped_early(tmp_path: Path) -> None:
    engine = io.BytesIO()
    with gzip.GzipFile(fileobj=engine, mode="wb", compresslevel=6) as stream:
        head = tarfile.TarInfo("zeros.bin")
        head.size = 512 * MIB
        stream.write(head.tobuf())
        for _ in range(64):
            stream.write(b"\0" * MIB)
    (tmp_path / "bomb.tar.gz").write_bytes(engine.getvalue())
    assert reasons(read(tmp_path, Bounds(ratio_from=8 * MIB))) == ["archive: grows more than 100 times when unpacked"]


def test_a_zip_bomb_is_stopped_early(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(40):
            archive.writestr(f"{i}.cu", b"\n" * MIB)
    assert "archive: grows more than 100 times when unpacked" in reasons(read(tmp_path, Bounds(ratio_from=2 * MIB)))


def test_a_zip_that_holds_itself_ends(tmp_path: Path) -> None:
    inner = tar({"a.cu": KERNEL})
    for _ in range(8):
        inner = tar({"again.tar": inner})
    (tmp_path / "t.tar").write_bytes(inner)
    assert texts(read(tmp_path)) == set()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d[:700], lambda d: b"\0" * 100 + d,
        lambda d: d[:124] + b"77777777777\0" + d[136:], lambda d: d[:148] + b"0000000\0" + d[156:],
        lambda d: gzip.compress(d)[:-9], lambda d: b"\x1f\x8b" + os.urandom(300), lambda d: b"BZh9" + os.urandom(300),
        lambda d: b"PK\x03\x04" + d,
        lambda d: b"\x28\xb5\x2f\xfd" + d, lambda d: d[:124] + b"\x80" + b"\xff" * 11 + d[136:],
    ],
)  # fmt: skip
def test_archives_that_lie(tmp_path: Path, spoil: object) -> None:
    assert callable(spoil)
    (tmp_path / "t.tar").write_bytes(spoil(tar({"a.txt": b"1" * 2000, "b.cu": KERNEL})))
    found = read(tmp_path)
    assert len(found) <= 3
    assert all(isinstance(r, (Skipped, TextFile)) for r in found)


def test_a_header_of_many_megabytes_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 50 * MIB
    (tmp_path / "t.tar").write_bytes(info.tobuf() + b"\0" * MIB)
    assert reasons(read(tmp_path)) == ["archive: a header of more than 1 MiB"]


def test_wheels_and_encrypted_or_damaged_zips(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x-1-py3.whl", "w") as archive:
        archive.writestr("x/kernel.cu", KERNEL)
        archive.writestr("../up.cu", KERNEL)
    data = bytearray((tmp_path / "x-1-py3.whl").read_bytes())
    data[40:60] = os.urandom(20)
    (tmp_path / "bad.whl").write_bytes(data)
    found = read(tmp_path)
    assert "x-1-py3.whl!x/kernel.cu" in texts(found)
    assert "a member's name leaves the archive" in reasons(found)


def test_a_list_of_members_that_would_fill_memory_is_refused(tmp_path: Path) -> None:
    record = b"PK\x05\x06" + b"\0" * 8 + struct.pack("<II", 2**30, 0) + b"\0\0"
    (tmp_path / "x.zip").write_bytes(b"PK\x03\x04" + b"\0" * 100 + record)
    assert reasons(read(tmp_path)) == ["archive: its list of members is larger than is read"]


def test_names_that_lie_about_archives_and_requirements_too_large_are_stated(tmp_path: Path) -> None:
    put(tmp_path, x_DOT_whl=b"\0" * 20_000, big_DOT_txt=b"", notes_DOT_txt=b"")
    for name in ("requirements.txt", "config.json", "big.txt", "data.json"):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(20 * MIB)
    assert {(r.path, r.reason) for r in read(tmp_path) if isinstance(r, Skipped)} == {
        ("x.whl", "not a zip archive, though its name says so"),
        ("requirements.txt", "larger than 8 MiB"),
        ("config.json", "larger than 8 MiB"),
    }


def layer(members: dict[str, bytes]) -> tuple[str, bytes]:
    data = gzip.compress(tar(members), mtime=0)
    return hashlib.sha256(data).hexdigest(), data


def layout(folder: Path, layers: list[dict[str, bytes]], config: dict[str, object]) -> dict[str, bytes]:
    blobs: dict[str, bytes] = {}

    def blob(data: bytes) -> dict[str, object]:
        name = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{name}"] = data
        return {"digest": f"sha256:{name}", "size": len(data)}

    manifest = {"config": blob(json.dumps(config).encode()), "layers": [blob(layer(m)[1]) for m in layers]}
    index = {"manifests": [blob(json.dumps(manifest).encode())]}
    files = {"oci-layout": b"{}", "index.json": json.dumps(index).encode(), **blobs}
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return files


CONFIG: dict[str, object] = {"config": {"Env": ["CUDA_VERSION=12.4.1", "HSA_OVERRIDE_GFX_VERSION=9"], "Cmd": ["serve", "--tp", "4"]}}
LAYERS: list[dict[str, bytes]] = [
    {"app/old.cu": KERNEL, "app/kept.cu": KERNEL, "usr/include/x.h": KERNEL, "etc/os-release": b'ID=ubuntu\nVERSION_ID="20.04"\n'},
    {
        "app/.wh.old.cu": b"",
        "app/kept.cu": b"int new_one;\n",
        "usr/lib/python3/dist-packages/t-1.dist-info/METADATA": b"Name: torch\nVersion: 2\n",
    },
]


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_an_oci_layout_is_seen_from_the_top(tmp_path: Path, kind: str) -> None:
    files = layout(tmp_path / "image", LAYERS, CONFIG)
    path = tmp_path / "image"
    if kind == "tar":
        path = tmp_path / "image.tar"
        path.write_bytes(tar(files))
    found = read(path)
    assert {t.rpartition("!")[2] for t in texts(found)} == {"app/kept.cu", "usr/lib/python3/dist-packages/t-1.dist-info/METADATA"}
    assert next(r.text for r in found if isinstance(r, TextFile) and r.path.endswith("kept.cu")) == "int new_one;\n"
    facts = [r for r in found if isinstance(r, ImageFacts)]
    assert {"nvidia/cuda:12.4.1", "ubuntu:20.04."} <= {b for f in facts for b in f.base}
    assert reasons(found) == []


def test_a_layer_whose_digest_lies_is_named(tmp_path: Path) -> None:
    files = layout(tmp_path / "image", LAYERS, CONFIG)
    name, _ = layer(LAYERS[0])
    assert f"blobs/sha256/{name}" in files
    (tmp_path / "image" / "blobs" / "sha256" / name).write_bytes(layer({"app/evil.cu": KERNEL})[1])
    assert "image: a layer's digest is another than the manifest says" in reasons(read(tmp_path / "image"))


def test_a_layer_that_is_not_there_and_an_index_that_is_none(tmp_path: Path) -> None:
    layout(tmp_path / "image", LAYERS, CONFIG)
    name, _ = layer(LAYERS[1])
    (tmp_path / "image" / "blobs" / "sha256" / name).unlink()
    assert "image: a layer is not there" in reasons(read(tmp_path / "image"))
    (tmp_path / "image" / "index.json").write_bytes(b"[" * 100_000)
    assert reasons(read(tmp_path / "image")) == ["image layout: it names no image that is there"]


def test_a_saved_image_is_read(tmp_path: Path) -> None:
    members = {"l1/layer.tar": tar(LAYERS[0]), "l2/layer.tar": tar(LAYERS[1]), "c.json": json.dumps(CONFIG).encode()}
    manifest = [{"Config": "c.json", "RepoTags": ["vllm/vllm-openai:v0.9"], "Layers": ["l1/layer.tar", "l2/layer.tar"]}]
    (tmp_path / "saved.tar").write_bytes(tar({**members, "manifest.json": json.dumps(manifest).encode()}))
    found = read(tmp_path / "saved.tar")
    assert any(t.endswith("app/kept.cu") for t in texts(found))
    assert any("vllm/vllm-openai:v0.9" in r.base for r in found if isinstance(r, ImageFacts))


def test_layouts_cannot_name_files_outside(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("{}")
    folder = tmp_path / "image"
    put(folder, **{"oci-layout": b"{}"})
    (folder / "index.json").write_text(json.dumps({"manifests": [{"digest": "sha256:../../secret"}]}))
    assert reasons(read(folder)) == ["image layout: it names no image that is there"]


def test_reader_and_rules_have_one_list_of_kinds_of_files() -> None:
    kinds = (*file_kinds.CUDA_SUFFIXES, *file_kinds.C_SUFFIXES, *OTHER_LANGUAGES)
    looked_at = [f"a{s}" for s in (*kinds, *file_kinds.BUILD_SUFFIXES, *file_kinds.CONFIG_SUFFIXES, *file_kinds.CONTAINER_SUFFIXES)]
    looked_at += [
        *file_kinds.BUILD_NAMES,
        *file_kinds.CONFIG_NAMES,
        "Dockerfile.gpu",
        ".env.local",
        "a.py",
        "config.pbtxt",
        "requirements.in",
    ]
    assert [n for n in looked_at if not file_kinds.is_text_name(n.lower())] == []
    sources = {f"a{s}" for s in kinds}
    assert [n for n in looked_at if n not in sources and not scopes_of(n.lower())] == []
    nobody = {s for s in file_kinds.TEXT_SUFFIXES if f"a{s}" not in sources and not scopes_of(f"a{s}")}
    assert nobody == {
        ".gradle",
        ".in",
        ".ipynb",
        ".kts",
        ".lock",
        ".lua",
        ".pbtxt",
        ".pip",
        ".txt",
    }  # for whole names (xmake.lua), or what stands in them
