"""What roles refuse, and what they make of an environment: the conditions themselves, as Ansible evaluates them."""

from __future__ import annotations

import pytest

from tests.fakes.role_tasks import refusals, rendered


def environment(**names: object) -> dict[str, object]:
    return {"translation_layer_environment": names}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (environment(NVIDIA_VISIBLE_DEVICES="all"), []),
        (environment(NVIDIA_VISIBLE_DEVICES="all", CUDA_VISIBLE_DEVICES="0,1"), ['HIP_VISIBLE_DEVICES="0,1"']),
        (environment(NVIDIA_VISIBLE_DEVICES="GPU-8a7f", HIP_VISIBLE_DEVICES="3"), ['HIP_VISIBLE_DEVICES="3"']),
        (environment(CUDA_VISIBLE_DEVICES=0), ['HIP_VISIBLE_DEVICES="0"']),
        (environment(ROCR_VISIBLE_DEVICES="4,5"), ['HIP_VISIBLE_DEVICES="4,5"']),
        (environment(PYTORCH_CUDA_ALLOC_CONF="a:0.9", CUDA_LAUNCH_BLOCKING="1"), ['PYTORCH_HIP_ALLOC_CONF="a:0.9"']),
        (environment(NCCL_NVLS_ENABLE="1", NCCL_MIN_NCHANNELS="112"), ['NCCL_MIN_NCHANNELS="112"']),
    ],
)
def test_an_environment_is_rewritten_so_that_no_accelerator_is_hidden_by_mistake(given: dict[str, object], made: list[str]) -> None:
    assert refusals("translation_layer", given) == []
    assert rendered("translation_layer", "environment.j2", given).splitlines()[1:] == made


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
@pytest.mark.parametrize("value", ["all", "", "none", "void", "-1", "GPU-8a7f2c", "MIG-8a7f2c", "0,GPU-8a7f", "0, 1", "0,", "NoDevFiles"])
def test_a_mask_that_is_no_list_of_indices_is_refused(name: str, value: str) -> None:
    (said,) = refusals("translation_layer", environment(**{name: value}))
    assert said.startswith(f"configure.environment: nothing was changed, because {name} is no list of indices")
    assert "Next: " in said


@pytest.mark.parametrize(
    "names",
    [
        ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        ("ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"),
    ],
)
def test_two_names_that_become_one_are_refused(names: tuple[str, str]) -> None:
    (said,) = refusals("translation_layer", environment(**dict.fromkeys(names, "0")))
    assert "two names of the environment become one on ROCm" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"translation_layer_kind": "zluda"}, "ZLUDA cannot run on CDNA"),
        ({"translation_layer_kind": "scale"}, "nobody has accepted a licence"),
        ({"translation_layer_kind": "scale", "translation_layer_licence_accepted": True}, "has no SHA-256"),
        ({"translation_layer_sources": [{"name": "../x", "text": ""}]}, "no plain name"),
        (environment(**{"A B": "1"}), "a name or value that no file can hold"),
        (environment(A="x\nB=y"), "a name or value that no file can hold"),
    ],
)
def test_a_layer_that_cannot_be_made_is_refused(given: dict[str, object], said: str) -> None:
    assert [said in text for text in refusals("translation_layer", given)].count(True) == 1
