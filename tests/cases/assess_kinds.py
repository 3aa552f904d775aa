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
