"""Requirement and lock files, containers, settings, flags and models into findings."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from fleetctl.assess.gather import gather
from fleetctl.assess.manifests import requirements
from fleetctl.assess.models import of_config, of_file
from fleetctl.assess.requirements import numbers
from fleetctl.catalog.portability import load_rule_book
from fleetctl.domain.portability import ElfFile, ImageFacts, ModelFile, Read, RuleBook, TextFile

NOW = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def book() -> RuleBook:
    return load_rule_book()


def rules(book: RuleBook, *reads: Read) -> set[str]:
    return {f.rule for f in gather(book, "gfx942", reads).findings(NOW)}


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("requirements.txt", "torch==2.6.0+cu124 ; python_version > '3'\n# spconv\nflash_attn>=2.7\n-r x.txt\n", {"torch", "flash-attn"}),
        ("pyproject.toml", '[project]\ndependencies = ["vllm==0.9"]\n[project.optional-dependencies]\ng = ["apex"]\n', {"vllm", "apex"}),
        ("poetry.lock", '[[package]]\nname = "spconv-cu120"\nversion = "2.3.6"\n', {"spconv-cu120"}),
        ("uv.lock", 'version = 1\n[[package]]\nname = "tensorrt"\nversion = "10.1"\n', {"tensorrt"}),
        ("Pipfile.lock", '{"default": {"pynvml": {"version": "==11.5"}}, "develop": {}}', {"pynvml"}),
        ("environment.yml", "dependencies:\n  - pip:\n    - cupy-cuda12x==13.0\n  - numpy=1.26\n", {"cupy-cuda12x", "numpy"}),
        ("Dockerfile", "RUN pip install \\\n  --index-url X 'deepspeed==0.14' flashinfer && rm -r x\n", {"deepspeed", "flashinfer"}),
        ("a/dist-info/METADATA", "Metadata-Version: 2.1\nName: Flash_Attn\nVersion: 2.7.4\n", {"flash-attn"}),
    ],
)  # fmt: skip
def test_packages_are_read_from_every_kind_of_file(path: str, text: str, expected: set[str]) -> None:
    assert expected <= {r.name for r in requirements(path, text)}


@pytest.mark.parametrize(("path", "text"), [("uv.lock", "[[["), ("Pipfile.lock", "{"), ("pyproject.toml", "a = ")])
def test_a_file_that_cannot_be_parsed_is_stated(book: RuleBook, path: str, text: str) -> None:
    assert rules(book, TextFile(path=path, text=text)) == {"R089"}


def test_pins_lines_and_versions_are_kept() -> None:
    (one,) = requirements("requirements.txt", "\ntorch==2.6.0+cu124\n")
    assert (one.version, one.line) == ("2.6.0+cu124", 2)
    assert numbers("2.6.0+cu124") == (2, 6, 0)


def test_what_stays_what_is_exchanged_and_what_is_native(book: RuleBook) -> None:
    text = "cuml-cu12==26.10\ntensorrt==10\nvllm==0.33\npynvml\n"
    found = {f.subject: f for f in gather(book, "gfx942", [TextFile(path="requirements.txt", text=text)]).findings(NOW)}
    assert (found["cuml-cu12"].grade, found["cuml-cu12"].least) == ("blocker", "stay")
    assert (found["tensorrt"].grade, found["tensorrt"].least) == ("rework", "rebuild")
    assert found["vllm"].least == "native"
    assert found["pynvml"].least == "rebuild"


def test_a_substitute_that_is_there_settles_it(book: RuleBook) -> None:
    text = "pynvml\namdsmi\n"
    (found,) = (f for f in gather(book, "gfx942", [TextFile(path="requirements.txt", text=text)]).findings(NOW) if f.subject == "pynvml")
    assert (found.grade, found.least) == ("info", "native")


def test_cuda_wheels_and_pins(book: RuleBook) -> None:
    text = "--extra-index-url https://download.example/whl/cu124\ntorch==2.6.0+cu124\nnvidia-cublas-cu12==12.4\n"
    assert {"R002", "R003", "P001"} <= rules(book, TextFile(path="requirements.txt", text=text))


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("FROM nvcr.io/nvidia/tritonserver:24.05-py3", "R006"),
        ("FROM nvcr.io/nvidia/pytorch:24.05-py3", "R007"),
        ("FROM nvidia/cuda:12.4.1-devel-ubuntu22.04", "R008"),
        ("FROM vllm/vllm-openai:v0.9.0", "R009"),
        ("FROM lmsysorg/sglang:v0.5-cu126", "R010"),
        ("FROM ubuntu:20.04", "R011"),
        ("FROM nvidia/cuda:12.1.0-base-ubi8", "R011"),
        ("ENV HSA_OVERRIDE_GFX_VERSION=9.4.2", "R021"),
        ("ENV CUDA_VISIBLE_DEVICES=0,1", "R014"),
        ("ENV TORCH_CUDA_ARCH_LIST='8.0 9.0'", "R020"),
        ("ENV VLLM_ATTENTION_BACKEND=FLASHINFER", "R022"),
        ('CMD ["serve", "--tensor-parallel-size", "4"]', "R018"),
        ('CMD ["serve", "--quantization", "awq_marlin"]', "R027"),
        ('CMD ["serve", "--kv-cache-dtype", "fp8"]', "R066"),
        ('CMD ["serve", "--speculative-config", "x"]', "R067"),
        ("RUN nvidia-smi", "R055"),
    ],
)
def test_dockerfile_lines(book: RuleBook, line: str, rule: str) -> None:
    assert rule in rules(book, TextFile(path="Dockerfile", text=line + "\n"))
    assert rule not in rules(book, TextFile(path="Dockerfile", text=f"# {line}\n"))


@pytest.mark.parametrize("line", ["FROM rocm/dev-ubuntu-22.04", "FROM ubuntu:24.04", "ENV HIP_VISIBLE_DEVICES=0"])
def test_dockerfile_lines_that_say_nothing(book: RuleBook, line: str) -> None:
    assert rules(book, TextFile(path="Dockerfile", text=line + "\n")) == set()


def test_settings_of_deployments(book: RuleBook) -> None:
    text = "resources:\n  limits:\n    nvidia.com/gpu: 8\nenv:\n  CUDA_VISIBLE_DEVICES: 0\n  ROCR_VISIBLE_DEVICES: 1\n"
    assert {"R013", "R014", "R015"} <= rules(book, TextFile(path="k8s/deploy.yaml", text=text))
    assert "R023" in rules(book, TextFile(path="compose.yml", text="image: rocm/vllm:latest\n"))
    assert "R064" in rules(book, TextFile(path="m/config.pbtxt", text='backend: "tensorrtllm"\n'))
    assert "R049" in rules(book, TextFile(path="CMakeLists.txt", text="target_link_libraries(x cudadevrt)\n"))


def test_an_old_python_matters_to_vllm_alone(book: RuleBook) -> None:
    base = TextFile(path="Dockerfile", text="FROM python:3.10-slim\n")
    assert "R005" not in rules(book, base)
    assert "R005" in rules(book, base, TextFile(path="requirements.txt", text="vllm\n"))


def test_image_configuration(book: RuleBook) -> None:
    env = ("NVIDIA_VISIBLE_DEVICES=all", "NCCL_NVLS_ENABLE=1")
    image = ImageFacts(path="i.tar", env=env, command=("vllm", "--tp", "2"), base=("nvidia/cuda:12.4",))
    assert {"R008", "R012", "R017", "R018"} <= rules(book, image)


@pytest.mark.parametrize(
    ("config", "target", "rule"),
    [
        ({"quantization_config": {"quant_method": "fp8"}}, "gfx942", "R025"),
        ({"quantization_config": {"quant_method": "fp8"}}, "gfx950", None),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "gfx942", "R026"),
        ({"quantization": {"quant_algo": "NVFP4"}}, "gfx942", "R026"),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "gfx942", "R028"),
        ({"quantization_config": {"quant_method": "gptq_marlin"}}, "gfx942", "R027"),
        (
            {"quantization_config": {"quant_method": "compressed-tensors", "c": {"weights": {"num_bits": 8, "type": "float"}}}},
            "gfx942",
            "R025",
        ),
        ({"quantization_config": {"quant_method": "awq"}}, "gfx942", None),
        ({"torch_dtype": "bfloat16"}, "gfx942", None),
    ],
)
def test_model_configurations(config: object, target: str, rule: str | None) -> None:
    assert [h.rule for h in of_config(json.dumps(config), target)] == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("format_", "dtypes", "rule"),
    [
        ("safetensors", ("F8_E4M3",), "R025"), ("safetensors", ("BF16",), "R032"), ("gguf", (), "R031"), ("onnx", (), "R030"),
        ("tensorrt", (), "R029"), ("torchscript", (), "R033"), ("cubin", (), "R034"), ("ptx", (), "R034"),
    ],
)  # fmt: skip
def test_model_files(format_: str, dtypes: tuple[str, ...], rule: str) -> None:
    assert [h.rule for h in of_file(ModelFile(path="m", format=format_, dtypes=dtypes), "gfx942")] == [rule]


@pytest.mark.parametrize(
    ("elf", "expected"),
    [
        (ElfFile(path="app", needed=("libcudart.so.12",)), {"R058"}),
        (ElfFile(path="app", sections=(".nv_fatbin",), sm=("sm_90",)), {"R059", "R060"}),
        (ElfFile(path="app", needed=("libnvinfer.so.10",)), {"R057"}),
        (ElfFile(path="app", needed=("libcuda.so.1",), has_ptx=True), {"R062"}),
        (ElfFile(path="app", needed=("libnvcuvid.so.1",)), {"R063"}),
        (ElfFile(path="lib.so", sections=(".hip_fatbin",), gfx=("gfx90a",)), {"R061"}),
        (ElfFile(path="lib.so", sections=(".hip_fatbin",), gfx=("gfx90a", "gfx942")), set()),
        (ElfFile(path="usr/local/cuda-12/lib64/libx.so", needed=("libcudart.so.12",)), set()),
        (ElfFile(path="v/site-packages/torch/lib/libtorch_cuda.so", needed=("libcudart.so.12",)), set()),
    ],
)
def test_binaries(book: RuleBook, elf: ElfFile, expected: set[str]) -> None:
    assert rules(book, elf) == expected


def test_a_binary_beside_its_source_is_built_again(book: RuleBook) -> None:
    found = rules(book, ElfFile(path="app", needed=("libcudart.so.12",)), TextFile(path="a.cu", text="__global__ void k() {}\n"))
    assert "R058" not in found
    assert "R060" in found
