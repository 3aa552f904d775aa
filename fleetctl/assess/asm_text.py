"""Assess, pure layer: whose assembly a text is: NVIDIA's PTX, AMD's, or the host's. Never I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

AsmKind = Literal["ptx", "amd", "host", "empty", "unknown"]

_PTX = re.compile(
    r"(?:^|[\s;{}\"'!:])(?:@!?%?\w+\s+)?(?:ldu?|st|mov|cvt|cvta|add|addc|sub|mul|mad|fma|div|rem|abs|neg|min|max|shfl|bar|barrier|membar|fence"
    r"|red|atom|prefetchu?|cp|mma|wmma|ldmatrix|stmatrix|movmatrix|wgmma|tcgen05|setp?|selp|slct|lop3|prmt|bf[ei]|bfind|brev|clz|popc"
    r"|sh[lrf]|and|or|xor|not|cnot|vote|match|createpolicy|mbarrier|elect|ex2|lg2|sin|cos|tanh|rcp|rsqrt|sqrt|tex|tld4|suld|sust|testp"
    r"|copysign|redux|setmaxnreg|discard|applypriority|isspacep|dp[24]a|vadd\d?|vsub\d?|vabsdiff\d?|vmin\d?|vmax\d?|sad|mul24|mad24|getctarank"
    r"|mapa|multimem|clusterlaunchcontrol|griddepcontrol|tensormap|bmsk|szext|fns|ret|bra|call|trap|exit)"
    r"(?:\.[a-z0-9_]+)*\.(?:[a-z]*[usbf](?:8|16|32|64|128)\w*|pred|f16x2|bf16x2?|tf32|e4m3\w*|e5m2\w*|sync|async|aligned|global|shared|local|const|param|gl|cta|sys"
    r"|cluster|gpu|relaxed|acquire|release|acq_rel|wait\w*|launch_\w+|group|commit\w*|all|any|ballot|uni|rn|rz|rm|rp|rni|rzi|approx|L1|L2|bulk|v2|v4|wide|lo|hi"
    r"|inc|arrive|init|m16n8\w*|m64n\w*|evict\w*|fractional\w*|expect_tx|try_wait|down|up|bfly|idx|nc|volatile|weak|mmio|to|sat|ftz)\b"
    r"|%%?(?:laneid|warpid|nwarpid|smid|nsmid|clock(?:64|_hi)?\b|globaltimer\w*|gridid|ctaid|nctaid|ntid|tid|lanemask_\w+|cluster_ctaid\w*|envreg\d|dynamic_smem_size|total_smem_size)"
    r"|\bgriddepcontrol\b|\bactivemask\.b32|\bmembar\.|\bnanosleep\.u32|\.reg\s*\.|\b__nv_\w+|\.target\s+sm_|\bpmevent\b|\bbrkpt\s*;|\btrap\s*;|\bexit\s*;",
)
"""Instructions with their types, and special registers. Source: PTX ISA, chapters 9 and 10."""
_AMD = re.compile(
    r"(?:^|[\s;\"'{])(?:[vs]_[a-z0-9]+\w*|ds_(?:read|write|load|store|bpermute|permute|swizzle|add|max|min|\w+)\w*|buffer_\w+|global_(?:load|store|atomic)\w*"
    r"|flat_(?:load|store|atomic)\w*|scratch_(?:load|store)\w*|image_\w+|tbuffer_\w+)\b"
)
_AMD_BINDING = re.compile(r"(?:^|,)\s*[=+]?&?[vsa](?:\s*,|\s*\Z)")
_HOST = re.compile(
    r"\A[\s.\d:;%]*(?:lock|rep[a-z]*|rdtscp?|pause|cpuid|[lms]fence|nop|int\s*\$?(?:3|0x)|xgetbv|bswap\w?|clflush\w*|clwb|prefetch[a-z]+\d?|mov[a-z]{1,6}\d?\b(?!\.)"
    r"|lea[qlw]?\b|popcnt\w?|bs[fr]\w?|[tl]zcnt\w?|x?chg|cmpxchg\w*|xadd\w?|xchg\w?|v(?:mov|padd|psub|pmul|fma|add|mul|broad|ext|ins|per|shuf|zero|dp)[a-z0-9]*\b(?!\.)"
    r"|b\.(?:eq|ne|[lg][te]|h[si]|l[so]|mi|pl|v[sc]|al)\b|cbn?z|yield|dmb|dsb|isb|mrs|msr|wfe|wfi|sevl?|svc|brk|hlt|ud2|syscall|sysenter|rd(?:rand|seed|pmc|fsbase|gsbase|pid|msr)|wr\w+base|push[a-z]?\b|pop[a-z]?\b"
    r"|jmp|jn?[a-z]{1,2}\b|call[q]?\b(?!\.)|ret[q]?\b(?!\.)|(?:x?or|and|add|sub|inc|dec|mul|div|shr|shl|test|cmp|neg|not|adc|sbb|imul|adcx|adox|mulx|rol|ror|sar)[bwlq]?\b(?!\.)"
    r"|\.(?:symver|globl|section|pushsection|incbin|intel_syntax|att_syntax|byte|long|quad|align|weak|type|text|data|set|inst|hidden|protected)\b"
    r"|mfspr|mftb|lwsync|sync\b(?!\.)|ldr\w*|str\b|st[px]\b|ldp|ld1|st1|fmla|uaddl\w*|csrr\w*|fence\b(?!\.)|tzcnt|endbr\w*|xend|xbegin|xabort|tpause|umwait|umonitor|serialize|emms|stmxcsr|ldmxcsr|fld\w*|fst\w*|fnstcw|cld|std|cli|sti)",
    re.IGNORECASE,
)
_HOST_REGISTERS = re.compile(r"%%?[re]?[abcd]x\b|%%?[re]?(?:sp|bp|si|di)\b|%%?r\d{1,2}[dwb]?\b|%%?[xyz]mm\d|\bx\d{1,2}\b,|\{%")
_HOST_BINDING = re.compile(r"[\"'][=+]&?[abcSDAqQxmg][\"']")
_OPENS = re.compile(
    r'R"(?P<mark>[^()\\\s"]{0,16})\(|"(?:[^"\\\n]|\\.)*+"?|\'(?:\\[^\n]|[^\'\\\n]){1,4}+\''
    r"|(?P<asm>\b(?:asm|__asm__|__asm)\b\s*(?:(?:volatile|__volatile__|goto|inline|__inline__|__inline)\s*){0,3}\()",
    re.DOTALL,
)
_STRING = re.compile(r'R"([^()\\\s"]{0,16})\((.*?)\)\1"|"((?:[^"\\\n]|\\.)*+)"', re.DOTALL)
LONGEST = 20_000
"""Characters of one asm statement that are looked at."""


class Asm(NamedTuple):
    """One asm statement: where it begins, whose assembly it is, and the first words of its text."""

    start: int
    kind: AsmKind
    said: str


def kind_of(text: str, bindings: str = "") -> AsmKind:
    """Return whose assembly a text is.

    Args:
        bindings: what follows the text: operands with their letters, quoted, or a list such as "=r,r".
    """
    plain = text.replace("\\n", "\n").replace("\\t", " ")
    if _PTX.search(plain):
        return "ptx"
    if _AMD.search(plain) or _AMD_BINDING.search(bindings.strip()):
        return "amd"
    if not plain.strip():
        return "empty"
    if _HOST.match(plain) or _HOST_REGISTERS.search(plain) or _HOST_BINDING.search(bindings):
        return "host"
    return "unknown"


def asm_statements(text: str) -> Iterator[Asm]:
    """Yield the asm statements of a C-like text without comments; those in strings, and labels of declarations, are none."""
    at = 0
    while token := _OPENS.search(text, at):
        at = token.end()
        if text.startswith('R"', token.start()):
            end = text.find(f'){token.group("mark")}"', at)
            at = len(text) if end < 0 else end + len(token.group("mark")) + 2
        elif token.group("asm"):
            before = text[max(0, token.start() - 60) : token.start()].rstrip()
            body, at = _argument(text, at)
            strings = _STRING.findall(body)
            said = " ".join((raw or plain) for _, raw, plain in _template(body))
            if (
                before.endswith(")")
                and not body.count(":")
                and len(strings) == 1
                and text[at : at + 3].lstrip()[:1] in ";,{"
                and not _PTX.search(said)
            ):
                continue  # a name for the linker, as in: int f(void) __asm__("g");
            yield Asm(token.start(), kind_of(said, body) if strings else "unknown", " ".join(said.split())[:60])


def _argument(text: str, at: int) -> tuple[str, int]:
    """Return what stands in the parentheses that were just opened, and the offset after them."""
    depth, begin = 1, at
    for match in re.compile(r'"(?:[^"\\\n]|\\.)*+"?|[()]', re.DOTALL).finditer(text, at, at + LONGEST):
        if match.group() == "(":
            depth += 1
        elif match.group() == ")":
            depth -= 1
            if depth == 0:
                return text[begin : match.start()], match.end()
    return text[begin : begin + LONGEST], min(len(text), begin + LONGEST)


def _template(body: str) -> list[tuple[str, str, str]]:
    """Return the strings before the first colon outside of strings: the assembly itself."""
    found: list[tuple[str, str, str]] = []
    at = 0
    for match in _STRING.finditer(body):
        if ":" in body[at : match.start()]:
            break
        found.append((match.group(1) or "", match.group(2) or "", match.group(3) or ""))
        at = match.end()
    return found
