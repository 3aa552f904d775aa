"""Assess, pure layer: what the files and settings of a model say about formats that the target can or cannot run. Never I/O."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from fleetctl.domain.portability import ModelFile

CONFIG_NAMES = frozenset(
    {"config.json", "hf_quant_config.json", "quantize_config.json", "quantization_config.json", "quant_config.json", "params.json"}
)
FP4_WORDS = ("fp4", "nvfp4", "mxfp4", "e2m1")
CUDA_METHODS = ("exl2", "exl3", "eetq", "aqlm", "quip", "vptq", "spqr")
KNOWN_METHODS = (
    "fp8",
    "awq",
    "gptq",
    "bitsandbytes",
    "compressed-tensors",
    "gguf",
    "quark",
    "torchao",
    "hqq",
    "modelopt",
    "w8a8",
    "int8",
    "w4a16",
    "w4a8",
    "fp4",
)
"""Parts of the names of quantisations that vLLM or SGLang run on ROCm, or that other rules judge. General knowledge, unverified."""
_BY_FORMAT = {
    "gguf": "R031",
    "onnx": "R030",
    "tensorrt": "R029",
    "torchscript": "R033",
    "aotinductor": "R033",
    "cubin": "R034",
    "ptx": "R034",
}


class ModelHit(NamedTuple):
    """One finding about a model."""

    rule: str
    subject: str


def of_file(file: ModelFile, target: str) -> list[ModelHit]:
    """Return what a model file's header means on this target."""
    rule = _BY_FORMAT.get(file.format)
    if rule is not None:
        said = ", ".join(f"{k} {v}" for k, v in list(file.facts.items())[:4])
        return [ModelHit(rule, said)]
    found: list[ModelHit] = []
    dtypes = {d.upper() for d in file.dtypes}
    if needs_fnuz(target) and any(d.startswith("F8_E4M3") for d in dtypes):
        found.append(ModelHit("R025", "F8_E4M3 tensors"))
    if lacks_fp4(target) and any(d.startswith(("F4", "F6")) for d in dtypes):
        found.append(ModelHit("R026", "F4 tensors"))
    if not found and file.format == "safetensors":
        found.append(ModelHit("R032", ", ".join(sorted(dtypes))[:60]))
    return found


def of_config(text: str, target: str) -> list[ModelHit]:
    """Return what a model's configuration means on this target.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(data, dict):
        return []
    if isinstance(data.get("build_config"), dict) and isinstance(data.get("pretrained_config"), dict):
        return [ModelHit("R117", str(data.get("version", ""))[:20])]
    quantised = data.get("quantization_config") or data.get("quantization") or (data if "quant_method" in data or "bits" in data else None)
    if not isinstance(quantised, dict):
        return [ModelHit("R124", "its quantisation is no table")] if data.get("quantization_config") else []
    method = str(quantised.get("quant_method") or quantised.get("quant_algo") or "").lower()
    said = json.dumps(quantised, default=str)[:4000].lower()
    if not method and data.get("quantization_config"):
        return [*_of_method(method, said, quantised, target), ModelHit("R124", "quantization_config without a method")]
    return _of_method(method, said, quantised, target)


def _of_method(method: str, said: str, quantised: dict[str, Any], target: str) -> list[ModelHit]:
    found: list[ModelHit] = []
    is_fp4 = any(w in method for w in FP4_WORDS) or any(f'"{w}' in said for w in FP4_WORDS)
    is_fp8 = "fp8" in method or '"fp8' in said or '"e4m3' in said or ('"float"' in said and '"num_bits": 8' in said)
    if is_fp4 or ('"float"' in said and '"num_bits": 4' in said):
        if lacks_fp4(target):
            found.append(ModelHit("R026", method or "4-bit floats"))
    elif is_fp8 and needs_fnuz(target):
        found.append(ModelHit("R025", method or "fp8"))
    if method.endswith("_marlin") or "marlin" in str(quantised.get("checkpoint_format", "")).lower():
        found.append(ModelHit("R027", method))
    if method == "bitsandbytes" or "load_in_4bit" in quantised:
        found.append(ModelHit("R028", method or "bitsandbytes"))
    if method.startswith(CUDA_METHODS):
        found.append(ModelHit("R123", method[:40]))
    elif method and not found and not any(w in method for w in KNOWN_METHODS):
        found.append(ModelHit("R124", method[:40]))
    return found


def of_precision(precision: str, target: str) -> list[ModelHit]:
    """Return what a declared precision means on this target."""
    word = precision.lower()
    if any(w in word for w in FP4_WORDS) and lacks_fp4(target):
        return [ModelHit("R026", precision)]
    if "fp8" in word and needs_fnuz(target):
        return [ModelHit("R025", precision)]
    return []


def needs_fnuz(target: str) -> bool:
    """Tell whether the target's FP8 is FNUZ and not OCP. Source: HIP's page "FP8 Numbers": gfx94x FNUZ, gfx950 OCP."""
    return target.startswith("gfx94")


def lacks_fp4(target: str) -> bool:
    """Tell whether the target has no FP4 arithmetic. Source: ROCm/legacy-rocm-build issue 5363: not on MI300X; gfx950 has it."""
    return not target.startswith(("gfx95", "gfx12"))
