"""Runs one in 50 of the tests of JAX in ../shared/jax on the platform `shlo`: exit status 1 when one fails that is not
in `jax_tests.txt`, a list of shell patterns over their names. Those of another folder have a list with its name,
`jax_tests-0.11.1.txt` for example.

    python .ci/claims/jax_tests.py [--tests tests-0.11.1] [--sample 50] [--jobs 2] [FILE ...]

FILE is the name of a file of tests without `_test.py`; all of them by default.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[1].parent / "shared"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--sample", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tests", default="tests", help="folder in ../shared/jax")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    runner = options.shared / "jax" / "run.py"
    if not runner.exists() or not (options.shared / "jax" / options.tests).exists():
        print(f"skipped: no JAX tests in ../shared/jax/{options.tests}")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        found = Path(scratch) / "results.json"
        command = [sys.executable, str(runner), "--sample", str(options.sample), "--jobs", str(options.jobs)]
        command += ["--tests", options.tests, *options.files]
        subprocess.run([*command, "--json", str(found)], check=False)
        results = json.loads(found.read_text(encoding="utf-8"))
    listed = HERE / f"jax_{options.tests}.txt"
    lines = listed.read_text(encoding="utf-8").splitlines()
    expected = [line for line in lines if line and not line.startswith("#")]
    failed = [test for file in results["files"].values() for test in file["failures"]]
    wrong = [test for test in failed if not any(fnmatch.fnmatch(test, pattern) for pattern in expected)]
    for test in wrong:
        print(f"claimed, but does not pass: {test}")
    if not results["total"]["passed"]:
        print("no test passed")
    return 1 if wrong or not results["total"]["passed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
