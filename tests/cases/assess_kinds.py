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

# a twin that cannot do without the one for CUDA, and one that can
TRITON_IMAGE = "nvcr.io/nvidia/tritonserver:24.05-py3"
BASES = ("base", "corp/app:base", "registry.example:5000/team/app@sha256:aa", "own-python:3.12", "${NAME}x")
KNOWN_BASES = (
    "ubuntu:24.04",
    "mirror.example/library/python:3.12",
    "--platform=linux/amd64 corp/rocm:6",
    "${BASE}",
    "vllm/vllm-openai-rocm",
)
ADVERSARY |= {f"twin-built-on-{n}": {"Dockerfile": FOR_CUDA, "Dockerfile.rocm": f"FROM {b}\n"} for n, b in enumerate(BASES[:4])}
ADVERSARY["twin-built-on-an-argument"] = {"Dockerfile": FOR_CUDA, "Dockerfile.rocm": "ARG B=corp/app:base\nFROM ${B} AS a\nFROM a\n"}
HARMLESS |= {f"twin-built-on-known-{n}": {"Dockerfile": FOR_CUDA, "Dockerfile.rocm": f"FROM {b}\n"} for n, b in enumerate(KNOWN_BASES)}
HARMLESS["twin-built-on-an-argument"] = {"Dockerfile": FOR_CUDA, "Dockerfile.rocm": "ARG B=rocm/pytorch\nFROM ${B:-x} AS a\nFROM a\n"}
OVERLAYS = {
    "compose": (
        f"services:\n  a:\n    image: {TRITON_IMAGE}\n  b:\n    image: x\n",
        "docker-compose{}.yml",
        "services:\n  {}:\n    image: x\n",
    ),
    "values": (f"a:\n  # one\n  image: {TRITON_IMAGE}\nb:\n  image: x\n", "values{}.yaml", "{}:\n  image: x\n"),
    "quoted": (f"a:\n  'image': {TRITON_IMAGE}\nb: {{}}\n", "values{}.yaml", "{}:\n  image: x\n"),
}
for _name, (_plain, _file, _twin) in OVERLAYS.items():
    for _dash in (".", "-"):
        _over = _file.format(f"{_dash}rocm")
        ADVERSARY[f"twin-leaves-{_name}-{_dash}"] = {_file.format(""): _plain, _over: _twin.format("b")}
        HARMLESS[f"twin-sets-{_name}-{_dash}"] = {_file.format(""): _plain, _over: _twin.format("a")}
ADVERSARY["twin-leaves-a-flow"] = {"values.yaml": f"a: {{image: {TRITON_IMAGE}}}\n", "values-rocm.yaml": "a:\n  tag: x\n"}
LISTS = {"requirements-cuda.txt": "cuml-cu12\n", "requirements-rocm.txt": "fastapi\n"}
BY_FOLDER = {"src/cuda/requirements.txt": "cuml-cu12\n", "src/hip/requirements.txt": "fastapi\n"}
PLAIN = "FROM python:3.12\n"
TAKEN: dict[str, Tree] = {
    "container": {**LISTS, "Dockerfile": PLAIN + "RUN pip install -r requirements-cuda.txt\n"},
    "container-for-rocm": {**LISTS, "Dockerfile.rocm": PLAIN + "COPY ./requirements-cuda.txt /r.txt\nRUN pip install -r /r.txt\n"},
    "script": {**LISTS, "install.sh": "pip install -r requirements-cuda.txt\n"},
    "makefile": {**LISTS, "Makefile": "all:\n\tpip install -r requirements-cuda.txt\n"},
    "list": {**LISTS, "requirements.txt": "-r requirements-cuda.txt\n"},
    "list-for-rocm": {**LISTS, "requirements-rocm.txt": "-r requirements-cuda.txt\n"},
    "list-by-list": {
        **LISTS,
        "requirements-gpu-all.txt": "-r requirements-cuda.txt\n",
        "requirements-amd-all.txt": "fastapi\n",
        "Dockerfile": PLAIN + "RUN pip install -r requirements-gpu-all.txt\n",
    },
    "project": {**LISTS, "pyproject.toml": '[tool.setuptools.dynamic]\ndependencies = {file = ["requirements-cuda.txt"]}\n'},
    "folder": {**BY_FOLDER, "Dockerfile": PLAIN + "COPY src/cuda/ .\nRUN pip install -r requirements.txt\n"},
    "file-of-a-folder": {**BY_FOLDER, "Dockerfile": PLAIN + "COPY src/cuda/requirements.txt .\nRUN pip install -r requirements.txt\n"},
}
ADVERSARY |= {f"twin-but-taken-by-{n}": tree for n, tree in TAKEN.items()}
HARMLESS |= {
    f"twin-and-{n}": tree
    for n, tree in {
        "chosen": {**LISTS, "Makefile": "cuda:\n\tpip install -r requirements-cuda.txt\nrocm:\n\tpip install -r requirements-rocm.txt\n"},
        "taken-by-a-twin": {**LISTS, "Dockerfile.cuda": PLAIN + "COPY requirements-cuda.txt .\n", "Dockerfile.rocm": ROCM_BASE},
        "tried": {**LISTS, ".buildkite/run.sh": "pip install -r requirements-cuda.txt\n"},
        "only-said": {**LISTS, "Dockerfile": PLAIN + "# pip install -r requirements-cuda.txt\n"},
        "takes-another": {**LISTS, "x/requirements-cuda.txt": "fastapi\n", "x/Dockerfile": PLAIN + "COPY x/requirements-cuda.txt .\n"},
        "in-a-circle": {**LISTS, "requirements-cuda.txt": "cuml-cu12\n-r requirements-cuda.txt\n"},
    }.items()
}

# modules that a command runs by their name
RUN_BY_NAME: dict[str, Tree] = {
    "script": {"run.sh": "exec python3.12 -u -m cuml.accel a.py\n"},
    "over-lines": {"run.sh": "python3 \\\n  -W ignore \\\n  -m cuml.accel a.py\n"},
    "many": {"run.sh": "torchrun --nproc-per-node 8 -m cuml.accel\n"},
    "container": {"Dockerfile": PLAIN + 'CMD ["python", "-m", "cuml.accel", "a.py"]\n'},
    "list": {"d.yaml": "command:\n- python3\n- -m\n- cuml.accel\n"},
    "flow": {"d.yaml": 'command: ["python", "-m", "cuml.accel"]\n'},
    "python": {"a.py": "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'cuml.accel'])\n"},
    "notebook": {"a.ipynb": '{"cells": [{"cell_type": "code", "source": ["%load_ext cuml.accel\\n", "1"]}]}'},
}
ADVERSARY |= {f"run-by-name-{n}": tree for n, tree in RUN_BY_NAME.items()}
HARMLESS |= {
    f"not-run-{n}": {"run.sh": text}
    for n, text in enumerate(
        (
            "python a.py\npytest -m cuml\n",
            "python -m pytest -m cuml\n",
            'echo "python -m cuml.accel"\n# python -m cuml.accel\n',
            "git -m cuml\n",
        )
    )
}

# a channel is no package, whatever it is called
CHANNELS = "channels:\n  - pytorch\n  - nvidia\n  - rapidsai\n"
HARMLESS |= {
    "channels": {"environment.yml": f"{CHANNELS}dependencies:\n  - python\n  - pytorch-cuda=12.1\n"},
    "channels-after": {"environment.yml": f"dependencies:\n  - python\n{CHANNELS}"},
    "channels-of-a-lock": {"conda-lock.yml": "metadata:\n  channels:\n  - url: nvidia\npackage:\n- name: python\n"},
    "channels-of-pixi": {"pixi.toml": '[project]\nchannels = ["nvidia"]\n[system-requirements]\ncuda = "12"\n'},
}
ADVERSARY["package-after-channels"] = {"environment.yml": f"{CHANNELS}dependencies:\n  - nvidia::cuda-tile\n  - cuml\n"}

# names of files where packages may stand, words in another case, charts
HARMLESS["list-that-setup-reads"] = {
    "setup.py": "d = read('cuda.txt') if is_cuda() else read('rocm.txt')\nsetup(install_requires=d)\n",
    **LISTS,
}
HARMLESS["sources-in-a-table"] = {"pyproject.toml": '[tool.x]\ndeps = ["cuda/k.cu", "cuda_util.h", "tensorrt.md"]\n'}
ADVERSARY |= {
    f"dot-net-{n}": {"a.cs": f"{text}\nclass A {{}}\n"}
    for n, text in enumerate(("using ManagedCuda;", "using ILGPU.Runtime.Cuda;", "using ManagedCuda.BasicTypes;"))
}
ADVERSARY["chart"] = {"Chart.yaml": "dependencies:\n- name: nim-llm\n  repository: https://helm.ngc.nvidia.com/nim\n"}
ADVERSARY["chart-by-command"] = {"run.sh": "helm fetch https://helm.ngc.nvidia.com/nim/charts/nim-llm-1.1.tgz\n"}
ADVERSARY["flash-attention-3-from-its-folder"] = {
    "Dockerfile": "FROM rocm/pytorch\nRUN cd flash-attention/hopper && python setup.py install\n"
}
ADVERSARY["nemo"] = {"a.py": "import nemo.collections.asr as asr\n"}

# packages that a job, a task or a copy names without a command for pip
TASK = "- hosts: all\n  tasks:\n  - name: x\n    {}\n"
ADVERSARY |= {
    f"packages-{n}": tree
    for n, tree in {
        "kubeflow": {"a.py": "@dsl.component(packages_to_install=['cuml-cu12'])\ndef f(): ...\n"},
        "ray": {"a.py": "import ray\nray.init(runtime_env={'pip': ['cuml-cu12']})\n"},
        "airflow": {"a.py": "PythonVirtualenvOperator(requirements=['x', 'cuml-cu12'])\n"},
        "metaflow": {"a.py": "@conda(libraries={'cuml': '24.10'})\ndef f(self): ...\n"},
        "task": {"a.yml": TASK.format("pip:\n      state: present\n      name: cuml-cu12")},
        "task-below": {"a.yml": TASK.format("ansible.builtin.pip:\n      name:\n        - x\n        - cuml-cu12==24")},
        "task-flow": {"a.yml": TASK.format("pip: {name: [x, cuml-cu12], state: present}")},
        "task-line": {"a.yml": TASK.format("pip: name=cuml-cu12 state=present")},
        "task-of-apt": {"a.yml": TASK.format("apt:\n      name: [curl, tensorrt]")},
        "cloud-init": {"user-data.yaml": "#cloud-config\nruncmd:\n- [pip, install, cuml-cu12]\n- [ sudo, pip3, install, x ]\n"},
        "job": {"job.json": '{"libraries": [{"pypi": {"package": "cuml-cu12==24.10"}}]}'},
        "terraform": {"main.tf": 'library {\n  pypi {\n    package = "cuml-cu12"\n  }\n}\n'},
        "copied-wheel": {"Dockerfile": PLAIN + "COPY wheels/cuml_cu12-24.10-py3-none-any.whl /w/\nRUN pip install /w/*.whl\n"},
        "odd-list": {"Dockerfile": PLAIN + "COPY deps.lst /\nRUN pip install --no-cache -r /deps.lst\n", "deps.lst": "cuml-cu12\n"},
        "list-without-an-ending": {"run.sh": "pip3 install -U -r requirements\n", "requirements": "cuml-cu12\n"},
        "kokkos": {"CMakeLists.txt": "set(Kokkos_ENABLE_CUDA ON)\n"},
        "sycl": {"CMakeLists.txt": "add_compile_options(-fsycl -fsycl-targets=nvptx64-nvidia-cuda)\n"},
    }.items()
}
HARMLESS |= {
    f"no-packages-{n}": tree
    for n, tree in {
        "task-names": {"a.yml": TASK.format("pip:\n      name: x\n  - name: cuml\n    debug: {msg: cuml}")},
        "task-of-a-list": {"a.yml": TASK.format("pip: {requirements: r.txt}\n  - name: tensorrt\n    shell: echo")},
        "list-that-is-read": {"Dockerfile": PLAIN + "COPY r.txt /\nRUN pip install -r /r.txt\n", "r.txt": "fastapi==1\n"},
        "list-of-a-variable": {"Dockerfile": PLAIN + "RUN pip install -r /req-$ENV.txt -r $LIST\n"},
        "wheel-in-a-comment": {"Dockerfile": PLAIN + "# COPY cuml_cu12-24.10-py3-none-any.whl /w/\n"},
        "own-packages": {"setup.py": "from setuptools import setup\nsetup(name='x', packages=['cuml'], libraries=[('cuml', {})])\n"},
    }.items()
}

# images that are for CUDA without saying so, and products that have no counterpart
QUIET_IMAGES = (
    *("ghcr.io/predibase/lorax:main", "michaelf34/infinity:0.0.70", "xprobe/xinference", "alpindale/aphrodite-openai:latest"),
    *("anyscale/ray-llm:latest", "huggingface/transformers-pytorch-gpu", "axolotlai/axolotl:main-latest", "unsloth/unsloth"),
)
ADVERSARY |= {f"quiet-image-{n}": {"Dockerfile": f"FROM {image}\n"} for n, image in enumerate(QUIET_IMAGES)}
HARMLESS |= {
    f"quiet-image-for-rocm-{n}": {"Dockerfile": f"FROM {image}\n"}
    for n, image in enumerate(("michaelf34/infinity:0.0.70-amd", "unsloth/unsloth-rocm"))
}
HARMLESS["model-called-as-a-product"] = {"run.sh": "vllm serve nvidia/clara-7b --port 80\n"}
PRODUCTS = ("deepstream:7.0", "riva/riva-speech:2.15.0", "isaac-sim:4", "morpheus/morpheus:24.10", "clara/clara-parabricks:4")
STAYS: dict[str, Tree] = {
    **{f"product-{n}": {"Dockerfile": f"FROM nvcr.io/nvidia/{image}\n"} for n, image in enumerate(PRODUCTS)},
    **{
        f"product-in-values-{n}": {"values.yaml": f"image:\n  repository: nvcr.io/nvidia/{i.split(':')[0]}\n"}
        for n, i in enumerate(PRODUCTS)
    },
    "product-of-the-hub": {"compose.yml": "services:\n  a:\n    image: nvidia/deepstream:7\n"},
    "candle": {"Cargo.toml": '[dependencies]\ncandle-core = { version = "0.8", features = ["cuda"] }\n'},
    "rapids": {"environment.yml": "channels: [rapidsai]\ndependencies:\n  - rapids=24.10\n"},
}

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
