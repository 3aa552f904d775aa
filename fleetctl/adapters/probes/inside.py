"""Assess, adapter layer: begins inside the child: takes away network, files and resources, then becomes the tool. Imports no fleetctl.

Source: Linux man pages unshare(2), landlock(7), setrlimit(2), prctl(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import struct
import sys

CLONE_NEWUSER, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWPID = 0x10000000, 0x08000000, 0x40000000, 0x20000000
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, SIGKILL = 1, 38, 9
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
EXECUTE, READ_FILE, READ_DIR = 1, 4, 8
ALL_BY_ABI = {1: 0x1FFF, 2: 0x3FFF}
ALL_FROM_ABI_3 = 0x7FFF
"""Refer (renames between folders) came with ABI 2, truncate with ABI 3."""
O_PATH = 0x200000


def no_network(libc: ctypes.CDLL) -> None:
    """Leave the network: directly where allowed, else in a user namespace of our own."""
    if libc.unshare(CLONE_NEWNET | CLONE_NEWIPC) == 0:
        return
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC) == 0:
        with contextlib.suppress(OSError):
            for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
                with open(f"/proc/self/{name}", "w") as stream:
                    stream.write(text)


def own_processes(libc: ctypes.CDLL) -> None:
    """Go on in a namespace of processes, where the kernel lets us: whatever is started there ends with the tool and can signal nobody else.

    Two processes wait: one outside, and the namespace's first, which is not the tool, for a first process takes no signal from within.
    """
    if libc.unshare(CLONE_NEWPID) != 0:
        return
    first = os.fork()
    if first:
        code = _ended(first)
        if code > 128:
            os.kill(os.getpid(), code - 128)
        os._exit(code)
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL)
    tool = os.fork()
    if tool:
        os._exit(_ended(tool))


def _ended(child: int) -> int:
    """Wait for a child's end; 128 and the number where a signal ended it, as shells count."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return 128 - code if code < 0 else code


def only_files(libc: ctypes.CDLL, read: list[str], write: list[str]) -> None:
    """Restrict files by Landlock, where the kernel has it."""
    version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return
    everything = ALL_BY_ABI.get(version, ALL_FROM_ABI_3)
    handled = struct.pack("<Q", everything)
    ruleset = libc.syscall(CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    if ruleset < 0:
        return
    for path, access in [(p, EXECUTE | READ_FILE | READ_DIR) for p in read] + [(p, everything) for p in write] + [("/dev/null", 6)]:
        try:
            folder = os.open(path, O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = access if os.path.isdir(path) else access & (EXECUTE | READ_FILE | 2)
        libc.syscall(ADD_RULE, ruleset, 1, struct.pack("<Qi", allowed, folder), 0)
        os.close(folder)
    libc.syscall(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def main() -> None:
    """Give everything up and become the tool."""
    plan = json.loads(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    no_network(libc)
    own_processes(libc)
    only_files(libc, plan["read"], plan["write"])
    for what, most in (
        (resource.RLIMIT_CPU, plan["cpu_s"]),
        (resource.RLIMIT_FSIZE, plan["file_size"]),
        (resource.RLIMIT_AS, plan["memory"]),
        (resource.RLIMIT_NOFILE, 512),
    ):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))
    os.execvp(plan["argv"][0], plan["argv"])  # noqa: S606 - an argv list, no shell


if __name__ == "__main__":
    main()
