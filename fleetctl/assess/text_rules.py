"""Assess, pure layer: rules on build files, containers, settings, flags and Python; which scopes a file name has. Never I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from fleetctl.assess.file_kinds import BUILD_NAMES, BUILD_SUFFIXES, CONFIG_NAMES, CONFIG_SUFFIXES, CONTAINER_NAMES, CONTAINER_SUFFIXES
from fleetctl.assess.installs import unsaid
from fleetctl.assess.manifests import is_requirement_file
from fleetctl.domain.portability import Rule, RuleBook

LONGEST_LINE = 2000
"""Characters of a line that patterns see: no pattern can then take long, whatever the file holds."""
MOST_PLACES = 2000
"""Places kept per rule and text; more are counted only."""
_GATE = re.compile(
    r"[nN][vV][iI][dD][iI][aA]|NCCL_|cuda|CUDA|torch|vllm|VLLM|sglang|rocm|--gpus|HSA_|ray\b|[tT]ensor|marlin|cutlass|jit|autotune|backend"
    r"|platform|quantiz|QUANTIZ|EetqConfig|AqlmConfig|VptqConfig|SpQRConfig|kv-|speculative|lora|--tp|pynvml|capability|ROCR_|FROM|disaggregation|cudadevrt|arch_list|amazonlinux|ubi|hip"
    r"|CUDNN|cu1|ptxas|cuobjdump|fatbinary|text-generation|text-embeddings|ollama|lmdeploy|flash|tma_desc|_experimental|NCCL|NVTX|CUB|Thrust|nv|NV|trt|TRT|Provider|rapids|sm_|-l(?:cu|nv|nccl)|Cuda|triton|TRITON|modelFormat|find_library|xinference|infinity|lorax|axolotl|unsloth|mosaicml|aphrodite|ray-llm|--nv\b|gpu|-acc"
)
_COMMENT = re.compile(r"[ \t]*(?:#(?!\s*include)|//)")
HIP_BUILD = re.compile(
    r"enable_language\(\s*HIP|find_package\(\s*(?:hip|HIP|hipblas|rocblas|ROCM)\b|\bhip_add_(?:executable|library)|LANGUAGES[^)\n]*\bHIP\b"
    r"|\b(?:USE|ENABLE|WITH|BUILD|BUILD_WITH|GGML|LLAMA|GGML_USE|CT2_USE|PYTORCH_BUILD)_(?:HIP|ROCM|HIPBLAS)\b|torch\.version\.hip|\bROCM_HOME\b"
    r"|\bIS_HIP_EXTENSION\b|\bPYTORCH_ROCM_ARCH\b|--offload-arch|\bhipcc\b"
)
COMPILES_HIP = re.compile(
    r"enable_language\(\s*HIP|find_package\(\s*(?:hip|HIP)\b|\bhip_add_(?:executable|library)|LANGUAGES[^)\n]*\bHIP\b|\bLANGUAGE\s+HIP\b"
    r"|\bhip::(?:device|host)\b|--offload-arch|\bhipcc\b[^\n]*(?:\$|\.(?:cu|cpp|hip)\b)|\b(?:CXX|CC|NVCC|HIPCC)\s*[:?]?=\s*\S*hipcc\b|dependency\(\s*['\"]hip"
)
"""What makes a build compile by HIP, not only have a switch for it."""
WHOLE_COMMENTS = re.compile(r"^[ \t]*(?:#|//)[^\n]*", re.MULTILINE)


class TextHit(NamedTuple):
    """One place where a rule matched; `times` more than 1 where it stands for the rest of its text."""

    rule: str
    line: int
    subject: str
    times: int = 1


def scopes_of(path: str, text: str = "") -> frozenset[str]:
    """Return the kinds of text that a file of this name may hold; one without an ending is known by the first line of its text."""
    name = path.replace("!", "/").rpartition("/")[2].lower()
    found: set[str] = set()
    if "." not in name and text.startswith("#!"):
        first = text[:200].partition("\n")[0]
        return frozenset({"python", "env"}) if "python" in first else frozenset({"config", "env", "flags"})
    if name.startswith(CONTAINER_NAMES) or name.endswith(CONTAINER_SUFFIXES):
        found |= {"docker", "env", "flags"}
    elif name.endswith(".py"):
        found |= {"python", "env"}
    elif name == "cmakelists.txt" or name.endswith(BUILD_SUFFIXES) or name in BUILD_NAMES or name.startswith("makefile."):
        found |= {"build"}
    elif name == "config.pbtxt":
        found |= {"triton"}
    elif name.endswith(CONFIG_SUFFIXES) or name.startswith(".env") or name in CONFIG_NAMES:
        found |= {"config", "env", "flags"}
    if is_requirement_file(path):
        found |= {"requirement"}
    return frozenset(found)


class TextScanner:
    """Rules on text made ready once for many files."""

    def __init__(self, book: RuleBook) -> None:
        self._rules: list[tuple[Rule, re.Pattern[str], tuple[str, ...]]] = [
            (r, re.compile(r.pattern, re.MULTILINE), tuple(t.rstrip("*") for t in r.triggers))
            for r in book.rules.values()
            if r.pattern and set(r.scopes) - {"cuda", "cu", "device"}
        ]

    def says_something(self, text: str) -> bool:
        """Tell whether a text has a word that some rule begins with; most have none."""
        return _GATE.search(text) is not None

    def scan(self, text: str, scopes: Iterable[str]) -> list[TextHit]:
        """Return the places of a text where rules of these scopes match; comment lines do not count."""
        wanted = set(scopes)
        if not wanted or not _GATE.search(text):
            return []
        text = bounded(text)
        found: list[TextHit] = []
        for rule, pattern, triggers in self._rules:
            if wanted.isdisjoint(rule.scopes) or (triggers and not any(t in text for t in triggers)):
                continue
            line, counted, kept = 1, 0, 0
            for match in pattern.finditer(text):
                start = text.rfind("\n", 0, match.start()) + 1
                if _COMMENT.match(text, start):
                    continue
                kept += 1
                if kept > MOST_PLACES:
                    found[-1] = found[-1]._replace(times=kept - MOST_PLACES + 1)
                    continue
                line += text.count("\n", counted, match.start())
                counted = match.start()
                found.append(TextHit(rule.id, line, " ".join(match.group().split())[:80]))
        found += _together(text, wanted)
        return found


_MESSAGE = re.compile(r"\bmessage[ \t]*\((?:[^()\"]|\"(?:[^\"\\]|\\.)*+\")*+\)|#\[(=*)\[.*?\]\1\]", re.DOTALL | re.IGNORECASE)
_TRAILING = re.compile(r"(?<=[ \t;])#[^\n]*")


def effective(text: str, scopes: Iterable[str]) -> str:
    """Return a text without trailing comments and without what it only prints; line breaks stay."""
    wanted = set(scopes)
    if "build" in wanted:
        text = _MESSAGE.sub(lambda m: "\n" * m.group().count("\n"), text)
    if "#" in text and not wanted & {"requirement"}:
        text = _TRAILING.sub("", text)
    if wanted & {"docker", "config", "build"}:
        text = unsaid(text)
    return text


def bounded(text: str) -> str:
    """Return the text with every line cut to `LONGEST_LINE` characters."""
    if len(text) <= LONGEST_LINE:
        return text
    return "\n".join(line[:LONGEST_LINE] for line in text.split("\n"))


_SET_ROCR = re.compile(r"\bROCR_VISIBLE_DEVICES[\"']?\]?[=:\s,]{1,6}[\"']?\w")
_SET_HIP = re.compile(r"\b(?:HIP|CUDA)_VISIBLE_DEVICES[\"']?\]?[=:\s,]{1,6}[\"']?\w")
_SET_ARCH = re.compile(r"\bTORCH_CUDA_ARCH_LIST\b")
_ROCM_VLLM = re.compile(r"\brocm/vllm\b|vllm/vllm-openai-rocm|vllm-openai:\S*rocm")


def _together(text: str, scopes: set[str]) -> list[TextHit]:
    """Return what only the combination of two settings shows."""
    if scopes.isdisjoint({"env", "docker", "config"}):
        return []
    if not any(word in text for word in ("ROCR_VISIBLE_DEVICES", "TORCH_CUDA_ARCH_LIST", "vllm")):
        return []
    text = "\n".join("" if _COMMENT.match(line) else line for line in text.split("\n"))
    found: list[TextHit] = []
    rocr = _SET_ROCR.search(text)
    if rocr and _SET_HIP.search(text):
        found.append(TextHit("R015", text.count("\n", 0, rocr.start()) + 1, "ROCR_VISIBLE_DEVICES with HIP_ or CUDA_VISIBLE_DEVICES"))
    arch = _SET_ARCH.search(text)
    if arch and "PYTORCH_ROCM_ARCH" not in text:
        found.append(TextHit("R020", text.count("\n", 0, arch.start()) + 1, "TORCH_CUDA_ARCH_LIST"))
    image = _ROCM_VLLM.search(text)
    if image and "VLLM_ROCM_USE_AITER" not in text:
        found.append(TextHit("R023", text.count("\n", 0, image.start()) + 1, "VLLM_ROCM_USE_AITER"))
    return found
