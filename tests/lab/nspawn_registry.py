"""Configure, test bench: a private registry on a real host's loopback, and images of the host's own files. Never a test."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tests.lab.nspawn_lab import RealHost

ADDRESS, PASSWORD = "127.0.0.1:5000", "hush-registry"
REGISTRIES = [{"address": ADDRESS, "username": "ops", "password": PASSWORD}]
IMAGE = f"{ADDRESS}/lab/image"
_REGISTRY = f"""\
version: 0.1
storage: {{filesystem: {{rootdirectory: /var/lib/docker-registry}}}}
http: {{addr: "{ADDRESS}"}}
auth: {{htpasswd: {{realm: lab, path: /etc/docker/registry/htpasswd}}}}
"""
_STORAGE = '[storage]\ndriver = "vfs"\nrunroot = "/run/containers"\ngraphroot = "/var/lib/containers"\n'
"""An overlay cannot lie on the overlay that a host's root is."""


def image_of(h: RealHost, files: Sequence[str]) -> str:
    """Push an image of a host's files, below its root, to a registry on the host that has podman and docker-registry; return its digest."""
    (h.root / "etc/containers/registries.conf.d").mkdir(parents=True, exist_ok=True)
    (h.root / "etc/containers/registries.conf.d/lab.conf").write_text(f'[[registry]]\nlocation = "{ADDRESS}"\ninsecure = true\n')
    (h.root / "etc/containers/storage.conf").write_text(_STORAGE)
    (h.root / "etc/docker/registry/config.yml").write_text(_REGISTRY)
    hashed = f"import crypt; print('ops:' + crypt.crypt('{PASSWORD}', crypt.mksalt(crypt.METHOD_BLOWFISH)))"
    (h.root / "etc/docker/registry/htpasswd").write_text(h.ssh(f'python3 -W ignore -c "{hashed}"').stdout)
    steps = (
        "systemctl restart docker-registry.service",
        f"tar -C / -cf /tmp/image.tar {shlex.join(files)}",
        f"podman import --quiet /tmp/image.tar {IMAGE}:1",
        f"podman push --quiet --creds ops:{PASSWORD} --digestfile /tmp/digest {IMAGE}:1",
        "podman image rm --all --force",
    )
    for step in steps:
        done = h.ssh("sudo", *shlex.split(step))
        assert done.returncode == 0, (step, done.stdout, done.stderr)
    digest = h.ssh("sudo", "cat", "/tmp/digest").stdout.strip()
    assert digest.startswith("sha256:")
    return digest
