"""Assess, adapter layer: translate one CUDA file (hipify-perl, else hipify-clang, else our table) and compile it for the target with hipcc.

Never runs what it compiles: device code only, to an object in a scratch folder that is thrown away.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fleetctl.adapters.probes.sandbox import Ended, Limits, first_line, run
from fleetctl.assess.convert import convert
from fleetctl.domain.portability import ApiName, ProbeResult

_MISSING = re.compile(r"fatal error: '([^']{1,200})' file not found")
_CUDA_HEADER = re.compile(r"^(?:cuda|nv|cub/|thrust/|cooperative|cutlass|cute/|mma|Nv|texture|surface|cublas|cudnn|cufft|cu)")
_NOT_ITS_FAULT = (
    "invalid target ID",
    "unsupported HIP gpu architecture",
    "cannot find ROCm",
    "cannot find HIP",
    "Cannot find",
    "not found: ",
)


class HipProbe:
    """Implements the port Probe with hipcc.

    Args:
        names: for the translation where hipify-perl is not installed; tools: programs by name, for tests.
    """

    name = "hipcc"

    def __init__(self, names: Mapping[str, ApiName], *, tools: Mapping[str, str] | None = None, limits: Limits | None = None) -> None:
        self._names = names
        self._tools = tools or {}
        self._limits = limits or Limits()

    def _tool(self, name: str) -> str:
        return self._tools.get(name) or shutil.which(name) or ""

    def missing(self) -> str:
        """Return what is not installed."""
        return "" if self._tool("hipcc") else "hipcc is not installed (Debian 13: apt-get install hipcc hipify-perl)"

    def wants(self, path: str, text: str) -> bool:
        """Tell whether a file is a CUDA translation unit with kernels."""
        return path.lower().endswith(".cu") and ("__global__" in text or "__device__" in text)

    def probe(self, root: Path, path: str, text: str, target: str) -> ProbeResult:
        """Translate and compile."""
        with tempfile.TemporaryDirectory(prefix="fl-probe-") as folder:
            scratch = Path(folder)
            (scratch / "input.cu").write_text(text, encoding="utf-8")
            translated = self._translate(scratch, root, text)
            (scratch / "input.hip").write_text(translated, encoding="utf-8")
            own = (root / path).parent
            argv = [self._tool("hipcc"), "-x", "hip", f"--offload-arch={target}", "--cuda-device-only", "-std=c++17", "-O1", "-w"]
            argv += ["-I", str(own), "-I", str(root), "-I", str(root / "include"), "-c", "input.hip", "-o", "output.o"]
            ended = run(argv, scratch=scratch, readable=[root], limits=self._limits, env={"HIP_PLATFORM": "amd"})
        return _result(path, ended)

    def _translate(self, scratch: Path, root: Path, text: str) -> str:
        made = scratch / "translated.hip"
        for name, more in (("hipify-perl", ["-quiet-warnings"]), ("hipify-clang", ["-o", made.name, "-I", str(root)])):
            if not self._tool(name):
                continue
            ended = run([self._tool(name), "input.cu", *more], scratch=scratch, readable=[root], limits=self._limits, env={})
            said = made.read_text("utf-8", "replace") if made.is_file() and not made.is_symlink() else ended.out
            if ended.code == 0 and said.strip():
                return said
        return convert(text, self._names).text


def _result(path: str, ended: Ended) -> ProbeResult:
    if ended.code == 0:
        return ProbeResult(tool="hipcc", path=path, outcome="passed")
    if ended.code is None or ended.code < 0:
        return ProbeResult(tool="hipcc", path=path, outcome="unknown", detail="it reached a limit of time or memory")
    missing = _MISSING.search(ended.err)
    said = first_line(ended.err, " error: ", "error:")
    if missing and not _CUDA_HEADER.match(missing.group(1)):
        return ProbeResult(
            tool="hipcc", path=path, outcome="unknown", detail=f"a header of the project is not where it is looked for: {said}"
        )
    if not missing and any(m in ended.err for m in _NOT_ITS_FAULT):
        return ProbeResult(tool="hipcc", path=path, outcome="unknown", detail=said)
    return ProbeResult(tool="hipcc", path=path, outcome="failed", detail=said)
