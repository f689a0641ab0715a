"""Run as a script, with the standard library alone: become a program that dies with its parent.

    python -I -S leash.py PARENT_PID DEATH_SIGNAL USER PROGRAM [ARG …]

The kernel sends `DEATH_SIGNAL` (a number) to the program when the thread that started it ends, however it ends. `USER` is
the account to become first, or `-`. A program of its own, because code between fork and exec of a process with threads
may deadlock.
"""

import ctypes
import os
import pwd
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Exec, or end with 127 and a line on stderr."""
    parent, death_signal, user, *command = arguments
    if user != "-":
        account = pwd.getpwnam(user)
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    # After the change of user, which clears it.
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(death_signal)) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    # The parent may have died before the request; then nobody is left to be told by.
    if os.getppid() != int(parent):
        sys.exit("the parent is gone")
    try:
        os.execv(command[0], command)  # noqa: S606 (to become this program is the whole purpose)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
