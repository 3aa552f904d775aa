"""Assess, pure layer: code that counts on 32 lanes, 32-bit warp masks, and kernels that launch kernels. Never I/O.

Source: a mask of 32 bits has been a compile error since ROCm 6.4.3 (rusty1s/pytorch_scatter issue 498), and 32-lane arithmetic gives
wrong numbers on wave64 hardware without any message (bitsandbytes issue 1887, llama.cpp issue 3630).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SYNC_CALL = re.compile(
    r"\b(__(?:shfl|shfl_up|shfl_down|shfl_xor|ballot|any|all|match_any|match_all|reduce_\w+)_sync)\s*(?:<[^<>;]{0,80}>)?\s*\("
)
_NARROW_NUMBER = re.compile(
    r"\(*\s*(?:\((?:unsigned(?:\s+int)?|uint32_t|u32|uint)\)\s*)?(?:0[xX][fF]{8}[uU]?|4294967295[uU]?|~\s*0[uU]?|-1|~\s*0[xX]0[uU]?)\s*\)*\Z"
)
_NARROW_TYPES = r"(?:unsigned(?:\s+int)?|uint32_t|uint|int|std::uint32_t|auto|u32)"
_NAMED = re.compile(
    r"\b(?:k?WARP_?SIZE|kWarpSize|warp_size|warpsize|WARP_THREADS|kWarpThreads|THREADS_PER_WARP|NUM_LANES|kNumLanes|LANES_PER_WARP)"
    r"\s{0,9}(?:=|\{)?\s{0,9}\(?\s{0,9}32\b"
    r"|#[ \t]*define[ \t]+\w*(?:WARP|Warp|warp|LANES)\w*[ \t]+\(?32\b"
)
_BY_32 = re.compile(r"(?:&\s{0,3}(?:31|0[xX]1[fF])|>>\s{0,3}5|%\s{0,3}32|/\s{0,3}32)\b")
_LANE = re.compile(
    r"(?:threadIdx\.[xy]|\btid|\blane|\blaneId|\blane_id|\blaneid|\btidx|\bthread_id|\bthreadId|\btid_x|\bthread_idx)\s?\)?\s?\Z"
)
_THREADS = re.compile(r"(?:blockDim\.x|\bblockDim|\bnum_threads|\bnthreads|\bNUM_THREADS|\bTHREADS|\bBLOCK_SIZE)\s?\)?\s?\Z")
_WARP_WORD = re.compile(r"WARP|Warp|warp|LANES|NumLanes")
_HALVING = re.compile(r"\bfor\s*\(\s*(?:\w+\s+){1,2}\w+\s*=\s*16\s*;")
LANE_WORDS = frozenset(
    {
        "WARP_SIZE",
        "WARPSIZE",
        "kWarpSize",
        "kWARP_SIZE",
        "warp_size",
        "warpsize",
        "WARP_THREADS",
        "kWarpThreads",
        "THREADS_PER_WARP",
        "NUM_LANES",
        "kNumLanes",
        "LANES_PER_WARP",
        "threadIdx",
        "tid",
        "lane",
        "laneId",
        "lane_id",
        "laneid",
        "tidx",
        "thread_id",
        "threadId",
        "tid_x",
        "thread_idx",
        "blockDim",
        "num_threads",
        "nthreads",
        "NUM_THREADS",
        "THREADS",
        "BLOCK_SIZE",
    }
)
"""One of these, or a word with "warp" or "lanes" in it, is in every place that `thirty_two_lanes` finds."""
_SHUFFLE = re.compile(r"__shfl")
_OPENS = re.compile(r"[{;=]")
_BRACE = re.compile(r"[{}]")
_KERNEL = re.compile(r"\b__(?:global|device)__\b")


MOST_MASKS = 64
"""Different names of masks that are followed per file."""


def narrow_masks(code: str) -> Iterator[tuple[int, str]]:
    """Yield offset and text of each call of a *_sync function whose mask is 32 bits wide; names are followed within the file."""
    named: dict[str, bool] = {}
    for match in _SYNC_CALL.finditer(code):
        mask = _first_argument(code, match.end())
        if mask not in named and len(named) < MOST_MASKS:
            named[mask] = re.fullmatch(r"[A-Za-z_]\w*", mask) is not None and _is_narrow(mask, code)
        if _NARROW_NUMBER.match(mask) or named.get(mask, False):
            yield match.start(), f"{match.group(1)}({mask}, ...)"


def _first_argument(code: str, at: int) -> str:
    depth = 0
    for i in range(at, min(len(code), at + 200)):
        c = code[i]
        if c == "(":
            depth += 1
        elif c == ")" and depth:
            depth -= 1
        elif c in ",)":
            return code[at:i].strip()
    return ""


def _is_narrow(name: str, code: str) -> bool:
    value = r"\(?\s*(?:0[xX][fF]{1,8}[uU]?|4294967295[uU]?|~\s*0[uU]?|-1)\s*\)?(?![\w])"
    if re.search(rf"#[ \t]*define[ \t]+{name}[ \t]+{value}", code):
        return True
    return re.search(rf"\b{_NARROW_TYPES}\s+{name}\s*(?:=|\{{)", code) is not None and not re.search(
        rf"\bauto\s+{name}\s*=\s*(?:__activemask|__ballot_sync)", code
    )


def thirty_two_lanes(code: str) -> Iterator[tuple[int, str]]:
    """Yield offset and text of arithmetic that takes a warp for 32 lanes."""
    for match in _NAMED.finditer(code) if _WARP_WORD.search(code) else ():
        yield match.start(), " ".join(match.group().split())
    for match in _BY_32.finditer(code):
        before = code[max(0, match.start() - 24) : match.start()]
        whose = _LANE.search(before) or (_THREADS.search(before) if match.group()[0] in ">/" else None)
        if whose:
            yield match.start(), f"{whose.group().strip()} {match.group()}"
    if _SHUFFLE.search(code):
        for match in _HALVING.finditer(code):
            if _SHUFFLE.search(code, match.end(), match.end() + 300):
                yield match.start(), " ".join(match.group().split())


def dynamic_launches(code: str) -> Iterator[tuple[int, str]]:
    """Yield offset and text of each kernel launch inside a function that runs on the GPU."""
    done = near = 0
    for match in _KERNEL.finditer(code):
        if match.start() < done:
            continue
        opened = _body(code, match.end())
        if opened < 0:
            continue
        near = code.find("\n}", opened) if near >= 0 else -1
        if near >= 0 and code.find("<<<", opened, near) < 0:
            done = near
            continue
        end = _closing(code, opened)
        launch = code.find("<<<", opened, end)
        if launch >= 0:
            yield launch, "kernel launched by a kernel"
        done = end


def _body(code: str, at: int) -> int:
    """Return the offset of the function's opening brace, -1 for a declaration."""
    match = _OPENS.search(code, at, at + 4000)
    return match.start() if match and match.group() == "{" else -1


def _closing(code: str, opened: int) -> int:
    depth = 0
    for match in _BRACE.finditer(code, opened):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return len(code)
