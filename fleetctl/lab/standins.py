"""Lab, lab layer: an apt repository on the bridge with small STAND-IN packages under AMD's names. None of them is AMD's software.

Run as `python -m fleetctl.lab.standins <folder> <address> <port>` to serve one that was made, until told to stop.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from fleetctl.catalog.matrix import parse_matrix
from fleetctl.domain.matrix import Matrix, Wanted
from fleetctl.errors import LabFailed
from fleetctl.lab.nspawn_needs import usual_modes
from fleetctl.planning.check_matrix import keys_of, release_variables

OLD, NEW = "30.20-standin1", "30.30.3-standin1"
"""The stand-ins' two versions, so that there is one to go up to and one to come back to."""
ENGINE_FOLDER = "usr/lib/emulated-engine"
FAULTS_FOLDER = "var/lib/emulated-engine"
_ENGINE_PARTS = ("__init__", *(f"lab/{n}" for n in ("__init__", "answers", "sampler", "engine_metrics", "faults", "http_server", "engine")))
_LAUNCHER = f"""#!/usr/bin/python3 -I
# The lab's EMULATED engine, as a package. No model: its timings and answers are made up. Arguments: name of the unit, JSON.
import sys
sys.path.insert(0, "/{ENGINE_FOLDER}")
from fleetctl.lab.engine import main
sys.exit(main(["--unit", "/{FAULTS_FOLDER}", *sys.argv[1:]]))
"""

_ROCMINFO = """#!/bin/sh
# STAND-IN for rocminfo: says what a node with 8 MI300X says.
for n in 1 2 3 4 5 6 7 8; do echo "  Name:                    gfx942"; done
"""
_AMD_SMI = """#!/bin/sh
# STAND-IN for amd-smi.
echo '[{"gpu": 0, "power": {"socket_power": {"value": 140, "unit": "W"}}, "temperature": {"hotspot": "N/A"}}]'
"""
_ENGINE = '''#!/usr/bin/python3
"""STAND-IN for a model server: answers one token. Its third argument is the name of the model."""
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        good = body["model"] == sys.argv[2]
        said = json.dumps({"choices": [{"text": "x"}], "usage": {"completion_tokens": 1 if good else 0}}).encode()
        self.send_response(200 if good else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
'''
_EXPORTER_UNIT = """# STAND-IN for an exporter's unit: it does nothing.
[Unit]
Description=STAND-IN exporter
[Service]
ExecStart=/usr/bin/sleep infinity
[Install]
WantedBy=multi-user.target
"""
_AGENT_UNIT = _EXPORTER_UNIT.replace("an exporter's unit: it does nothing", "the agent of AMD's exporter: it does nothing")
_METRICS = '''#!/usr/bin/python3
"""STAND-IN for AMD's exporter: a metric of an accelerator, once its agent runs."""
import http.server, subprocess

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        agent = subprocess.run(["systemctl", "is-active", "--quiet", "standin-agent.service"]).returncode == 0
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"gpu_nodes_total 8\\n" if agent else b"go_goroutines 7\\n")

    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", 5000), Handler).serve_forever()
'''
_PACKAGES: dict[str, dict[str, str]] = {
    "amdgpu-dkms": {"usr/share/doc/amdgpu-dkms/STAND-IN": "not AMD's driver\n"},
    "rocminfo": {"usr/bin/rocminfo": _ROCMINFO},
    "amd-smi-lib": {"usr/bin/amd-smi": _AMD_SMI},
    "rocm-core": {"usr/share/doc/rocm-core/STAND-IN": "comes along with rocminfo\n"},
    "linux-headers-standin": {"usr/share/doc/linux-headers-standin/STAND-IN": "no headers\n"},
    "standin-web": {"usr/share/doc/standin-web/STAND-IN": "something that the host's owner installs\n"},
    "standin-web-common": {"usr/share/doc/standin-web-common/STAND-IN": "comes along with standin-web\n"},
    "standin-profiler": {"usr/share/doc/standin-profiler/STAND-IN": "the owner's too, and it needs rocminfo\n"},
    f"linux-image-{os.uname().release}": {"usr/share/doc/linux-image-standin/STAND-IN": "no kernel\n"},
    "linux-image-standin": {"usr/share/doc/linux-image-standin-meta/STAND-IN": "no kernel either\n"},
    "standin-engine": {"usr/lib/standin-engine/serve": _ENGINE},
    "standin-exporter": {"usr/lib/systemd/system/standin-exporter.service": _EXPORTER_UNIT},
    "standin-amd-exporter": {
        "usr/lib/systemd/system/standin-agent.service": _AGENT_UNIT,
        "usr/lib/systemd/system/standin-metrics.service": _EXPORTER_UNIT.replace(
            "/usr/bin/sleep infinity", "/usr/lib/standin-metrics/serve"
        ),
        "usr/lib/standin-metrics/serve": _METRICS,
    },
    "standin-nvidia-utils": {"usr/bin/nvidia-smi": "#!/bin/sh\n# STAND-IN for nvidia-smi: says a version.\necho 580.95.05\n"},
    "emulated-engine": {
        f"{ENGINE_FOLDER}/serve": _LAUNCHER,
        f"{FAULTS_FOLDER}/README": "Faults of the lab, a file per unit.\n",
        **{f"{ENGINE_FOLDER}/fleetctl/{part}.py": (Path(__file__).parents[1] / f"{part}.py").read_text("utf-8") for part in _ENGINE_PARTS},
    },
}

DRIVER_PART, _DRIVERS = "driver", ("amdgpu-dkms",)
"""Folder of the second repository, and what is in it alone: AMD ships its driver and ROCm from two."""

_DEPENDS = {
    "rocminfo": "rocm-core",
    "standin-web": "standin-web-common",
    "standin-profiler": "rocminfo",
    "linux-image-standin": f"linux-image-{os.uname().release}",
}
_POSTINST = {"amdgpu-dkms": "#!/bin/sh\n# STAND-IN for a build that takes its time.\nif [ -e /run/standin-slow ]; then sleep 300; fi\n"}


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


def _server(folder: Path, address: str, port: int) -> http.server.ThreadingHTTPServer:
    return http.server.ThreadingHTTPServer((address, port), functools.partial(_Quiet, directory=str(folder)))


def _said(argv: list[str], folder: Path, env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise LabFailed("lab.packages", f"{argv[0]} could not be run to its end: {e}.", hint="Run: fleetctl lab down") from None
    if done.returncode != 0:
        raise LabFailed("lab.packages", f"{argv[0]} failed: {done.stderr.strip()[-300:]}.", hint="Run: fleetctl lab down")
    return done.stdout


@dataclass(kw_only=True)
class Repository:
    """A signed repository, served on the bridge.

    Args:
        folder: where it lies; address: of the bridge; port: 0 chooses one; fingerprint, key: of the key that signs.
    """

    folder: Path
    address: str
    fingerprint: str = ""
    key: str = ""
    port: int = 0
    _server: http.server.ThreadingHTTPServer | None = None

    @property
    def uri(self) -> str:
        """Return where it is served."""
        return f"http://{self.address}:{self.port}"

    def make(self) -> None:
        """Build packages in two versions, sign and serve them.

        Raises:
            LabFailed: lab.packages.
        """
        self.build()
        self._server = _server(self.folder, self.address, self.port)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @usual_modes()
    def build(self) -> None:
        """Build packages in two versions and sign their lists; nothing is served.

        Raises:
            LabFailed: lab.packages.
        """
        for part in self._parts():
            (part / "pool").mkdir(parents=True)
        for version in (OLD, NEW):
            for name, files in _PACKAGES.items():
                self._package(name, version, files)
        self.fingerprint, self.key = self.new_key("signing")
        self.sign()
        (self.folder / "weights.bin").write_bytes(_WEIGHTS)

    def close(self) -> None:
        """Serve no more."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()

    def sign(self) -> None:
        """Write the lists and sign them with the signing key."""
        for part in self._parts():
            where = part / "dists/standin/main/binary-amd64"
            where.mkdir(parents=True, exist_ok=True)
            (where / "Packages").write_text(_said(["apt-ftparchive", "packages", "pool"], part))
            options = ["-o", "APT::FTPArchive::Release::Suite=standin", "-o", "APT::FTPArchive::Release::Components=main"]
            options += ["-o", "APT::FTPArchive::Release::Architectures=amd64"]
            (part / "dists/standin/InRelease").unlink(missing_ok=True)
            (part / "dists/standin/Release").write_text(_said(["apt-ftparchive", *options, "release", "dists/standin"], part))
            made = [str(part / "dists/standin" / name) for name in ("InRelease", "Release")]
            self._gpg("--clearsign", "--local-user", self.fingerprint, "-o", *made)

    def _parts(self) -> tuple[Path, Path]:
        """Return the folders of the repository of ROCm and all else, and of the driver's."""
        return self.folder, self.folder / DRIVER_PART

    def new_key(self, name: str, *, expires: str = "never", made: str = "") -> tuple[str, str]:
        """Make a key and return its fingerprint and its armoured public half.

        Args:
            made: date the key was made at, such as 20200101T000000, for keys that have expired.
        """
        faked = ["--faked-system-time", made] if made else []
        self._gpg(*faked, "--passphrase", "", "--quick-gen-key", f"STAND-IN {name} <{name}@standin.invalid>", "ed25519", "sign", expires)
        listed = self._gpg("--with-colons", "--list-keys", f"{name}@standin.invalid")
        print_ = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))
        return print_, self._gpg("--armor", "--export", print_)

    def _gpg(self, *argv: str) -> str:
        home = self.folder.parent / "gpg"
        home.mkdir(mode=0o700, exist_ok=True)
        env = {"PATH": os.environ["PATH"], "GNUPGHOME": str(home)}
        argv_ = ["gpg", "--batch", "--pinentry-mode", "loopback", *argv]
        return _said(argv_, self.folder, env)

    def stop_agent(self) -> None:
        """End the agent that gpg left running."""
        env = {"PATH": os.environ["PATH"], "GNUPGHOME": str(self.folder.parent / "gpg")}
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], env=env, check=False, capture_output=True)

    def _package(self, name: str, version: str, files: dict[str, str]) -> None:
        tree = self.folder.parent / "build" / f"{name}-{version}"
        for path, text in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text.replace("STAND-IN", f"STAND-IN {version}"))
            (tree / path).chmod(0o755)
        control = {
            "Package": name,
            "Version": version,
            "Architecture": "amd64",
            "Maintainer": "STAND-IN <standin@standin.invalid>",
            "Description": f"STAND-IN for {name}, for tests only: this is not AMD's software",
        }
        if name in _DEPENDS:
            control["Depends"] = _DEPENDS[name]
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN/control").write_text("".join(f"{k}: {v}\n" for k, v in control.items()))
        if name in _POSTINST:
            (tree / "DEBIAN/postinst").write_text(_POSTINST[name])
            (tree / "DEBIAN/postinst").chmod(0o755)
        out = self._parts()[name in _DRIVERS] / "pool" / f"{name}_{version}_amd64.deb"
        _said(["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(out)], self.folder)
        shutil.rmtree(tree)

    def matrix(self) -> Matrix:
        """Return a version matrix of the stand-ins in both versions."""
        return parse_matrix(self.matrix_text(), "standin")

    def matrix_text(self) -> str:
        """Return that matrix as the file's text."""
        parts = (("rocm", self.uri), ("amdgpu", f"{self.uri}/{DRIVER_PART}"))
        repositories = [{"name": n, "uri": uri, "suite": "standin", "components": "main", "key": "standin"} for n, uri in parts]
        releases = [
            {
                "id": f"standin-{version}", "vendor": "amd", "os": "debian", "os_version": "12",
                "kernel_series": "any", "kernel_flavour": "",
                "driver": version, "rocm": version, "repositories": repositories,
                "driver_packages": {"amdgpu-dkms": version}, "rocm_packages": {"rocminfo": version, "amd-smi-lib": version},
                "kernel_packages": {"linux-headers-standin": version}, "layers": ["native", "hip"], "image": "none", "image_digest": "none",
                "source": "made by this test", "as_of": "2026-11-30",
            }
            for version in (OLD, NEW)
        ]  # fmt: skip
        key = {"name": "standin", "fingerprint": self.fingerprint, "expires": "never", "source": "this test", "as_of": "2026-11-30"}
        whole = {"format_version": 1, "as_of": "2026-11-30", "keys": [key], "downloads": [], "releases": releases}
        return json.dumps(whole)

    def roles(self, version: str = OLD) -> dict[str, object]:
        """Return what the roles are told on a host of stand-ins, without the release's own values, key, servers and models."""
        return {
            "kernel_pin_headers": False,  # the kernel is that of the machine outside
            "amdgpu_driver_load": False,  # there is no device and no module to load in a container
            "rocm_accelerators": 8,
            "host_tuning_live": False,  # /proc/sys is read-only in a container
            "host_tuning_platform": "azure-guest",
            "container_engine_packages": [{"name": "standin-engine", "version": version}],
            "container_engine_command": "/bin/true",
            "translation_layer_environment": {
                "CUDA_VISIBLE_DEVICES": "0,1",
                "NCCL_NVLS_ENABLE": "1",
                "NCCL_MIN_NCHANNELS": "112",
                "PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.9",
                "CUDA_LAUNCH_BLOCKING": "1",
            },
            "model_store_files": [
                {"path": "m/weights.bin", "url": f"{self.uri}/weights.bin", "sha256": hashlib.sha256(_WEIGHTS).hexdigest()},
            ],
            "health_gate_profile": "none",
        }

    def variables(self, version: str = OLD, *, model: str = "standin-model", port: int = 8000, name: str = "chat") -> dict[str, object]:
        """Return what the site play needs to make a host of stand-ins."""
        wanted = Wanted(release=f"standin-{version}", layer="native", gpu_target="gfx942", container=False)
        argv = ["/usr/lib/standin-engine/serve", str(port), model]
        return {
            **release_variables(self.matrix(), wanted),
            **self.roles(version),
            "apt_ready_keys": keys_of(self.matrix(), wanted, {"standin": self.key}),
            "model_server_units": [{"name": name, "argv": argv, "environment": {"TOKEN": "s3cr3t-9f41c7"}, "port": port, "model": model}],
        }


_WEIGHTS = b"weights of a stand-in\n"


def main(argv: list[str]) -> int:
    """Serve `<folder> <address> <port>` until SIGTERM or SIGINT. Returns an exit code."""
    if len(argv) != 3:
        sys.stderr.write("usage: python -m fleetctl.lab.standins <folder> <address> <port>\n")
        return 2
    server = _server(Path(argv[0]), argv[1], int(argv[2]))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    with server:
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
