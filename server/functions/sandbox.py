"""What a function's process may do. It is put on by the process itself before it reads a line of the user's file, and never comes off.

Three locks of Linux, none of which asks for a privilege or a library:

- *no new privileges*: no program that the process might start gains rights;
- *Landlock*: files are readable in the folders of Python, of the system's libraries and of the function's file, and writable nowhere.
  Nothing is seen of other processes, the server's environment and memory among them;
- *seccomp*: no sockets, no new processes or programs, no signals to others, no limits changed, nothing of the kernel's set up.

Where the kernel does not know a lock, or the machine is not one whose numbers stand below, `confine` names what is missing and the server
says so in its log. Limits of memory, descriptors and core files hold everywhere. The limit of processor time is set from outside.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import sys
from struct import pack
from typing import NamedTuple

OPEN_FILES_MAX = 256  # a handful of shared libraries and files of data; the server itself holds as many for its peers
SHARED_BYTES_MAX = 4 * 2**30  # of address space beyond the memory: libraries, stacks, and what is reserved and never touched

_PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 38, 36
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446  # the same on every machine
_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # Landlock's version -> how many rights over files it knows; later ones no more
_SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/sys/devices/system/cpu")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo", "/dev/urandom", "/dev/random", "/dev/zero")


class Machine(NamedTuple):
    """What seccomp needs to know of a processor: its name to the kernel, and the numbers of calls that differ from machine to machine."""

    architecture: int
    seccomp: int
    clone: int
    kill: int
    tgkill: int
    prlimit: int
    refused: tuple[int, ...]


# Refused outright, in order: socket connect bind listen accept sendto; fork vfork (x86 alone); execve execveat; tkill, rt_sigqueueinfo,
# rt_tgsigqueueinfo; ptrace, process_vm_readv, process_vm_writev; setrlimit; setpriority, sched_setscheduler, sched_setaffinity,
# sched_setattr, ioprio_set; mount, umount2, pivot_root, chroot, unshare, setns; init_module, finit_module, delete_module, kexec_load,
# kexec_file_load, reboot, swapon; bpf, perf_event_open, userfaultfd, fanotify_init; keyctl, add_key, request_key; open_by_handle_at.
_REFUSED_X86_64 = (
    *(41, 42, 49, 50, 43, 44, 57, 58, 59, 322, 200, 129, 297, 101, 310, 311, 160, 141, 144, 203, 314, 251),
    *(165, 166, 155, 161, 272, 308, 175, 313, 176, 246, 320, 169, 167, 321, 298, 323, 300, 250, 248, 249, 304),
)
_REFUSED_AARCH64 = (
    *(198, 203, 200, 201, 202, 206, 221, 281, 130, 138, 240, 117, 270, 271, 164, 140, 119, 122, 274, 30),
    *(40, 39, 41, 51, 97, 268, 105, 273, 106, 104, 294, 142, 224, 280, 241, 282, 262, 219, 217, 218, 265),
)
# The same numbers everywhere: pidfd_send_signal, io_uring_setup, _enter, _register, open_tree, move_mount, fsopen, fsconfig, fsmount,
# fspick, pidfd_open, pidfd_getfd, process_madvise, mount_setattr, process_mrelease.
_REFUSED_EVERYWHERE = (424, 425, 426, 427, 428, 429, 430, 431, 432, 433, 434, 438, 440, 442, 448)
_CLONE3 = 435
MACHINES = {
    "x86_64": Machine(0xC000003E, 317, 56, 62, 234, 302, _REFUSED_X86_64),
    "aarch64": Machine(0xC00000B7, 277, 220, 129, 131, 261, _REFUSED_AARCH64),
}
_X32_FIRST = 0x40000000  # calls from here on are those of another way to call the kernel of x86_64
_CLONE_THREAD = 0x00010000
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # in what the kernel shows a filter (seccomp_data)
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


def limit(memory_bytes_max: int) -> None:
    """Bound this process: its memory, its open files, and no core files. OSError where the system refuses."""
    for what, most in (
        (resource.RLIMIT_DATA, memory_bytes_max),
        (resource.RLIMIT_AS, memory_bytes_max + SHARED_BYTES_MAX),
        (resource.RLIMIT_NOFILE, OPEN_FILES_MAX),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (bound, bound))


def adopt_orphans() -> None:
    """Let processes whose parent ends become children of this one, so that whoever ends this one finds them. Linux alone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def confine(readable: list[str]) -> list[str]:
    """Close the locks; `readable` are folders that may be read beside Python's own. Returns the names of locks that this system lacks.

    Call it before there is a second thread: Landlock binds the caller and what it starts.
    """
    if sys.platform != "linux":
        return ["no new privileges", "Landlock", "seccomp"]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return ["no new privileges", "Landlock", "seccomp"]  # the other two ask for the first
    missing = [] if _close_files(libc, readable) else ["Landlock"]
    return missing if _close_calls(libc) else [*missing, "seccomp"]


def _close_files(libc: ctypes.CDLL, readable: list[str]) -> bool:
    version = libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return False
    rights = (1 << _FILE_RIGHTS.get(version, _FILE_RIGHTS[5])) - 1
    attributes = pack("<Q", rights)
    ruleset = libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0)
    if ruleset < 0:
        return False
    try:
        for path in (*_python_folders(), *_SYSTEM_FOLDERS, *_SYSTEM_FILES, *readable):
            _allow(libc, ruleset, path, _READ_FILE | _READ_DIR)
        _allow(libc, ruleset, os.devnull, _READ_FILE | _WRITE_FILE)
        return bool(libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _python_folders() -> list[str]:
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return [here, sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, *(p for p in sys.path if os.path.isabs(p))]


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Add a rule; a path that is not there needs none."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= ~_READ_DIR
        rule = pack("<Qi", rights, descriptor)
        if libc.syscall(_LANDLOCK_ADD, ruleset, _PATH_BENEATH, rule, 0):
            raise OSError(ctypes.get_errno(), f"Landlock takes no rule for {path}")
    finally:
        os.close(descriptor)


def _close_calls(libc: ctypes.CDLL) -> bool:
    machine = MACHINES.get(platform.machine())
    if machine is None or sys.maxsize < 2**32:
        return False
    program = b"".join(_filter(machine, os.getpid()))
    held = ctypes.create_string_buffer(program)
    described = pack("@HxxxxxxP", len(program) // 8, ctypes.addressof(held))
    return bool(libc.syscall(machine.seccomp, 1, 0, described) == 0)


def _filter(machine: Machine, own: int) -> list[bytes]:
    """Return the filter's steps: refuse what is listed, let through of what depends on its arguments what harms nobody, allow the rest."""
    refuse = _step(_RETURN, _REFUSE | errno.EPERM)
    allow = _step(_RETURN, _ALLOW)
    steps = [_step(_LOAD, _ARCHITECTURE_AT), _step(_EQUAL, machine.architecture, 1, 0), refuse, _step(_LOAD, _NUMBER_AT)]
    steps += [_step(_AT_LEAST, _X32_FIRST, 0, 1), refuse]
    for number in (*machine.refused, *_REFUSED_EVERYWHERE):
        steps += [_step(_EQUAL, number, 0, 1), refuse]
    steps += [_step(_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _REFUSE | errno.ENOSYS)]  # its flags cannot be seen; libraries fall back
    steps += [_step(_EQUAL, machine.clone, 0, 4), _step(_LOAD, _ARGUMENTS_AT), _step(_ANY_BIT, _CLONE_THREAD, 0, 1), allow, refuse]
    for number in (machine.kill, machine.tgkill):  # to itself alone
        steps += [_step(_EQUAL, number, 0, 4), _step(_LOAD, _ARGUMENTS_AT), _step(_EQUAL, own, 0, 1), allow, refuse]
    new_limit = _ARGUMENTS_AT + 2 * 8
    steps += [_step(_EQUAL, machine.prlimit, 0, 6), _step(_LOAD, new_limit), _step(_EQUAL, 0, 0, 3)]
    steps += [_step(_LOAD, new_limit + 4), _step(_EQUAL, 0, 0, 1), allow, refuse]
    return [*steps, allow]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return pack("<HBBI", code, if_true, if_false, value)
