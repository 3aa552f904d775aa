"""A server in a container: podman on a real host runs an image by digest from the role's unit; it ends its streams, and goes."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from tests.lab import debian_mirror
from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl
from tests.lab.nspawn_registry import IMAGE, PASSWORD, REGISTRIES, image_of
from tests.lab.stream_engine import ENGINE, LISTENS, READ, SERVER, STREAMS

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
AFTER_S = 15
"""How long a stream goes on when its server is told to stop: longer than the 10 s after which podman itself would kill it."""
STOP_S = 120
CONTAINERS = '[engine]\nruntime = "runc"\n[containers]\npids_limit = 0\n'
"""What a host inside this machine needs: crun wants to raise a limit, and there may be no controller of processes."""
OPTIONS = ["--network=host", "--ipc=host", "--ulimit=host", "--cap-add=SYS_PTRACE", "--security-opt=seccomp=unconfined"]
"""The role's defaults without the accelerators, which are not there."""
TAGS = ["accelerator_access", "container_engine", "translation_layer", "model_server"]
PYTHON = (
    "bin", "lib", "lib64", "usr/lib64", "usr/bin/python3*", "usr/lib/python3.11", *(
        f"usr/lib/x86_64-linux-gnu/{name}.so*" for name in ("libm", "libz", "libexpat", "libc", "ld-linux-x86-64")
    )
)  # fmt: skip
"""What of the debootstrap root runs a program of Python's."""


@pytest.fixture(scope="module")
def bench() -> Iterator[nb.Bench]:
    if not debian_mirror.reachable():
        pytest.skip("needs Debian's archive")
    with nb.bench(1, containers=True) as made, debian_mirror.mirror(made.lab.gateway) as uri:
        root = made.lab.hosts[0].root
        (root / "etc/apt/sources.list").write_text(f"deb {uri} {nl.SUITE} main\n")
        (root / "etc/containers").mkdir()
        (root / "etc/containers/containers.conf").write_text(CONTAINERS)
        yield made


def run(bench: nb.Bench, play: str, variables: dict[str, object], changes: bool | None = None) -> None:
    (result,) = bench.run(play, variables, tags=TAGS)
    assert (result.state, result.detail) == ("ok", "")
    assert changes in (None, bool(result.changed)), bench.changed_roles()


def show(h: nl.RealHost, name: str) -> str:
    return h.ssh("systemctl", "show", "-P", name, "fleetctl-chat.service").stdout.strip()


def containers(h: nl.RealHost) -> list[str]:
    return h.ssh("sudo", "podman", "ps", "--all", "--format", "{{.Names}}").stdout.split()


def _image(bench: nb.Bench, variables: dict[str, object]) -> str:
    """Put podman and a registry on the host and return the digest of an image that holds the server, which the host itself has not."""
    h = bench.lab.hosts[0]
    (result,) = bench.run("rocm_node", variables | {"model_server_units": []}, tags=["container_engine"])
    assert (result.state, result.detail) == ("ok", "")
    server = h.root / SERVER.lstrip("/")
    server.write_text(ENGINE)
    server.chmod(0o755)
    files = sorted(str(p.relative_to(h.root)) for pattern in PYTHON for p in h.root.glob(pattern))
    digest = image_of(h, [*files, SERVER.lstrip("/")])
    server.unlink()
    return digest


def test_a_server_in_a_container_serves_by_digest_ends_its_streams_and_goes(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    packages = nb.packages(h)
    (h.root / "srv/models").mkdir()
    (h.root / "srv/models/w.bin").write_text("weights\n")
    unit = {"name": "chat", "argv": [SERVER, "8000", str(AFTER_S * 20)], "port": 8000, "model": "m", "container": True}
    variables: dict[str, object] = bench.repository.variables() | {
        "container_engine_packages": [{"name": n} for n in ("podman", "runc", "docker-registry")],
        "container_engine_command": "podman",
        "container_engine_registries": REGISTRIES,
        "model_server_container_options": OPTIONS,
        "model_server_stop_timeout": STOP_S,
        "model_server_units": [unit | {"environment": {"TOKEN": "s3cr3t-9f41c7"}, "folders": ["/srv/models"]}],
    }
    digest = _image(bench, variables)
    image = f"{IMAGE}@{digest}"
    wrong = variables | {"model_server_image": f"{IMAGE}@sha256:{'0' * 64}", "container_engine_images": [image]}
    (refused,) = bench.run("rocm_node", wrong, tags=TAGS)
    assert refused.state == "failed", "an image that was not pulled starts no server"
    variables |= {"model_server_image": image, "container_engine_images": [image]}
    run(bench, "rocm_node", variables, changes=True)
    assert h.ssh(LISTENS).returncode == 0
    run(bench, "rocm_node", variables, changes=False)
    _look_at(h, digest)
    assert PASSWORD not in bench.output()

    # A server that dies comes back, with no container of the dead one in its way.
    before = show(h, "MainPID")
    assert h.ssh("sudo", "kill", "-KILL", before).returncode == 0
    until = time.monotonic() + 120
    while show(h, "MainPID") in ("0", before) or h.ssh(LISTENS).returncode != 0:
        assert time.monotonic() < until, h.ssh("sudo", "journalctl", "--unit", "fleetctl-chat.service").stdout
    assert containers(h) == ["fleetctl-chat"]

    _stop_during_a_stream(bench, variables)
    assert containers(h) == []
    (undone,) = bench.run("uninstall", variables)
    assert (undone.state, undone.detail) == ("ok", "")
    assert h.ssh("systemctl", "cat", "fleetctl-chat.service").returncode != 0
    assert h.running("conmon") + h.running(SERVER) == []
    assert h.ssh("ls", "/var/cache/fleetctl").returncode != 0
    assert nb.packages(h) == packages


def _look_at(h: nl.RealHost, digest: str) -> None:
    """Prove by other means than the role's that the server runs in that image, in its unit's control group, with what it was given."""
    asked = ("{{.ImageDigest}}", "{{.State.Pid}}")
    found = [h.ssh("sudo", "podman", "container", "inspect", "--format", f"'{a}'", "fleetctl-chat").stdout.strip() for a in asked]
    assert found[0] == digest
    environment = h.ssh("sudo", "cat", f"/proc/{found[1]}/environ").stdout.split("\0")
    assert {"TOKEN=s3cr3t-9f41c7", "HIP_VISIBLE_DEVICES=0,1", "XDG_CACHE_HOME=/var/cache/fleetctl"} <= set(environment)
    assert "s3cr3t" not in h.ssh("ps", "-eo", "args").stdout
    assert f"0::{show(h, 'ControlGroup')}/" in h.ssh("cat", f"/proc/{found[1]}/cgroup").stdout, "what systemd kills with the unit"
    assert h.ssh("sudo", "cat", "/var/cache/fleetctl/chat/written").stdout == "by the server", "its cache outlives it"
    inside = ("sudo", "podman", "exec", "fleetctl-chat", "/usr/bin/python3", "-c")
    assert h.ssh(*inside, "'print(open(\"/srv/models/w.bin\").read())'").stdout.strip() == "weights"
    written = h.ssh(*inside, '\'open("/srv/models/x","w")\'')
    assert "Read-only file system" in written.stderr
    assert h.ssh("ls", SERVER).returncode != 0, "the host itself has no such program"


def _stop_during_a_stream(bench: nb.Bench, variables: dict[str, object]) -> None:
    h = bench.lab.hosts[0]
    got: list[subprocess.CompletedProcess[str]] = []
    stream = threading.Thread(target=lambda: got.append(h.ssh(READ)))
    stream.start()
    assert h.ssh(STREAMS).returncode == 0
    began = time.monotonic()
    try:
        run(bench, "drain", variables)
    finally:
        stream.join()
    assert AFTER_S * 0.9 < time.monotonic() - began < STOP_S
    said = got[0].stdout.split()
    assert said == ["token"] * (len(said) - 1) + ["end"], got[0].stderr
    assert len(said) > AFTER_S * 20
    assert show(h, "ActiveState") == "inactive"
    assert show(h, "Result") == "success"
