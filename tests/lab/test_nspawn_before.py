"""Driver, kernel, disks and what was there before, on a real host. Emulated: modinfo, modprobe, blkid, the module's folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleetctl.domain.provision import HostResult
from fleetctl.lab.standins import NEW, OLD
from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
MODULE = "/run/standin/module"
MODINFO = """\
#!/bin/sh
# STAND-IN for modinfo: the module is what the stand-in package says.
case "$2" in
  filename) echo /lib/modules/standin/updates/dkms/amdgpu.ko ;;
  srcversion) dpkg-query -W -f '${Version}\\n' amdgpu-dkms ;;
esac
"""
MODPROBE = f"""\
#!/bin/sh
# STAND-IN for modprobe: a folder is the loaded module.
if [ "$1" = --remove ]; then
  [ "$2" = amdgpu ] || exit 1
  [ ! -e /run/standin/held ] || {{ echo "Module amdgpu is in use." >&2; exit 1; }}
  exec rm -r {MODULE}
fi
if [ "$1" = --dry-run ]; then
  [ ! -e /run/standin/no-modules-extra ] || {{ echo "Module ttm not found." >&2; exit 1; }}
  exit 0
fi
mkdir -p {MODULE}/parameters /run/standin/dev
case "$*" in *ip_block_mask=0x7f*) echo 127 ;; *) echo 4294967295 ;; esac > {MODULE}/parameters/ip_block_mask
touch /run/standin/dev/kfd && modinfo --field srcversion amdgpu > {MODULE}/srcversion
"""
DKMS = """\
#!/bin/sh
# STAND-IN for dkms: a folder is a driver's tree.
case "$1" in
  status) for tree in /var/lib/dkms/amdgpu/*; do [ -d "$tree" ] && echo "amdgpu/$(basename $tree), 6.8.0-1, x86_64: installed"; done ;;
  remove) echo "$2" >> /var/lib/standin-dkms-removed && rm -rf "/var/lib/dkms/$2" ;;
esac
exit 0
"""
INITRAMFS = """\
#!/bin/sh
# STAND-IN for update-initramfs: what it would hold is listed in a file.
echo run >> /var/lib/standin-initramfs-runs
ls -d /etc/modprobe.d/* | sed 's,^/,,' > /var/lib/standin-initramfs
"""
LSINITRAMFS = """\
#!/bin/sh
# STAND-IN for lsinitramfs.
cat /var/lib/standin-initramfs 2>/dev/null; exit 0
"""
BLKID = """\
#!/bin/sh
# STAND-IN for blkid: the second disk holds a file system.
for disk; do :; done
[ "$disk" = /dev/standin1 ] && echo TYPE=ext4 && exit 0
exit 2
"""
TOOLS = {
    "modinfo": MODINFO,
    "modprobe": MODPROBE,
    "blkid": BLKID,
    "dkms": DKMS,
    "update-initramfs": INITRAMFS,
    "lsinitramfs": LSINITRAMFS,
}
LOADED = {
    "amdgpu_driver_load": True,
    "amdgpu_driver_accelerators": 0,
    "amdgpu_driver_settle": 0,
    "amdgpu_driver_module": MODULE,
    "amdgpu_driver_devices": "/run/standin/dev",
    "amdgpu_driver_initramfs": "/usr/local/sbin/update-initramfs",
}
TAGS = ("apt_ready", "amdgpu_driver")


@pytest.fixture(scope="module")
def bench() -> Iterator[nb.Bench]:
    with nb.bench(1) as made:
        for name, text in TOOLS.items():
            path = made.lab.hosts[0].root / "usr/local/sbin" / name
            path.write_text(text)
            path.chmod(0o755)
        yield made


def run(bench: nb.Bench, play: str, version: str, tags: tuple[str, ...] = TAGS) -> HostResult:
    (result,) = bench.run(play, bench.repository.variables(version) | LOADED, tags=tags)
    return result


def undo(bench: nb.Bench, variables: dict[str, object], *tags: str) -> None:
    (undone,) = bench.run("uninstall", variables, tags=(*tags, "node_manifest"))
    assert (undone.state, undone.detail) == ("ok", "")


def loaded(h: nl.RealHost) -> str:
    return h.ssh("cat", f"{MODULE}/srcversion").stdout.strip()


def test_the_module_that_runs_is_the_one_that_is_installed_or_the_run_says_why_not(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    packages = nb.packages(h)
    (h.root / "var/lib/dkms/amdgpu/6.0.0-old").mkdir(parents=True)
    for changed in (True, False):
        result = run(bench, "rocm_node", OLD)
        assert (result.state, result.detail, bool(result.changed)) == ("ok", "", changed), bench.changed_roles()
        assert loaded(h) == OLD
    assert (h.root / "var/lib/standin-dkms-removed").read_text() == "amdgpu/6.0.0-old\n"
    assert not (h.root / "var/lib/dkms/amdgpu").exists()
    assert (h.root / "var/lib/standin-initramfs-runs").read_text() == "run\n"
    assert "etc/modprobe.d/fleetctl-amdgpu.conf" in (h.root / "var/lib/standin-initramfs").read_text()

    h.ssh("sudo", "touch", "/run/standin/held")  # as a model server does that has the device open
    refused = run(bench, "rocm_node", NEW)
    assert refused.state == "failed"
    assert "configure.driver" in refused.detail
    assert "--play upgrade" in refused.detail
    assert loaded(h) == OLD
    h.ssh("sudo", "rm", "/run/standin/held")

    upgraded = run(bench, "upgrade", NEW)
    assert (upgraded.state, upgraded.detail) == ("ok", "")
    assert loaded(h) == NEW
    assert run(bench, "rocm_node", NEW).changed == 0

    # A module that the initial RAM file system has loaded has no mask: it is loaded anew.
    assert h.ssh("echo 4294967295 | sudo tee", f"{MODULE}/parameters/ip_block_mask").returncode == 0
    again = run(bench, "rocm_node", NEW)
    assert (again.state, again.detail) == ("ok", "")
    assert h.ssh("cat", f"{MODULE}/parameters/ip_block_mask").stdout == "127\n"

    h.ssh("sudo", "touch", "/run/standin/no-modules-extra")
    lacking = run(bench, "rocm_node", NEW)
    assert (lacking.state, "Module ttm not found" in lacking.detail, "linux-modules-extra" in lacking.detail) == ("failed", True, True)
    h.ssh("sudo", "rm", "/run/standin/no-modules-extra")

    assert run(bench, "uninstall", NEW, (*TAGS, "node_manifest")).state == "ok"
    assert loaded(h) == ""
    assert "fleetctl" not in (h.root / "var/lib/standin-initramfs").read_text(), "its undo reaches the initial RAM file system too"
    assert nb.packages(h) == packages


def test_the_packaged_exporter_runs_with_its_agent_and_shows_a_metric_or_is_refused(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    packages = nb.packages(h)
    package = {"gpu_exporter_packages": [{"name": "standin-amd-exporter", "version": OLD}], "gpu_exporter_wait": 10}
    both = bench.repository.variables() | package | {"gpu_exporter_services": ["standin-agent", "standin-metrics"]}
    tags = ("apt_ready", "gpu_exporter")
    for changed in (True, False):
        (result,) = bench.run("rocm_node", both, tags=tags)
        assert (result.state, result.detail, bool(result.changed)) == ("ok", "", changed)
    assert h.ssh("systemctl", "is-active", "standin-agent", "standin-metrics").stdout == "active\nactive\n"
    undo(bench, both, *tags)
    assert nb.packages(h) == packages
    assert h.ssh("systemctl", "is-active", "standin-agent", "standin-metrics").returncode != 0

    alone = both | {"gpu_exporter_services": ["standin-metrics"]}
    (refused,) = bench.run("rocm_node", alone, tags=tags)
    assert (refused.state, "configure.exporter" in refused.detail) == ("failed", True)
    undo(bench, both, *tags)


def test_a_kernel_without_headers_is_refused(bench: nb.Bench) -> None:
    variables = bench.repository.variables() | {"kernel_pin_headers": True}
    (refused,) = bench.run("rocm_node", variables, tags=("apt_ready", "kernel_pin"))
    assert refused.state == "failed"
    assert "configure.kernel" in refused.detail
    undo(bench, variables, "apt_ready", "kernel_pin")


BOOTED = """\
[Unit]
Description=STAND-IN for a pinned kernel: its headers are those of the kernel that runs, from the next boot on

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mkdir -p /lib/modules/$(uname -r) && ln -sfn /lib/modules/standin-pinned/build /lib/modules/$(uname -r)/build'

[Install]
WantedBy=sysinit.target
"""


def test_one_reboot_goes_into_a_pinned_kernel_and_never_a_second(bench: nb.Bench) -> None:
    h, tags = bench.lab.hosts[0], ("apt_ready", "kernel_pin")
    variables = bench.repository.variables() | {"kernel_pin_headers": True, "kernel_pin_may_reboot": True}

    def pinned(told: dict[str, object] = variables) -> tuple[HostResult, int]:
        before = h.reboots
        (result,) = bench.run("rocm_node", told, tags=tags)
        return result, h.reboots - before

    for said in ("no other kernel has headers either", "no other kernel"):
        result, reboots = pinned()
        assert (result.state, reboots, said in result.detail) == ("failed", 0, True)
    assert h.ssh("sudo", "mkdir", "-p", "/lib/modules/standin-pinned/build", "/etc/fleetctl/units").returncode == 0
    assert h.ssh("sudo", "touch", "/etc/fleetctl/units/chat.env").returncode == 0
    result, reboots = pinned()
    assert (result.state, reboots, "not rebooted beside its model servers" in result.detail) == ("failed", 0, True)
    assert h.ssh("sudo", "rm", "-r", "/etc/fleetctl/units").returncode == 0
    for wanted in (1, 0):  # it does not come up in the pinned one
        result, reboots = pinned()
        assert (result.state, reboots, "configure.kernel" in result.detail) == ("failed", wanted, True)
    assert "one reboot was spent on it" in result.detail
    assert h.ssh("sudo", "rm", "/var/lib/fleetctl/rebooted-into-kernel").returncode == 0
    unit = h.root / "etc/systemd/system/standin-pinned.service"
    unit.write_text(BOOTED)
    assert h.ssh("sudo", "systemctl", "enable", "standin-pinned.service").returncode == 0
    result, reboots = pinned()
    assert (result.state, result.detail, reboots) == ("ok", "", 1)
    assert h.ssh("ls", "/var/lib/fleetctl/rebooted-into-kernel").returncode != 0, "the next pinned kernel may cost a reboot of its own"
    result, reboots = pinned()
    assert (result.state, result.changed, reboots) == ("ok", 0, 0)
    undo(bench, variables, *tags)
    h.ssh("sudo", "systemctl", "disable", "standin-pinned.service")
    unit.unlink()
    h.ssh("sudo", "sh", "-c", "'rm -r /lib/modules/standin-pinned /lib/modules/$(uname -r)'")


SICK_SMI = "#!/bin/sh\n# STAND-IN for an amd-smi that {how}.\n{does}\n"


@pytest.mark.parametrize(("how", "does"), [("fails", "exit 1"), ("sees no accelerator", "echo '[]'")])
def test_a_collector_without_a_metric_of_an_accelerator_is_refused(bench: nb.Bench, how: str, does: str) -> None:
    h, variables, tags = bench.lab.hosts[0], bench.repository.variables(), ["gpu_exporter"]
    there = h.root / "usr/local/bin/amd-smi"
    there.write_text(SICK_SMI.format(how=how, does=does))
    there.chmod(0o755)
    (refused,) = bench.run("rocm_node", variables, tags=tags)
    assert (refused.state, "configure.exporter: the collector shows no metric" in refused.detail) == ("failed", True)
    (none,) = bench.run("rocm_node", variables | {"rocm_accelerators": 0}, tags=tags)
    assert (none.state, none.detail) == ("ok", "")
    undo(bench, variables, *tags)
    there.unlink()


ENGINE = """\
#!/bin/sh
# STAND-IN for a container engine: a file is an image.
cd /var/lib/standin-images 2>/dev/null || { mkdir -p /var/lib/standin-images; cd /var/lib/standin-images; }
for last; do :; done
name=$(echo "$last" | tr '/:' '__')
case "$1 $2" in
  "image inspect") [ -e "$name" ] && echo "[$last]" ;;
  "image rm") rm "$name" && echo "Untagged: $last" ;;
  pull*) touch "$name" ;;
  *) echo "engine 1" ;;
esac
"""


def test_an_image_that_was_there_before_us_stays_and_ours_goes_whatever_release_is_named_then(bench: nb.Bench) -> None:
    h, tags = bench.lab.hosts[0], ["container_engine"]
    engine = h.root / "usr/local/bin/standin-podman"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    theirs, old, new = (f"docker.io/rocm/vllm@sha256:{c * 64}" for c in "abc")
    assert h.ssh("sudo", "standin-podman", "pull", theirs).returncode == 0
    held = {"container_engine_packages": [], "container_engine_command": "/usr/local/bin/standin-podman"}
    variables = bench.repository.variables() | held
    for images, changed in (([theirs, old], True), ([theirs, old], False), ([theirs, new], True)):
        (made,) = bench.run("rocm_node", variables | {"container_engine_images": images}, tags=tags)
        assert (made.state, made.detail, bool(made.changed)) == ("ok", "", changed)
    for _ in range(2):
        undo(bench, variables | {"container_engine_images": [theirs, new]}, *tags)
        assert [h.ssh("sudo", "standin-podman", "image", "inspect", i).returncode for i in (theirs, old, new)] == [0, 1, 1]
    engine.unlink()


def test_a_disk_that_holds_something_is_refused_before_a_change(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    packages = nb.packages(h)
    assert h.ssh("sudo", "touch", "/dev/standin0", "/dev/standin1").returncode == 0
    variables = bench.repository.variables() | {"nvme_raid_devices": ["/dev/standin0", "/dev/standin1"]}
    (refused,) = bench.run("rocm_node", variables, tags=["nvme_raid"])
    assert refused.state == "failed"
    assert "configure.disk: nothing was changed, because /dev/standin1 " in refused.detail
    assert nb.packages(h) == packages
    undo(bench, variables)


def test_uninstalling_twice_takes_nothing_that_was_there_before(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    h.ssh("sudo", "apt-mark", "hold", "udev")
    packages = nb.packages(h)
    variables = bench.repository.variables() | {"container_engine_packages": [{"name": "kmod"}, {"name": "udev"}]}
    (made,) = bench.run("rocm_node", variables, tags=["container_engine"])
    assert (made.state, made.detail) == ("ok", "")
    assert h.ssh("apt-mark", "showhold").stdout == "kmod\nudev\n"
    for _ in range(2):
        undo(bench, variables, "container_engine")
        assert nb.packages(h) == packages


def test_what_others_have_installed_since_stays_with_what_came_along(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    packages = nb.packages(h)
    variables = bench.repository.variables()
    tags = ("apt_ready", "amdgpu_driver")
    (made,) = bench.run("rocm_node", variables, tags=tags)
    assert (made.state, made.detail) == ("ok", "")
    asked = h.ssh("sudo", "apt-get", "install", "--yes", "--no-install-recommends", "rocminfo")
    assert asked.returncode == 0, asked.stderr
    assert "rocm-core" in h.ssh("apt-mark", "showauto").stdout.split()
    undo(bench, variables, *tags)
    came = {line.split()[0] for line in set(nb.packages(h)) - set(packages)}
    assert came == {"rocminfo", "rocm-core"}
    assert h.ssh("sudo", "apt-get", "purge", "--yes", "rocminfo", "rocm-core").returncode == 0
    assert nb.packages(h) == packages


def test_a_cache_that_is_a_file_system_of_its_own_stays(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    assert h.ssh("sudo", "mkdir", "/srv/models").returncode == 0
    assert h.ssh("sudo", "mount", "-t", "tmpfs", "tmpfs", "/srv/models").returncode == 0
    variables = bench.repository.variables() | {"model_store_folder": "/srv/models"}
    (made,) = bench.run("rocm_node", variables, tags=["model_store"])
    assert (made.state, made.detail) == ("ok", "")
    undo(bench, variables, "model_store")
    assert h.ssh("ls", "/srv/models/m").stdout == "weights.bin\n"
