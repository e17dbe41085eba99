"""Holds what is claimed to work against ../shared: conformance cases and real programs.

    python .ci/claims/claims.py check conformance      exit status 1 when a claimed case does not pass
    python .ci/claims/claims.py update models          writes the list anew, from what passes now

A list is lines of shell patterns over the names; a later line wins, and `!` in front takes names out again.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[1].parent / "shared"
ENTRY = {"conformance": ("run.py", "*.mlir"), "models": ("check.py", "programs/*.json")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("check", "update"))
    parser.add_argument("kind", choices=tuple(ENTRY))
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="check every N-th of the claimed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    folder = options.shared / options.kind
    if not (folder / ENTRY[options.kind][0]).exists():
        print(f"skipped: no {options.kind} in ../shared")
        return 0
    listed = HERE / f"{options.kind}.txt"
    names = known(options.kind, folder)
    if options.what == "check":
        names = claimed(listed.read_text(encoding="utf-8").splitlines(), names)[:: options.sample]
        print(f"{len(names)} claimed" + (f" (one in {options.sample})" if options.sample > 1 else ""))
        if not names:
            return 0
    results = outcomes(options.kind, folder, names, options.jobs)
    if options.what == "update":
        listed.write_text("\n".join([*header(options.kind), *patterns(results)]) + "\n", encoding="utf-8")
        print(f"{sum(map(bool, results.values()))} of {len(results)} pass; wrote {listed.name}")
        return 0
    # What nothing was said about has not passed either.
    failed = [name for name in names if results.get(name, False) is False]
    for name in failed:
        print(f"claimed, but does not pass: {name}")
    return 1 if failed else 0


def known(kind: str, folder: Path) -> list[str]:
    """Names of all cases there are."""
    if kind == "models":
        return sorted(path.stem for path in folder.glob("programs/*.json"))
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.mlir"))


def claimed(lines: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names that a list claims."""
    chosen: dict[str, bool] = dict.fromkeys(names, False)
    for line in lines:
        pattern = line.partition("#")[0].strip()
        if pattern:
            for name in fnmatch.filter(names, pattern.removeprefix("!")):
                chosen[name] = not pattern.startswith("!")
    return [name for name, claim in chosen.items() if claim]


def patterns(results: dict[str, bool | None]) -> list[str]:
    """The shortest list that claims what passed: per folder, all but the failures or the passes by name."""
    lines = []
    for folder in sorted({name.rpartition("/")[0] for name in results}):
        mine = {name: good for name, good in results.items() if name.rpartition("/")[0] == folder}
        passed = [name for name, good in mine.items() if good]
        failed = [name for name, good in mine.items() if good is False]
        if len(passed) > len(failed):
            lines += [f"{folder}/*" if folder else "*", *(f"!{name}" for name in failed)]
        else:
            lines += passed
    return lines


def header(kind: str) -> list[str]:
    return [f"# Of ../shared/{kind}, what is claimed to work; see claims.py for the form of this list.", ""]


def outcomes(kind: str, folder: Path, names: Sequence[str], jobs: int) -> dict[str, bool | None]:
    """Whether each case passed; None for those that the runner leaves out."""
    with tempfile.TemporaryDirectory() as scratch:
        found = Path(scratch) / "results.json"
        runner = [sys.executable, str(folder / ENTRY[kind][0]), "-j", str(jobs), "--json", str(found)]
        # The conformance cases take a minute together. The runner of the models takes expressions that match anywhere.
        chosen = [str(folder)] if kind == "conformance" else [f"^{n}$" for n in names]
        subprocess.run([*runner, *chosen], check=False)
        if not found.exists():
            raise SystemExit(f"{ENTRY[kind][0]} gave no results")
        data = json.loads(found.read_text(encoding="utf-8"))
    if kind == "models":
        return {name: bool(data[name]["ok"]) if name in data else None for name in names}
    return {r["case"]: None if r["status"] == "excluded" else r["status"] == "pass" for r in data["results"]}


if __name__ == "__main__":
    raise SystemExit(main())
