"""What roles refuse, and what they make of an environment: the conditions themselves, as Ansible evaluates them."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.fakes.role_tasks import refusals, rendered, value


def environment(**names: object) -> dict[str, object]:
    return {"translation_layer_environment": names}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (environment(NVIDIA_VISIBLE_DEVICES="all"), []),
        (environment(NVIDIA_VISIBLE_DEVICES="all", CUDA_VISIBLE_DEVICES="0,1"), ['HIP_VISIBLE_DEVICES="0,1"']),
        (environment(NVIDIA_VISIBLE_DEVICES="GPU-8a7f", HIP_VISIBLE_DEVICES="3"), ['HIP_VISIBLE_DEVICES="3"']),
        (environment(CUDA_VISIBLE_DEVICES=0), ['HIP_VISIBLE_DEVICES="0"']),
        (environment(ROCR_VISIBLE_DEVICES="4,5"), ['HIP_VISIBLE_DEVICES="4,5"']),
        (environment(PYTORCH_CUDA_ALLOC_CONF="a:0.9", CUDA_LAUNCH_BLOCKING="1"), ['PYTORCH_HIP_ALLOC_CONF="a:0.9"']),
        (environment(NCCL_NVLS_ENABLE="1", NCCL_MIN_NCHANNELS="112"), ['NCCL_MIN_NCHANNELS="112"']),
    ],
)
def test_an_environment_is_rewritten_so_that_no_accelerator_is_hidden_by_mistake(given: dict[str, object], made: list[str]) -> None:
    assert refusals("translation_layer", given) == []
    assert rendered("translation_layer", "environment.j2", given).splitlines()[1:] == made


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
@pytest.mark.parametrize("value", ["all", "", "none", "void", "-1", "GPU-8a7f2c", "MIG-8a7f2c", "0,GPU-8a7f", "0, 1", "0,", "NoDevFiles"])
def test_a_mask_that_is_no_list_of_indices_is_refused(name: str, value: str) -> None:
    (said,) = refusals("translation_layer", environment(**{name: value}))
    assert said.startswith(f"configure.environment: nothing was changed, because {name} is no list of indices")
    assert "Next: " in said


@pytest.mark.parametrize(
    "names",
    [
        ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        ("ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"),
    ],
)
def test_two_names_that_become_one_are_refused(names: tuple[str, str]) -> None:
    (said,) = refusals("translation_layer", environment(**dict.fromkeys(names, "0")))
    assert "two names of the environment become one on ROCm" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"translation_layer_kind": "zluda"}, "ZLUDA cannot run on CDNA"),
        ({"translation_layer_kind": "scale"}, "nobody has accepted a licence"),
        ({"translation_layer_kind": "scale", "translation_layer_licence_accepted": True}, "has no SHA-256"),
        ({"translation_layer_sources": [{"name": "../x", "text": ""}]}, "no plain name"),
        (environment(**{"A B": "1"}), "a name or value that no file can hold"),
        (environment(A="x\nB=y"), "a name or value that no file can hold"),
    ],
)
def test_a_layer_that_cannot_be_made_is_refused(given: dict[str, object], said: str) -> None:
    assert [said in text for text in refusals("translation_layer", given)].count(True) == 1


def server(*argv: str, **more: object) -> dict[str, object]:
    return {"model_server_units": [{"name": "chat", "argv": list(argv), "port": 8000, "model": "m", **more}]}


@pytest.mark.parametrize(
    ("there", "packages", "refused"),
    [
        ({"rc": 0}, [], False),
        ({"rc": 2}, [], True),
        ({"skipped": True, "changed": False}, [{"name": "podman"}], False),
    ],
)
def test_an_image_without_an_engine_is_refused(there: dict[str, object], packages: list[object], refused: bool) -> None:
    given = {"container_engine_images": [IMAGE], "container_engine_packages": packages, "container_engine_there": there}
    assert ["configure.engine" in text for text in refusals("container_engine", given)] == [True] * refused


@pytest.mark.parametrize("image", ["docker.io/rocm/vllm:latest", "docker.io/rocm/vllm", f"docker.io/rocm/vllm@sha256:{'a' * 63}"])
def test_an_image_without_digest_is_refused(image: str) -> None:
    assert "configure.image" in refusals("container_engine", {"container_engine_images": [image]})[0]


DIGEST = "sha256:" + "a" * 64
IMAGE = f"docker.io/rocm/vllm@{DIGEST}"
VLLM = ("/opt/venv/bin/vllm", "serve", "/models/m")


@pytest.mark.parametrize(
    "given",
    [
        server("/usr/lib/standin-engine/serve", "8000", "m"),
        server(*VLLM, "--shutdown-timeout", "270"),
        server(*VLLM, "--shutdown-timeout=299", "--port=8000"),
        server(*VLLM, may_cut_streams=True),
        server("/opt/venv/bin/python3", "-m", "sglang.launch_server", "--model-path", "/models/m"),
        server("/opt/venv/bin/python3", "-m", "sglang.launch_server", environment={"SGL_FORCE_SHUTDOWN": "0"}),
        {
            **server("vllm", "serve", "/models/m", "--shutdown-timeout=60", container=True, folders=["/mnt/models"]),
            "model_server_image": IMAGE,
        },
        {**server("/usr/bin/podman", "run", "--rm", IMAGE, "/bin/serve"), "model_server_image": IMAGE},
        server("/usr/bin/podman", "run", "--rm", f"x@{DIGEST}", "/bin/serve"),
    ],
)
def test_a_server_that_ends_its_streams_in_the_releases_image_is_taken(given: dict[str, object]) -> None:
    assert refusals("model_server", given) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (server(*VLLM), "chat is vLLM and needs --shutdown-timeout of 1 to 299"),
        (server(*VLLM, "--shutdown-timeout=0"), "needs --shutdown-timeout"),
        (server(*VLLM, "--shutdown-timeout", "300"), "needs --shutdown-timeout"),
        (server(*VLLM, "--shutdown-timeout=60", "--shutdown-timeout=0"), "needs --shutdown-timeout"),
        (server("/opt/venv/bin/python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"), "needs --shutdown-timeout"),
        ({**server("/mnt/models/m", container=True), "model_server_image": IMAGE}, "needs --shutdown-timeout"),
        (server("/usr/bin/podman", "run", f"x@{DIGEST}", "vllm", "serve", "m"), "needs --shutdown-timeout"),
        (server("/bin/python3", "-m", "sglang.launch_server", environment={"SGL_FORCE_SHUTDOWN": "1"}), "has SGL_FORCE_SHUTDOWN"),
        (server("sglang", "serve", container=True), "chat runs in a container whose image is not named by digest"),
        (
            {**server("a", container=True), "model_server_image": "docker.io/rocm/vllm:latest"},
            "whose image is not docker.io/rocm/vllm:latest",
        ),
        (server("/usr/bin/docker", "run", "rocm/other:latest"), "whose image is not named by digest"),
        ({**server("/usr/bin/podman", "run", f"x@{DIGEST}"), "model_server_image": IMAGE}, f"whose image is not {IMAGE}"),
        (server("vllm", "serve", may_cut_streams=True), "an absolute program"),
        (server(), "an absolute program"),
        (server("/bin/true", folders=["/a:/b"]), "no unit can hold"),
        (server("/bin/true", folders=["relative"]), "no unit can hold"),
    ],
)
def test_a_server_that_would_cut_streams_or_runs_in_another_image_is_refused(given: dict[str, object], said: str) -> None:
    assert [said in text for text in refusals("model_server", given)].count(True) == 1


def test_a_server_in_a_container_gets_devices_folders_and_every_name_of_its_environment() -> None:
    import base64

    layer = base64.b64encode(b'# x\nHIP_VISIBLE_DEVICES="0,1"\nNCCL_MIN_NCHANNELS="112"\n').decode()
    given = server("vllm", "serve", "100%", "$HOME", container=True, folders=["/mnt/models"], environment={"HUB_TOKEN": "hush", "A": "1"})
    made = rendered(
        "model_server", "unit.j2", {**given, "model_server_image": IMAGE, "model_server_layer": {"content": layer}, "item": "chat"}
    )
    assert "hush" not in made
    (line,) = [x for x in made.splitlines() if x.startswith("ExecStart=")]
    words = [w.strip('"') for w in line.removeprefix("ExecStart=").split(" ")]
    assert words[:2] == ["/usr/bin/podman", "run"]
    at = words.index(IMAGE)
    assert words[at + 1 :] == ["vllm", "serve", "100%%", "$$HOME"]
    assert {"--device=/dev/kfd", "--device=/dev/dri", "--pull=never", "--volume=/mnt/models:/mnt/models:ro"} <= set(words[:at])
    assert [w for w in words[:at] if w.startswith("--env=")] == [
        "--env=XDG_CACHE_HOME=/var/cache/fleetctl", "--env=A", "--env=HIP_VISIBLE_DEVICES", "--env=HUB_TOKEN", "--env=NCCL_MIN_NCHANNELS"
    ]  # fmt: skip
    assert "User=" not in made
    assert "KillMode=mixed" in made


@pytest.mark.parametrize(
    ("given", "devices", "none"),
    [
        ({}, {"--device=/dev/kfd", "--device=/dev/dri"}, "nvidia.com/gpu"),
        ({"model_server_vendor": "nvidia"}, {"--device=nvidia.com/gpu=all"}, "/dev/kfd"),
        ({"model_server_vendor": "nvidia", "model_server_devices": ["--gpus=all"]}, {"--gpus=all"}, "nvidia.com/gpu"),
    ],
)
def test_a_container_gets_the_accelerators_of_its_vendor(given: dict[str, object], devices: set[str], none: str) -> None:
    variables = {**server("--model", "m", container=True), "model_server_image": IMAGE, "item": "chat", **given}
    made = rendered("model_server", "unit.j2", variables)
    (line,) = [x for x in made.splitlines() if x.startswith("ExecStart=")]
    assert devices | {"--network=host", "--ipc=host"} <= {w.strip('"') for w in line.split(" ")}
    assert none not in made


@pytest.mark.parametrize(("found", "refused"), [("/etc/cdi/nvidia.yaml\n", False), ("", True)])
def test_an_nvidia_container_is_refused_where_nothing_names_its_accelerators(found: str, refused: bool) -> None:
    variables = server("--model", "m", "--shutdown-timeout=60", container=True)
    looked = {"rc": int(refused), "stdout": found}
    given = {**variables, "model_server_image": IMAGE, "model_server_vendor": "nvidia", "model_server_cdi": looked}
    assert ["nvidia-ctk cdi generate" in text for text in refusals("model_server", given)] == [True] * refused


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, []),
        ({**server("/bin/serve"), "model_server_image": IMAGE}, []),
        (
            {**server("--model", "m", container=True), "model_server_image": IMAGE},
            ["/usr/bin/podman", "run", "--rm", "--pull=never", "--network=none", "--device=/dev/kfd", "--device=/dev/dri",
             "--entrypoint=python3", IMAGE],
        ),
        ({**server("m", container=True), "model_server_image": IMAGE, "translation_layer_python": "/opt/python"}, ["/opt/python"]),
        ({**server("m", container=True), "model_server_image": IMAGE, "translation_layer_ask": ["/bin/ask"]}, ["/bin/ask"]),
    ],
)  # fmt: skip
def test_the_image_that_servers_run_in_is_asked_for_its_torch_unless_told_otherwise(given: dict[str, object], asked: list[str]) -> None:
    assert value("translation_layer", "translation_layer_asked", given) == asked


def test_a_server_of_the_service_account_has_a_home_and_a_cache_that_it_may_write() -> None:
    made = rendered("model_server", "unit.j2", {**server("/bin/serve", "a b"), "item": "chat"}).splitlines()
    assert {
        "User=inference", "StateDirectory=fleetctl/servers/chat", "CacheDirectory=fleetctl/chat", "KillMode=mixed", "TimeoutStopSec=300",
        "Environment=HOME=/var/lib/fleetctl/servers/chat XDG_CACHE_HOME=/var/cache/fleetctl/chat", 'ExecStart="/bin/serve" "a b"',
    } <= set(made)  # fmt: skip
    assert "Delegate=yes" not in made


def disks(*found: tuple[int, str], there: bool = True, **more: object) -> dict[str, object]:
    """Return what the role sees of disks: exit code and output of blkid per disk, and whether they are there."""
    rows = [{"item": f"/dev/nvme{n}n1", "rc": rc, "stdout": text} for n, (rc, text) in enumerate(found)]
    stats = [{"item": r["item"], "stat": {"exists": there}} for r in rows]
    return {
        "nvme_raid_devices": [r["item"] for r in rows], "nvme_raid_found": {"results": rows}, "nvme_raid_disks": {"results": stats}, **more
    }  # fmt: skip


def member(name: str, uuid: str = "a") -> tuple[int, str]:
    return 0, f"DEVNAME=/dev/x\nUUID={uuid}\nUUID_SUB=y\nLABEL={name}\nVERSION=1.2\nTYPE=linux_raid_member\nUSAGE=raid"


EMPTY = (2, "")


@pytest.mark.parametrize(
    "given",
    [
        disks(),
        disks(EMPTY, EMPTY),
        disks(member("node-1:fleetctl"), member("node-1:fleetctl")),
        disks(member("fleetctl"), member("fleetctl")),
        disks(member("h:cache"), nvme_raid_array="/dev/md/cache", nvme_raid_mount="/mnt/model-cache"),
    ],
)
def test_disks_that_are_empty_or_of_one_array_of_ours_are_taken(given: dict[str, object]) -> None:
    assert refusals("nvme_raid", given) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (disks(EMPTY, (0, "TYPE=ext4")), "/dev/nvme1n1 cannot be read or holds something"),
        (disks(EMPTY, (0, "PTTYPE=gpt")), "/dev/nvme1n1 cannot be read or holds something"),
        (disks(EMPTY, (1, "")), "/dev/nvme1n1 cannot be read"),
        (disks(EMPTY, (8, "")), "/dev/nvme1n1 cannot be read"),
        (disks(EMPTY, there=False), "/dev/nvme0n1 cannot be read"),
        (
            disks(member("db:data"), member("db:data")),
            "/dev/nvme0n1, /dev/nvme1n1 cannot be read or holds something that is no array of ours",
        ),
        (disks(member("h:fleetctl-old")), "no array of ours"),
        (disks(member("h:fleetctl"), EMPTY), "only /dev/nvme0n1 belong to an array of ours"),
        (disks(member("h:fleetctl", "a"), member("h:fleetctl", "b")), "or they belong to 2 arrays"),
        (disks(nvme_raid_mount="/mnt/a b"), "no plain absolute path"),
        (disks(nvme_raid_mount="mnt"), "no plain absolute path"),
        (disks(nvme_raid_mount="/mnt/.hidden"), "no plain absolute path"),
        (disks(nvme_raid_mount="/mnt/"), "no plain absolute path"),
        (disks(nvme_raid_array="/dev/sda"), "no name below /dev/md"),
    ],
)
def test_disks_of_others_are_refused(given: dict[str, object], said: str) -> None:
    (text,) = refusals("nvme_raid", given)
    assert text.startswith("configure.disk: nothing was changed, because")
    assert said in text


@pytest.mark.parametrize("path", ["/mnt/models", "/mnt/model-cache", "/mnt/a.b_c/d-e-f", "/srv"])
@pytest.mark.skipif(not shutil.which("systemd-escape"), reason="needs systemd-escape")
def test_the_mount_unit_has_the_name_that_systemd_wants(path: str) -> None:
    wanted = subprocess.run(["systemd-escape", "--path", "--suffix=mount", path], capture_output=True, text=True, check=True).stdout.strip()
    assert value("nvme_raid", "nvme_raid_mount_unit", {"nvme_raid_mount": path}) == wanted


def superblock(name: str, uuid: bytes) -> bytes:
    """Return version 1.2 of the kernel's md superblock, as `struct mdp_superblock_1` in md_p.h lays it out."""
    body = struct.pack("<IIII", 0xA92B4EFC, 1, 0, 0) + uuid + name.encode().ljust(32, b"\0")
    body += struct.pack("<QIIQIIIIQIIII", 0, 0, 0, 0x1000, 1024, 2, 0, 0, 0, 0, 0, 0, 0)
    body += struct.pack("<QQQQII", 2048, 0x4000, 8, 0, 0, 0) + b"\x22" * 24 + bytes(24)
    rest = struct.pack("<I", 128) + bytes(32) + struct.pack("<HH", 0, 1) + b"\xff\xff" * 126
    total = sum(struct.unpack(f"<{(len(body) + 4 + len(rest)) // 4}I", body + bytes(4) + rest))
    return body + struct.pack("<I", ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF) + rest


@pytest.mark.skipif(not shutil.which("blkid"), reason="needs blkid")
@pytest.mark.parametrize(("name", "taken"), [("node-1:fleetctl", True), ("db:data", False), ("", True)])
def test_an_array_is_known_by_what_the_real_blkid_says_of_its_disk(tmp_path: Path, name: str, taken: bool) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(4096) + (superblock(name, b"\x11" * 16) if name else b"") + bytes(4 << 20))
    done = subprocess.run(["blkid", "--probe", "--output", "export", disk], capture_output=True, text=True, check=False)
    assert (done.returncode, "linux_raid_member" in done.stdout) == ((0, True) if name else (2, False))
    assert (refusals("nvme_raid", disks((done.returncode, done.stdout))) == []) is taken


def seen(**sums: str) -> dict[str, object]:
    return {"results": [{"item": name, "stat": {"exists": bool(s), **({"checksum": s} if s else {})}} for name, s in sums.items()]}


def test_a_file_of_a_share_is_wanted_only_where_the_cache_lacks_it_and_refused_only_where_the_share_does_too() -> None:
    files = [{"path": name, "source": f"/srv/{name}", "sha256": name * 64} for name in "abcd"]
    given: dict[str, object] = {"model_store_files": [*files, {"path": "e", "url": "https://x.example/e", "sha256": "e" * 64}]}
    given["model_store_held"] = seen(a="a" * 64, b="", c="0" * 64, d="0" * 64)
    assert value("model_store", "model_store_wanting", given) == ["b", "c", "d"]
    given["model_store_shared"] = seen(b="b" * 64, c="", d="1" * 64)
    assert value("model_store", "model_store_bad", given) == ["/srv/c", "/srv/d"]


def fetched(name: str) -> dict[str, object]:
    return {"path": name, "url": f"https://x.example/{name}?sig=s3cr3t", "sha256": "e" * 64}


def room(**more: object) -> dict[str, object]:
    """What a node and its stores answer: a in the cache, b and c not, of which b is large; a share has d, of another sum in the cache."""
    files = [*(fetched(n) for n in "abc"), {"path": "d", "source": "/srv/d", "sha256": "d" * 64}]
    return {
        "model_store_files": files,
        "model_store_stored": {"files": [{"path": f"/var/lib/fleetctl/models/{n}", "size": 7} for n in ("a", "d", ".fetching/x")]},
        "model_store_asked": {
            "results": [
                {"item": "b", "status": 206, "content_range": "bytes 0-0/800000000000"},
                {"item": "c", "status": 200, "content_length": "200"},
            ]
        },
        "model_store_held": seen(d="0" * 64),
        "model_store_shared": {"results": [{"item": "d", "stat": {"checksum": "d" * 64, "size": 30}}]},
        "model_store_free": {"stdout_lines": ["        Avail Mounted on", " 900000000000 /var"]},
        **more,
    }


def test_what_a_cache_needs_is_what_it_lacks_as_its_stores_tell_it() -> None:
    assert value("model_store", "model_store_lacking", room()) == ["b", "c"]
    assert value("model_store", "model_store_needed", room()) == 800_000_000_230
    none: dict[str, object] = {"model_store_asked": {"results": [{"item": "b", "status": 416, "content_range": "bytes */0"}]}}
    assert value("model_store", "model_store_needed", room(model_store_shared={}, **none)) == 0, "an empty file"


@pytest.mark.parametrize(
    ("more", "left"),
    [
        ({}, 900_000_000_007),
        ({"model_store_free": {"stdout_lines": ["Avail Mounted on", "900000000000 /"]}}, 900_000_000_007 - (4 << 30)),
        ({"model_store_free": {"stdout_lines": ["Avail Mounted on", "1000 /"]}}, 0),
        ({"model_store_free": {"stdout_lines": []}}, -1),
        ({"nvme_raid_devices": ["/dev/a", "/dev/b"], "model_store_disks": {"rc": 0, "stdout_lines": [" 100", " 100"]}}, 198),
        ({"nvme_raid_devices": ["/dev/a"], "model_store_disks": {"rc": 32, "stdout_lines": []}}, -1),
    ],
)
def test_the_room_of_a_cache_is_what_is_free_where_it_is_or_will_be(more: dict[str, object], left: int) -> None:
    assert value("model_store", "model_store_room", room(**more)) == left
    refused = [t for t in refusals("model_store", room(**more), "room.yml") if "configure.room" in t]
    assert len(refused) == (0 <= left < 800_000_000_230)
    assert all("are 745.06 GB, and" in t and "Next: " in t for t in refused), refused


def test_a_folder_that_is_not_there_yet_lies_where_its_parents_do() -> None:
    given: dict[str, object] = {"model_store_folder": "/srv/a/models"}
    assert value("model_store", "model_store_above", given) == ["/srv/a/models", "/srv/a", "/srv", "/"]


def test_a_file_that_its_store_does_not_give_is_refused_without_its_address() -> None:
    asked = {"results": [{"item": "b", "status": 403, "url": "https://x.example/b?sig=s3cr3t"}, {"item": "c", "msg": "no route"}]}
    said = refusals("model_store", room(model_store_asked=asked), "room.yml")
    assert "because b (403), c (-1) cannot be fetched" in said[0]
    assert "s3cr3t" not in str(said)


def test_only_versions_that_an_archive_has_are_brought_back() -> None:
    said = " engine | 2.0-1 | http://x ./ Packages\nlib-x64 | 1:3+b1 | http://x stable/main amd64 Packages\nN: Unable to locate\n"
    assert value("apt_packages", "apt_packages_archived", {"apt_packages_had": {"stdout": said}}) == ["engine=2.0-1", "lib-x64=1:3+b1"]
