"""Print the processor time that a command takes, with that of all processes it starts, as ``.ci/run`` does per stage.

The shell's ``time`` misses processes whose parent ends first, as the tests' fork server does; on Linux these are
adopted here. ``python tests/helpers/processor_time.py python -m pytest -q -n auto``
"""

import contextlib
import ctypes
import os
import resource
import subprocess
import sys
import time

ADOPT = 36  # PR_SET_CHILD_SUBREAPER of Linux


def main(command: list[str]) -> int:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)
    begin = time.monotonic()
    code = subprocess.call(command)
    with contextlib.suppress(ChildProcessError):  # raised once all adopted processes have ended
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    sys.stderr.write(
        f"{time.monotonic() - begin:.0f} s, and of processor time {used.ru_utime:.0f} s in programs "
        f"and {used.ru_stime:.0f} s in the system\n"
    )
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
