"""A sandbox in a process of an ordinary user: what stood there, and what became of planted programs.

Run as a program it reads what to do as JSON and tells what it found as JSON. `asked` runs it: as who we are, or, from
an administrator's process, as nobody. Nothing that signals or deletes is given to it where namespaces are denied.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def asked(programs: dict[str, Any], *, deny: bool = False, without: tuple[str, ...] = ()) -> Any:
    """What an ordinary user's sandbox says: `fences`, `missing`, `user`, and `found`, by program's name.

    `deny`: it may make no namespaces; `without`: means not to use. A program is code, a test or None, and limits.
    """
    words = {"programs": programs, "deny": deny, "without": without}
    python, who = interpreter()
    done = subprocess.run(
        [python, str(HERE / "ordinary.py")], input=json.dumps(words), env=_environment(), capture_output=True,
        text=True, timeout=240, **who,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _environment() -> dict[str, str]:
    import msgspec

    places = [HERE.parents[1], HERE, Path(msgspec.__file__).parents[1]]
    return {"PYTHONPATH": os.pathsep.join(map(str, places)), "PATH": os.defpath}


def interpreter() -> tuple[str, dict[str, Any]]:
    """An interpreter of this version for an ordinary user, and how to become one; skips where there is none."""
    import pytest

    if os.geteuid() != 0:
        return sys.executable, {}
    nobody = pwd.getpwnam("nobody")
    who: dict[str, Any] = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    version = f"python3.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(version, path=os.defpath)):
        words = [str(python), "-c", "import psutil, battery.quality.sandbox.pool"]
        try:
            subprocess.run(words, env=_environment(), check=True, capture_output=True, **who)
        except (OSError, subprocess.CalledProcessError):
            continue
        return str(python), who
    pytest.skip("no interpreter of this version that another user could run with our packages")


def main() -> None:
    """Do what standard input asks for."""
    from planted import TEST, TIGHT, adding

    from battery.quality.sandbox import kernel
    from battery.quality.sandbox.pool import Sandbox

    told = json.load(sys.stdin)
    if told["deny"]:
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(kernel.NEW_USERS)
        kernel.map_one_user(1000, uid, gid)  # another than the id that strangers have in there
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
    jobs = [
        adding(code, TIGHT._replace(**limits), test or TEST, name)
        for name, (code, test, limits) in told["programs"].items()
    ]
    with Sandbox(2, without=told["without"]) as sandbox:
        # what signals or deletes is let loose only where a process sees none but its own
        loose = jobs if told["deny"] or "own process ids" in sandbox.fences else []
        found = {job.id: [one.status, one.detail, one.retried] for job, one in sandbox.run(loose)}
        said = {"fences": sandbox.fences, "missing": sandbox.missing, "user": os.geteuid()}
        print(json.dumps({**said, "found": found}))


if __name__ == "__main__":
    main()
