"""Every threshold that steers a compiler decision, defined once: its unit, what it separates and where it comes from.

Thresholds never change the meaning of a program, and most do not change the bits of its results. A case is one of
`benchmarks` whose code changes when the figure is halved or doubled. `python -m benchmarks.thresholds` times the cases,
and docs/tuning.md has the table. "No case moves" says that the code of none of the cases tried changes. "Chosen" marks
a figure that was derived by reasoning and that no case has contradicted.

A share such as `caches.L2 / 2` depends on the target (`Target.bytes_of`). Its text describes the CPU that the share was
measured on: 48 KiB of first-level, 1 MiB of second-level and 32 MiB of last-level cache. Shares do not change the bits
of results; thresholds that would change them are the same on every CPU.
"""

from __future__ import annotations

import warnings
from typing import Any

from shlo_jit.tuning.loops import *  # noqa: F403 - every threshold is read as `tuning.NAME`
from shlo_jit.tuning.products import *  # noqa: F403
from shlo_jit.tuning.programs import *  # noqa: F403
from shlo_jit.tuning.renamed import former_names
from shlo_jit.tuning.run_time import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Returns a threshold by its former name, with a DeprecationWarning."""
    if name not in former_names:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"shlo_jit.tuning.{name} is called {former_names[name]} now", DeprecationWarning, stacklevel=2)
    return globals()[former_names[name]]
