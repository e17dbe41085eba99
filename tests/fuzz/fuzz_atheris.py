"""A target for atheris, if it is installed (it is not a dependency):

    python tests/fuzz/fuzz_atheris.py tests/fuzz/seeds

Its findings are added to `tests/fuzz/seeds`, which `test_damaged.py` always runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    try:
        import atheris  # pyright: ignore[reportMissingImports]
    except ImportError:
        sys.exit("atheris is not installed")
    with atheris.instrument_imports(include=["shlo_jit.text", "shlo_jit.ir", "shlo_jit.ops"]):
        from mutate import check

    atheris.Setup(sys.argv, lambda data: check(bytes(data)))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
