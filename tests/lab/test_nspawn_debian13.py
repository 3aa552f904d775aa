"""Debian 13's real ROCm: the same roles install it, hipify a CUDA program of ours, and compile and link it for gfx942 on the host."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from fleetctl.catalog.matrix import load_matrix
from fleetctl.domain.matrix import Wanted
from fleetctl.planning.check_matrix import release_variables
from tests.lab import debian_mirror
from tests.lab import nspawn_bench as nb
from tests.lab import nspawn_lab as nl

SUITE = "trixie"
pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(3400),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
SOURCE = """\
#include <cuda_runtime.h>
#include <cstdio>

__global__ void twice(float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2.0f;
}

int main() {
  float *x = nullptr;
  cudaError_t e = cudaMalloc(&x, 1024 * sizeof(float));
  if (e == cudaSuccess) {
    twice<<<4, 256>>>(x, 1024);
    e = cudaDeviceSynchronize();
    cudaFree(x);
  }
  printf("%s\\n", cudaGetErrorName(e));
  return e != cudaSuccess;
}
"""
TAGS = ["apt_ready", "rocm", "translation_layer"]


@pytest.fixture(scope="module")
def bench() -> Iterator[nb.Bench]:
    if not debian_mirror.reachable():
        pytest.skip("needs Debian's archive")
    with nb.bench(1, SUITE) as made, debian_mirror.mirror(made.lab.gateway) as uri:
        (made.lab.hosts[0].root / "etc/apt/sources.list").write_text(f"deb {uri} {SUITE} main\n")
        yield made


def test_a_cuda_program_is_hipified_and_linked_for_gfx942_with_debians_own_rocm(bench: nb.Bench) -> None:
    h = bench.lab.hosts[0]
    packages = nb.packages(h)
    wanted = Wanted(release="debian-13-rocm-6.1.2", layer="hip", gpu_target="gfx942", container=False)
    variables: dict[str, object] = release_variables(load_matrix(), wanted) | {
        "translation_layer_sources": [{"name": "twice", "text": SOURCE}],
        "translation_layer_environment": {"CUDA_VISIBLE_DEVICES": "0"},
    }
    for changed in (True, False):
        (result,) = bench.run("rocm_node", variables, tags=TAGS)
        assert (result.state, result.detail) == ("ok", "")
        assert bool(result.changed) == changed, bench.changed_roles()

    held = h.ssh("apt-mark", "showhold").stdout.split()
    assert {"hipcc", "hipify-perl", "rocminfo"} <= set(held)
    folder = "/var/lib/fleetctl/hip"
    translated = h.ssh("cat", f"{folder}/twice.hip").stdout
    assert "hipMalloc(" in translated
    assert "hip/hip_runtime.h" in translated
    assert "cuda" not in translated
    linked = h.ssh("ldd", f"{folder}/twice").stdout
    assert re.search(r"libamdhip64\.so\.\d+ => /", linked), linked
    ran = h.ssh(f"{folder}/twice")
    assert ran.returncode == 1
    assert ran.stdout.strip() in {"hipErrorNoDevice", "hipErrorInvalidDevice"}, "it runs, and a host without an accelerator says so"
    assert 'HIP_VISIBLE_DEVICES="0"' in h.ssh("sudo", "cat", "/etc/fleetctl/translation.env").stdout

    broken = SOURCE.replace("x[i] *= 2.0f", "x[i] = __nvvm_read_ptx_sreg_laneid()")  # a register of NVIDIA's alone
    (failed,) = bench.run("rocm_node", variables | {"translation_layer_sources": [{"name": "broken", "text": broken}]}, tags=TAGS)
    assert failed.state == "failed", "what cannot be compiled is never linked"
    assert "translation_layer" in failed.detail

    assert bench.run("uninstall", variables)[0].state == "ok"
    assert nb.packages(h) == packages
