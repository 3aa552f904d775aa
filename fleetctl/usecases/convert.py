"""Assess, use-case layer: a translated copy of a tree's sources, a patch, and what remains by hand. Never changes the tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from fleetctl.assess.convert import convert_bytes, patch_of
from fleetctl.assess.file_kinds import C_SUFFIXES, CUDA_SUFFIXES
from fleetctl.domain.plan import Assessment
from fleetctl.domain.portability import RuleBook, Skipped, TextFile
from fleetctl.errors import UsageError
from fleetctl.ports.portability import CopyWriter, SourceTree

PATCH_NAME, BY_HAND_NAME = "hipify.patch", "BY-HAND.md"
SUFFIXES = (*CUDA_SUFFIXES, *C_SUFFIXES)


@dataclass(slots=True, kw_only=True)
class Conversion:
    """What a translated copy holds.

    Args:
        files: sources in the copy; changed: of them; replaced: names; by_hand: names that stay, with file and line.
        left_out: sources that are not in the copy, with the reason.
    """

    files: int = 0
    changed: int = 0
    replaced: int = 0
    by_hand: list[tuple[str, int, str]] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def convert_tree(path: Path, folder: Path, assessment: Assessment, tree: SourceTree, book: RuleBook, writer: CopyWriter) -> Conversion:
    """Write a tree's sources, translated and under their own names, into a new folder, with a patch and a list of what remains by hand.

    Raises:
        UsageError: usage.convert_nothing: no source lies there as a file of its own; usage.folder_used, usage.folder.
    """
    done = Conversion()
    patches: list[bytes] = []
    sources = _sources(path, tree, book, done, patches)
    first = next(sources, None)
    if first is None:
        raise _nothing(path, done)

    def files() -> Iterator[tuple[str, bytes]]:
        yield from chain([first], sources)
        yield PATCH_NAME, b"".join(patches)
        yield BY_HAND_NAME, _by_hand(done, assessment).encode("utf-8")

    writer.write(folder, files())
    return done


def _sources(path: Path, tree: SourceTree, book: RuleBook, done: Conversion, patches: list[bytes]) -> Iterator[tuple[str, bytes]]:
    for read in tree.read(path):
        if isinstance(read, Skipped) and read.path.lower().endswith(SUFFIXES):
            done.left_out.append((read.path, read.reason))
        if not isinstance(read, TextFile) or not read.path.lower().endswith(SUFFIXES):
            continue
        if read.data is None:
            done.left_out.append((read.path, "inside an archive" if "!" in read.path else "its name is not UTF-8"))
            continue
        if b"\0" in read.data:
            done.left_out.append((read.path, "UTF-16 or UTF-32: save it as UTF-8"))
            continue
        after, made = convert_bytes(read.data, book.names)
        done.files += 1
        done.changed += after != read.data
        done.replaced += made.replaced
        done.by_hand += [(read.path, line, name) for name, line in made.by_hand]
        patches.append(patch_of(read.path, read.data, after))
        yield read.path, after


def _nothing(path: Path, done: Conversion) -> UsageError:
    if done.left_out:
        name, reason = done.left_out[0]
        text = f"no source in {path} lies there as a file that can be translated ({name}: {reason})."
        return UsageError("usage.convert_nothing", text, hint="Unpack it, and name the folder")
    return UsageError("usage.convert_nothing", f"there is no CUDA or C source to translate in {path}.", hint="Name a source tree")


def _by_hand(done: Conversion, assessment: Assessment) -> str:
    lines = ["# What remains by hand", "", "## Names without a HIP twin", ""]
    lines += [f"    {path}:{line}: {name}" for path, line, name in done.by_hand] or ["None."]
    lines += ["", "## Sources that are not in this copy", ""]
    lines += [f"    {path}: {reason}" for path, reason in done.left_out] or ["None."]
    lines += [
        "",
        "## Build",
        "",
        "Files keep their names: hipcc compiles them with -x hip, CMake with the source property LANGUAGE set to HIP.",
    ]
    lines += ["", "## Findings", ""]
    shown = [f for f in assessment.findings if f.grade in {"blocker", "rework", "risk"} and not f.is_guarded]
    lines += [f"    {f.where}: {f.rule} ({f.grade}, {f.count} places): {f.text} [{f.evidence}]" for f in shown] or ["None."]
    return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines) + "\n"
