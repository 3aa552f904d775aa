"""Whatever is read, nothing crashes or hangs; whatever it is called, it comes out inert in every rendered file."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetctl.adapters.source_tree import SourceTreeReader
from fleetctl.adapters.source_tree.writer import FolderWriter
from fleetctl.assess.clean_source import views
from fleetctl.assess.convert import convert
from fleetctl.assess.gather import Gatherer, gather
from fleetctl.assess.manifests import requirements
from fleetctl.assess.route import decide
from fleetctl.catalog.portability import load_rule_book
from fleetctl.domain.ids import WorkloadId
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Assessment, Waiver
from fleetctl.domain.portability import TextFile
from fleetctl.formats.output import as_json, as_yaml
from fleetctl.usecases.assess import AssessPorts
from fleetctl.usecases.convert import convert_tree
from fleetctl.views.assess import assessment_sarif, assessment_table
from fleetctl.views.assess_page import assessment_html
from fleetctl.views.output import render_table
from tests.fakes.clock import FakeClock

NOW = datetime(2026, 12, 1, tzinfo=UTC)
BOOK = load_rule_book()
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PIECES = st.sampled_from(
    [
        "/*",
        "*/",
        "//",
        '"',
        "'",
        'R"(',
        ')"',
        "\\",
        "\n",
        "#if USE_ROCM\n",
        "#endif\n",
        "#else\n",
        "asm(",
        "__shfl_sync(",
        "0xffffffff",
        "<<<",
        "{",
        "}",
        "__global__ ",
        "cudaFoo",
        "cudaMalloc",
        "tex2D<",
        "(",
        ")",
        " ",
        "1'0",
        "\0",
        "\udcff",
        "é",
        "threadIdx.x",
        "& 31",
        "::",
        "->",
        "#define M ",
    ]
)
NAMES = [
    "{{ 7*7 }}.cu",
    "{% for x in ().__class__ %}.cu",
    "$(touch pwned).cu",
    "`touch pwned`.cu",
    "; rm -rf x ;.cu",
    "=cmd|' !A0.cu",
    "+1+1.cu",
    "@SUM(A1).cu",
    "-2+3.cu",
    "<script>alert(1)<script>.cu",
    '"><img src=x onerror=alert(1)>.cu',
    "a\x1b[2Jb.cu",
    "a\nb.cu",
    "a\rb.cu",
    "\u202egnp.cu",
    "%0a%0d.cu",
    "a:99:b.cu",
    "' onmouseover='x.cu",
    "&lt;b&gt;.cu",
    "]]>.cu",
    "a\x07.cu",
    "--convert.cu",
]
TEXT_FILES = ["a.toml", "pyproject.toml", "uv.lock", "Pipfile.lock", "requirements.txt", "environment.yml", "Dockerfile", "config.json"]
SOURCE = '__global__ void k() { asm volatile("x"); cudaNobodyKnows(); }\n'


@QUICK
@given(st.lists(PIECES, max_size=120).map("".join))
def test_any_source_is_scanned(source: str) -> None:
    seen = views(source)
    assert seen.text.count("\n") == seen.code.count("\n")
    found = gather(BOOK, "gfx942", [TextFile(path="a.cu", text=source), TextFile(path="a.py", text=source)]).findings(NOW)
    assert all(f.where for f in found)
    assert convert(source, BOOK.names).text is not None


@QUICK
@given(
    st.sampled_from(
        ["a.toml", "pyproject.toml", "uv.lock", "Pipfile.lock", "requirements.txt", "environment.yml", "Dockerfile", "config.json"]
    ),
    st.text(max_size=300),
)
def test_any_requirement_file_is_read_or_stated(path: str, text: str) -> None:
    assert all(f.rule for f in gather(BOOK, "gfx942", [TextFile(path=path, text=text)]).findings(NOW))


@QUICK
@given(st.binary(max_size=600), st.sampled_from(["a.tar", "a.whl", "a.so", "a.onnx", "a.gguf", "a.safetensors", "a.pt", "a.tar.gz"]))
def test_any_binary_is_read_or_stated(tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str) -> None:
    path = tmp_path_factory.mktemp("any") / name
    for head in (b"", b"\x7fELF\x02\x01", b"PK\x03\x04", b"\x1f\x8b\x08", b"GGUF"):
        path.write_bytes(head + data)
        assert len(list(SourceTreeReader().read(path))) < 50


BITS = [
    'R"(',
    '"\\',
    "/*",
    "'",
    "#if USE_ROCM\n",
    "#if USE_ROCM\n#endif\n",
    "asm ",
    "tex2D<",
    "{",
    "__shfl_sync(",
    "cudaX",
    "cudaA ",
    "__global__ ",
    "__global__ <<<{",
    " ",
    "\n",
    "threadIdx.x ",
    "import ",
    "import a\n",
    "#define WARP ",
    "for(int i=16;",
    "pip install ",
    '"""__global__"""\n',
    "FROM ",
    "__shfl_sync(m,",
    "nvidia-a",
    "--index-url rocm ",
    "message(",
    "project(",
    "cpp_extension.load(",
    '"lib',
    "cat <<EOF > r.txt\n",
    '__device__ asm("',
    'echo "',
    "https://github.com/a",
    "#if 0\n",
    "requirements:\n",
    "- name: [",
    "import_module(",
    "tl.inline_asm_elementwise(",
    "if is_hip():\n ",
    "(",
    "- [",
    "#include <cuda",
    "nvcc ",
    "FROM nvidia/",
    "git clone ",
    "a@",
    "$A",
    "A=$A\n",
    "#[[",
    "-l",
]


@pytest.mark.parametrize("bit", BITS, ids=[str(i) for i in range(len(BITS))])
def test_no_text_takes_long(bit: str) -> None:
    text = bit * (150_000 // len(bit))
    begin = time.process_time()
    reads = [TextFile(path=p, text=text) for p in ("a.cu", "b.py", "c.yaml", "requirements.txt", "Dockerfile")]
    gather(BOOK, "gfx942", reads).findings(NOW)
    convert(text, BOOK.names)
    assert time.process_time() - begin < 10


DEEP = "[" * 200_000
NESTED = [
    ("config.json", DEEP), ("Pipfile.lock", '{"default":' + DEEP), ("pyproject.toml", "a=" + DEEP), ("uv.lock", "a=" + "{a=" * 50_000),
    ("environment.yml", "dependencies: " + DEEP), ("setup.py", "x=" + "(" * 100_000), ("hf_quant_config.json", '{"a":' * 100_000),
    ("Pipfile.lock", json.dumps({"default": {f"\u00e9{n}".replace("\u00e9", "a"): {} for n in range(60_000)}}).replace('"a', '"\\u0061')),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text"), NESTED, ids=[f"{n}-{p}" for n, (p, _) in enumerate(NESTED)])
def test_data_nested_deeply_or_spelled_oddly_is_read_or_stated_soon(path: str, text: str) -> None:
    begin = time.process_time()
    found = gather(BOOK, "gfx942", [TextFile(path=path, text=text)]).findings(NOW)
    assert {f.rule for f in found} <= {"R088", "R089"}
    assert time.process_time() - begin < 10


class Tags(HTMLParser):
    """Collects what a browser would take for markup."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Assessment]:
    folder = tmp_path_factory.mktemp("hostile")
    for name in NAMES:
        inner = folder / "".join(c for c in name if c != "/")
        inner.write_text(SOURCE, encoding="utf-8")
    (folder / os.fsdecode(b"\xff\xfe.cu")).write_text(SOURCE, encoding="utf-8")
    (folder / "requirements.txt").write_text("<b>==1\n=cmd==2\ntorch==1.0<script>\ncuml-cu12==$(id)\n", encoding="utf-8")
    gatherer = Gatherer(BOOK, "gfx942")
    for read in SourceTreeReader().read(folder):
        gatherer.add(read)
    waiver = Waiver(rule="R035", reason="<script>{{ x }}</script>\x1b[2J", actor=Actor(kind="person", name="<b>eve</b>"))
    return folder, decide(WorkloadId(""), gatherer.findings(NOW), NOW, waivers=(waiver,), subject="<script>s</script>")


def test_tables_hold_no_control_characters(hostile: tuple[Path, Assessment]) -> None:
    for wide in (False, True):
        text = render_table(assessment_table(hostile[1], all_=True), width=None if wide else 80, wide=wide)
        assert all(c.isprintable() or c == "\n" for c in text)
        assert wide or all(len(line) <= 80 for line in text.splitlines())


def test_html_holds_no_markup_of_others(hostile: tuple[Path, Assessment]) -> None:
    page = assessment_html((hostile[1],), None, "1")
    plain = assessment_html((decide(WorkloadId(""), (), NOW, subject="s"),), None, "1")
    ours, seen = Tags(), Tags()
    ours.feed(plain)
    seen.feed(page)
    assert seen.tags <= ours.tags | {"b", "ul", "li", "br", "details", "summary"}
    assert not seen.tags & {"script", "img", "iframe", "object"}
    assert seen.attributes <= {"lang", "charset", "name", "content", "http-equiv", "class", "id", "href", "aria-label", "data-k"}
    assert set(re.findall(r'href="([^"]*)"', page)) <= {"#top", "#routes0", "#findings0"}
    assert "default-src 'none'" in page
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    assert base64.b64encode(hashlib.sha256(style.group(1).encode()).digest()).decode() in page


def test_sarif_json_and_yaml_stay_data(hostile: tuple[Path, Assessment]) -> None:
    import yaml

    sarif = json.loads(assessment_sarif((hostile[1],), "1"))
    places = [p["physicalLocation"] for r in sarif["runs"][0]["results"] for p in r["locations"]]
    assert all(
        set(p["artifactLocation"]["uri"]) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-._~%") for p in places
    )
    found = {unquote(p["artifactLocation"]["uri"]) for p in places}
    assert len(found) >= 3
    assert found <= {*NAMES, "??.cu", "requirements.txt"}, "a code host finds the very file"
    assert all(r["message"]["text"].isprintable() for r in sarif["runs"][0]["results"])
    assert json.loads(as_json("assessment", hostile[1]))["route"] == yaml.safe_load(as_yaml("assessment", hostile[1]))["route"]


def test_a_translated_tree_stays_in_its_folder_and_runs_nothing(hostile: tuple[Path, Assessment], tmp_path: Path) -> None:
    ports = AssessPorts(tree=SourceTreeReader(), book=BOOK, clock=FakeClock(), actor=Actor(kind="person", name="ann"))
    done = convert_tree(hostile[0], tmp_path / "out", hostile[1], ports.tree, BOOK, FolderWriter())
    assert done.files >= len(NAMES)
    assert {p.name for p in tmp_path.iterdir()} == {"out"}
    assert not list(tmp_path.rglob("pwned"))
    assert all(c.isprintable() or c == "\n" for c in (tmp_path / "out" / "BY-HAND.md").read_text("utf-8"))


def test_requirement_names_are_checked() -> None:
    assert [r.name for r in requirements("requirements.txt", "<b>==1\n=cmd==2\n$(id)\n{{x}}\n")] == []
