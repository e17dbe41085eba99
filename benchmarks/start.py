"""Start time of a program in a new process: `measure` runs this file as one, with a separate cache.

The process creates its inputs as zeros and does not import JAX, so the measurements are those of shlo_jit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def measure(text: str, timeout: float) -> dict[str, dict[str, float]]:
    """Seconds of `import`, `compile` and first `call`: `cold` with an empty cache, then `cached`.

    Also the `peak`: resident memory beyond that of the process before it compiles, in MB. Raises RuntimeError if the
    process fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.mlir"
        program.write_text(text, encoding="utf-8")
        environment = {**os.environ, "SHLO_JIT_CACHE_DIR": str(Path(folder) / "cache")}
        command = [sys.executable, __file__, str(program)]
        found = {}
        for name in ("cold", "cached"):
            done = subprocess.run(
                command, check=False, env=environment, capture_output=True, text=True, timeout=timeout
            )
            if done.returncode:
                raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "crash")
            found[name] = json.loads(done.stdout)
        return found


def megabytes(name: str) -> float:
    """A value of Linux's memory statistics of this process in megabytes; NaN on other systems."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    except OSError:
        return float("nan")
    return int(lines[name].split()[0]) / 1024


def main(path: str) -> None:
    begin = time.perf_counter()
    import numpy as np

    numpy_is_there = time.perf_counter()
    import shlo_jit
    import shlo_jit.pipeline
    from shlo_jit.runtime.executable import Executable

    imported, idle = time.perf_counter(), megabytes("VmRSS")
    executable = shlo_jit.compile(Path(path))
    assert isinstance(executable, Executable)  # the cases' shapes are known
    compiled = time.perf_counter()
    inputs = [np.zeros(i.shape, i.dtype) for i in executable.inputs]
    before = time.perf_counter()
    executable(*inputs)
    end = time.perf_counter()
    seconds = {
        "numpy": numpy_is_there - begin,
        "import": imported - numpy_is_there,
        "compile": compiled - imported,
        "call": end - before,
        "peak": megabytes("VmHWM") - idle,
    }
    print(json.dumps(seconds))


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    main(sys.argv[1])
