"""Kinds of trees for the assessment's corpus, each given by one table: what must be found, what hides, what only looks bad."""

from __future__ import annotations

import json
from collections.abc import Mapping

Tree = Mapping[str, str | bytes]
TEMPLATE = 'template __global__ void k<{{ dtype }}>(float *);\n__device__ void f() { asm volatile("mov.u32 %0, 1;"); }\n'
IMAGES = (
    *("ghcr.io/ggml-org/llama.cpp:server-cuda", "openmmlab/lmdeploy:latest-cu12", "ghcr.io/huggingface/text-generation-inference:2.3.0"),
    *("ollama/ollama", "ollama/ollama:latest", "ghcr.io/huggingface/text-embeddings-inference:hopper-1.5", "local:server-cuda"),
    *("nvidia/deepstream", "docker.io/nvidia/deepstream:7", "registry.example/a/b:1-cuda12.4", "registry.example:5000/a:cuda"),
)
FOR_ROCM = (
    *("ghcr.io/huggingface/text-generation-inference:2.3.0-rocm", "ollama/ollama:rocm", "ollama/ollama:0.3-rocm", "rocm/vllm:latest"),
    *("ghcr.io/huggingface/text-embeddings-inference:cpu-1.5", "ghcr.io/ggml-org/llama.cpp:server-rocm"),
)
NVIDIA_TRITON = (
    *(
        "from triton.language.extra.cuda import libdevice",
        "from triton.language.extra.cuda.libdevice import exp",
    ),
    *("import triton.language.extra.cuda as c", "from triton.language.extra import cuda", "from triton.x import create_2d_tma_descriptor"),
)
TRITON_USES = ("tl.extra.cuda.libdevice.tanh(x)", "tl._experimental_descriptor_load(x, [0], [1], tl.float16)")
LOADS = ('cuModuleLoad(&m, "k.cubin")', 'cuModuleLoad(&m, "a/k.ptx")', "cuLinkAddFile(s, CU_JIT_INPUT_PTX, name, 0, 0, 0)")
ASKED = (
    "import importlib.util\nif importlib.util.find_spec('cuml') is not None:\n    import cuml\nelse:\n    import sklearn\n",
    "from importlib.util import find_spec\n_HAS = find_spec('cuml') is not None\nif _HAS:\n    import cuml\n",
    "from importlib.util import find_spec\nif not find_spec('cuml'):\n    cuml = None\nelse:\n    import cuml\n",
    "import contextlib\nwith contextlib.suppress(ImportError):\n    import cuml\n",
    "from contextlib import suppress\nwith suppress(OSError, Exception):\n    import tensorrt\n",
)
TOLD = (
    "import torch\nON = torch.cuda.is_available() and not torch.version.hip\nif ON:\n    import cuml\n",
    "import torch\nON: bool = torch.version.hip is None\nif not ON:\n    pass\nelse:\n    import cuml\n",
)
NEEDED_ALL_THE_SAME = (
    "from importlib.util import find_spec\nif find_spec('cuml') is None:\n    raise SystemExit(1)\nimport cuml\n",
    "from importlib.util import find_spec\nif find_spec('cuml'):\n    import cuml\nelse:\n    raise RuntimeError('no cuml')\n",
    "import contextlib\nwith contextlib.suppress(KeyError):\n    import cuml\n",
    "import os\nif os.environ.get('X') is not None:\n    import cuml\n",
)
NOT_LINUX = (
    'sys_platform == "win32"',
    "sys_platform != 'linux' and python_version > '3'",
    "(platform_system == 'Windows' or platform_system == 'Darwin')",
    "os_name=='nt'",
)
COMPILER_CALLS = (
    "subprocess.check_call(['nvcc', '-c', 'k.cu'])",
    "os.system(f'nvcc -arch=sm_80 -o k k.cu')",
    "subprocess.check_call(['ptxas', '-arch=sm_90', 'k.ptx'])",
    "subprocess.run('cuobjdump -sass k.cubin', shell=True)",
)

FOUND: dict[str, tuple[Tree, str]] = {
    **{f"triton-import-{n}": ({"k.py": f"{line}\n"}, "R106") for n, line in enumerate(NVIDIA_TRITON)},
    **{f"triton-use-{n}": ({"k.py": f"import triton.language as tl\ny = {use}\n"}, "R106") for n, use in enumerate(TRITON_USES)},
    **{f"compiler-{n}": ({"setup.py": f"import os, subprocess\n{line}\n"}, "R121") for n, line in enumerate(COMPILER_CALLS)},
    **{f"loads-{n}": ({"a.cpp": f"#include <cuda.h>\nvoid f() {{ {call}; }}\n"}, "R126") for n, call in enumerate(LOADS)},
}
ADVERSARY: dict[str, Tree] = {}
ADVERSARY |= {f"template-{t}": {f"csrc/k{t}": TEMPLATE} for t in (".cu.jinja", ".cuh.jinja", ".cu.j2", ".cuh.tmpl")}
ADVERSARY["cuda-fortran"] = {"k.cuf": "attributes(global) subroutine k(a)\nend subroutine\n"}
ADVERSARY |= {f"image-{n}": {"Dockerfile": f"FROM {image}\n"} for n, image in enumerate(IMAGES)}
ADVERSARY |= {f"service-{n}": {"compose.yml": f"services:\n  a:\n    image: {image}\n"} for n, image in enumerate(IMAGES)}
ADVERSARY["image-in-two-parts"] = {"values.yaml": "image:\n  repository: ghcr.io/ggml-org/llama.cpp\n  tag: server-cuda\n"}
ADVERSARY["docker-run"] = {"run.sh": "docker run --rm --name x nvidia/deepstream app\n"}
ADVERSARY["included-ptx"] = {"a.cpp": 'static const char ptx[] = {\n#include "k.ptx.inc"\n};\n'}
ADVERSARY |= {
    f"quantised-{m}": {"config.json": json.dumps({"model_type": "llama", "quantization_config": {"quant_method": m}})}
    for m in ("exl2", "eetq", "aqlm")
}
ADVERSARY |= {f"package-{p}": {"requirements.txt": f"{p}\n"} for p in ("eetq", "aqlm[gpu]", "punica", "nunchaku")}
ADVERSARY["fp4-asked-for"] = {"run.sh": "vllm serve x --quantization modelopt_fp4\n"}
ADVERSARY["fp4-asked-for-in-python"] = {"a.py": "from vllm import LLM\nLLM('x', quantization='modelopt_fp4')\n"}
ADVERSARY["flash-attention-3-beside-2"] = {
    "requirements.txt": "flash-attn==2.7\n",
    "a.py": "from flash_attn_interface import flash_attn_func\n",
}
ADVERSARY["flash-attention-3-by-name"] = {"a.py": "f('x', attn_implementation=\"flash_attention_3\")\n"}
ADVERSARY["dask-cuda"] = {"a.py": "import dask_cuda\n"}
ADVERSARY |= {f"needed-all-the-same-{n}": {"a.py": text} for n, text in enumerate(NEEDED_ALL_THE_SAME)}
EXTRA = '[project]\nname="x"\n[project.optional-dependencies]\ngpu=["cuml-cu12"]\n'
ADVERSARY["extra-that-is-installed"] = {"pyproject.toml": EXTRA, "Dockerfile": 'FROM python:3.12\nRUN pip install ".[gpu]"\n'}
ADVERSARY["extra-that-is-imported"] = {"pyproject.toml": EXTRA, "a.py": "import cuml\n"}
ADVERSARY["list-for-cuda-alone"] = {"requirements-cuda.txt": "cuml-cu12\n", "requirements.txt": "fastapi\n"}
ADVERSARY["list-of-the-same-beside"] = {"requirements-cuda.txt": "cuml-cu12\n", "requirements-rocm.txt": "cuml-cu12\n"}
ADVERSARY["marker-that-linux-meets"] = {"requirements.txt": "cuml-cu12 ; sys_platform == 'linux' or sys_platform == 'win32'\n"}
HARMLESS: dict[str, Tree] = {}
HARMLESS |= {f"image-for-rocm-{n}": {"Dockerfile": f"FROM {image}\n"} for n, image in enumerate(FOR_ROCM)}
HARMLESS["image-for-rocm-in-two-parts"] = {"values.yaml": "image:\n  repository: ollama/ollama\n  tag: rocm\n"}
HARMLESS["portable-libdevice"] = {
    "k.py": "try:\n    from triton.language.extra.libdevice import exp\nexcept ImportError:\n"
    "    from triton.language.extra.cuda.libdevice import exp\n"
}
HARMLESS |= {
    f"model-name-{n}": tree
    for n, tree in enumerate(
        (
            {"run.sh": "vllm serve nvidia/Llama-3_3-Nemotron-Super-49B-v1 --port 80\n"},
            {"run.sh": "docker run --rm rocm/vllm --model nvidia/NV-Embed-v2\n"},
            {"config.yaml": "model: nvidia/NV-Embed-v2\nembedding:\n  name: nvidia/NV-Embed-v2\n"},
            {"config.json": '{"_name_or_path": "nvidia/Nemotron", "model_type": "llama"}'},
        )
    )
}
HARMLESS["conda-cudatoolkit"] = {"environment.yml": "dependencies:\n- python\n- cudatoolkit\n- pip:\n  - fastapi\n"}
HARMLESS["asks-for-the-version"] = {"setup.py": "import subprocess\nsubprocess.run(['nvcc', '--version'])\n"}
HARMLESS |= {f"told-{n}": {"a.py": text} for n, text in enumerate(TOLD)}
HARMLESS |= {f"asked-{n}": {"a.py": text} for n, text in enumerate(ASKED)}
HARMLESS |= {f"never-on-linux-{n}": {"requirements.txt": f"fastapi\ncuml-cu12 ; {m}\n"} for n, m in enumerate(NOT_LINUX)}

QUANTISED = ("eetq", "exl2", "aqlm", "vptq", "quip-sharp", "spqr")
ADVERSARY |= {
    f"told-to-quantise-{n}": tree
    for n, tree in enumerate(
        [
            *({"run.sh": f"text-generation-launcher --model-id m --quantize {q}\n"} for q in QUANTISED),
            {"compose.yml": 'services:\n  a:\n    image: own/tgi\n    command: ["--model-id", "m", "--quantize", "eetq"]\n'},
            {"compose.yml": "services:\n  a:\n    image: own/tgi\n    environment:\n      QUANTIZE: eetq\n"},
            {"Dockerfile": "FROM ubuntu\nENV QUANTIZE=eetq\n"},
            {".env": "QUANTIZE=eetq\n"},
            {"values.yaml": "args:\n  quantize: eetq\n"},
            {"a.py": "import subprocess\nsubprocess.run(['text-generation-launcher', '--quantize', 'eetq'])\n"},
            {"a.py": "from vllm import LLM\nLLM('x', quantization='aqlm')\n"},
            {"a.py": "from transformers import EetqConfig\nc = EetqConfig('int8')\n"},
        ]
    )
}
HARMLESS |= {
    f"quantised-for-rocm-{q}": {"run.sh": f"text-generation-launcher --model-id m --quantize {q}\n"}
    for q in ("gptq", "awq", "fp8", "bitsandbytes")
}
TRITON_BACKENDS = ("dali", "fil", "hugectr", "hps", "onnxruntime", "python", "pytorch_libtorch", "ensemble", "openvino", "own-backend")
ADVERSARY |= {f"triton-backend-{b}": {"m/a/config.pbtxt": f'name: "a"\nbackend: "{b}"\n'} for b in TRITON_BACKENDS}
ADVERSARY |= {f"triton-platform-{b}": {"m/a/config.pbtxt": f"platform : '{b}'\n"} for b in TRITON_BACKENDS}
FOUND |= {f"triton-{b}": ({"config.pbtxt": f'backend: "{b}"\n'}, "R127") for b in ("dali", "fil")}

# two ways side by side: one for CUDA, one for ROCm
FOR_CUDA = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN pip install tensorrt_llm\n"
ROCM_BASE = "FROM rocm/dev-ubuntu-22.04\nRUN pip install fastapi\n"
BESIDE = (
    ("Dockerfile.cuda", "Dockerfile.rocm"),
    ("Dockerfile", "Dockerfile.rocm"),
    ("docker/Dockerfile", "docker/Dockerfile-rocm"),
    ("cuda.Dockerfile", "rocm.Dockerfile"),
    ("docker/cuda/Dockerfile", "docker/rocm/Dockerfile"),
    ("docker/Dockerfile", "docker/rocm/Dockerfile"),
    ("Dockerfile.cuda12", "Dockerfile.rocm6.2"),
    ("Dockerfile-nvidia", "Dockerfile-amd"),
    ("Dockerfile.gpu", "Dockerfile.rocm"),
    ("Containerfile", "Containerfile.amd"),
)
HARMLESS |= {f"beside-{n}": {cuda: FOR_CUDA, rocm: ROCM_BASE} for n, (cuda, rocm) in enumerate(BESIDE)}
HARMLESS["compose-beside"] = {
    "docker-compose.yml": "services:\n  a:\n    image: nvcr.io/nvidia/tritonserver:24.01\n",
    "docker-compose.rocm.yml": "services:\n  a:\n    image: rocm/vllm:latest\n",
}
NOT_BESIDE = (
    ("Dockerfile.cuda", "Dockerfile.amd64"),
    ("Dockerfile.cuda", "Dockerfile.cpu"),
    ("serve/Dockerfile", "train/Dockerfile.rocm"),
    ("Dockerfile.serve", "Dockerfile.rocm"),
    ("Dockerfile.cuda", "docs/rocm.md"),
)
ADVERSARY |= {f"not-beside-{n}": {cuda: FOR_CUDA, other: ROCM_BASE} for n, (cuda, other) in enumerate(NOT_BESIDE)}
ADVERSARY["beside-one-that-is-for-cuda-too"] = {"Dockerfile.cuda": FOR_CUDA, "Dockerfile.rocm": FOR_CUDA}
ADVERSARY["beside-but-its-sources-need-it"] = {"Dockerfile": FOR_CUDA, "Dockerfile.rocm": ROCM_BASE, "a.py": "import tensorrt_llm\n"}

# extras: needed only where something asks for them
SETUP = "from setuptools import setup\n{}\n"
POETRY = '[tool.poetry]\nname = "mine"\n[tool.poetry.dependencies]\npython = "^3.12"\ncuml-cu12 = {version = "24.10", optional = true}\n'
OPTIONAL: dict[str, Tree] = {
    "setup-table": {
        "setup.py": SETUP.format("setup(name='mine', extras_require={'gpu': ['cuml-cu12>=24'], 'x:python_version>\"3\"': ['cuml-cu12']})")
    },
    "setup-named-table": {"setup.py": SETUP.format("E = {'gpu': ['cuml-cu12']}\nE['all'] = E['gpu'] + ['x']\nsetup(extras_require=E)")},
    "setup-named-list": {"setup.py": SETUP.format("GPU = ['cuml-cu12']\nsetup(extras_require=dict(gpu=GPU))")},
    "setup-cfg": {"setup.cfg": "[metadata]\nname = mine\n[options.extras_require]\ngpu =\n    cuml-cu12\n    tensorrt\n"},
    "poetry": {"pyproject.toml": POETRY + '[tool.poetry.extras]\ngpu = ["cuml-cu12"]\n'},
    "poetry-of-no-extra": {"pyproject.toml": POETRY},
    "poetry-group": {
        "pyproject.toml": '[tool.poetry]\nname="mine"\n[tool.poetry.group.gpu]\noptional = true\n'
        '[tool.poetry.group.gpu.dependencies]\ncuml-cu12="*"\n'
    },
    "pyproject": {"pyproject.toml": '[project]\nname="mine"\n[project.optional-dependencies]\ngpu=["cuml-cu12"]\nall=["mine[gpu]"]\n'},
    "cargo": {
        "Cargo.toml": '[package]\nname="mine"\n[features]\ndefault=["http"]\nhttp=[]\ngpu=["dep:cudarc"]\n'
        '[dependencies]\ncudarc={version="0.1", optional=true}\n'
    },
}
HARMLESS |= {f"optional-{n}": tree for n, tree in OPTIONAL.items()}
ASKED_FOR = {
    "setup-table": "pip install '.[gpu]'",
    "setup-named-table": "pip install -e .[all]",
    "setup-named-list": "uv sync --all-extras",
    "setup-cfg": "pip install mine[dev,gpu]",
    "poetry": 'poetry install --extras "dev gpu"',
    "poetry-group": "poetry install --with gpu",
    "pyproject": "uv sync --extra all",
    "cargo": "cargo build --release --features gpu",
}
ADVERSARY |= {f"asked-for-{n}": {**OPTIONAL[n], "build.sh": f"{command}\n"} for n, command in ASKED_FOR.items()}
ADVERSARY |= {
    f"needed-{n}": {"setup.py": SETUP.format(text)}
    for n, text in enumerate(
        (
            "setup(install_requires=['cuml-cu12'], extras_require={'gpu': ['x']})",
            "E = {'gpu': ['cuml-cu12']}\nsetup(install_requires=E['gpu'], extras_require=E)",
            "GPU = ['cuml-cu12']\nsetup(install_requires=GPU, extras_require={'gpu': GPU})",
            "setup(extras_require={':python_version>\"3\"': ['cuml-cu12']})",
        )
    )
}
ADVERSARY["needed-poetry"] = {"pyproject.toml": POETRY.replace(", optional = true", "")}
ADVERSARY["needed-poetry-group"] = {"pyproject.toml": '[tool.poetry.group.gpu.dependencies]\ncuml-cu12="*"\n'}
ADVERSARY["cargo-by-default"] = {
    "Cargo.toml": '[package]\nname="mine"\n[features]\ndefault=["gpu"]\ngpu=["cudarc"]\n'
    '[dependencies]\ncudarc={version="0.1", optional=true}\n'
}

# a tree that its owners build by HIP, as ggml and others are made
PTX = (
    '__device__ int f(int a) { int c; asm("mov.u32 %0, %1;" : "=r"(c) : "r"(a)); return c; }\n'
    "__global__ void k(float *v) { v[0] = f(1); }\n"
)
VENDOR_HIP = "#pragma once\n#include <hip/hip_runtime.h>\n#define cudaError_t hipError_t\n"
CUDA_BUILD = "find_package(CUDAToolkit)\nenable_language(CUDA)\ntarget_link_libraries(a PRIVATE CUDA::cudart)\n"
SWITCHES = ("GGML_HIP", "USE_HIP", "USE_ROCM", "WITH_HIP", "LLAMA_HIPBLAS")
HIP_BUILDS = (
    "find_package(hip REQUIRED)\ntarget_link_libraries(a PRIVATE hip::device)\n",
    "enable_language(HIP)\nset_source_files_properties(k.cu PROPERTIES LANGUAGE HIP)\n",
    "project(a LANGUAGES CXX HIP)\n",
)


def _ported(build: str, folder: str = "") -> Tree:
    return {
        f"{folder}CMakeLists.txt": build,
        f"{folder}cuda/CMakeLists.txt": CUDA_BUILD,
        f"{folder}cuda/k.cu": '#include "vendors/cuda.h"\n' + PTX,
        f"{folder}cuda/vendors/cuda.h": "#include <cuda_runtime.h>\n",
        f"{folder}cuda/vendors/hip.h": VENDOR_HIP,
    }


for _switch in SWITCHES:
    HARMLESS[f"built-by-hip-{_switch}"] = _ported(f"option({_switch} OFF)\nif({_switch})\n  {HIP_BUILDS[0]}endif()\n")
HARMLESS |= {f"built-by-hip-{n}": _ported(build) for n, build in enumerate(HIP_BUILDS)}
HARMLESS["built-by-hipcc"] = {"Makefile": "CXX = hipcc\nall:\n\t$(CXX) -o k k.cu\n", "k.cu": PTX, "hip.h": VENDOR_HIP}
ADVERSARY |= {f"a-switch-alone-{s}": {**_ported(f"option({s} OFF)\n"), "cuda/vendors/hip.h": "// later\n"} for s in SWITCHES}
ADVERSARY["hip-in-a-comment-alone"] = _ported("# enable_language(HIP)\n#find_package(hip)\n")
ADVERSARY["hip-build-without-a-source-for-it"] = {"CMakeLists.txt": HIP_BUILDS[0], "k.cu": PTX}
ADVERSARY["only-another-project-is-ported"] = {**_ported(HIP_BUILDS[0], "third_party/ggml/"), "src/k.cu": PTX}
HARMLESS["another-project-is-ported"] = {**_ported(HIP_BUILDS[0], "third_party/ggml/"), "main.py": "print(1)\n"}

# every kind of build and settings file that a rule looks at is read
NVCC = "rule cc\n  command = nvcc -c k.cu\n"
ADVERSARY |= {
    f"build-{n}": {n: NVCC} for n in ("build.ninja", "a.targets", "a.props", "x/premake5.lua", "xmake.lua", "a.mk", "a.cmake", "justfile")
}
