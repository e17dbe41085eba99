"""Exports a PyTorch model as a library with a C header, and calls it from C.

python examples/pytorch/export_classifier.py FOLDER      writes classifier.so, classifier.h and main.c, and runs main

Needs a C compiler.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

import shlo_jit

PROGRAM = """
#include <stdio.h>
#include "classifier.h"

int main(void) {
    float x[2 * 8], y[2 * 3];
    for (int i = 0; i < 16; i++) x[i] = (float)i / 16;
    classifier_instance *instance;
    int status = classifier_create(&instance, NULL);
    if (status == SHLO_OK) status = classifier_main(instance, x, y);
    if (status != SHLO_OK) return status;
    classifier_destroy(instance);
    for (int i = 0; i < 6; i++) printf("%.4f%c", y[i], i % 3 == 2 ? '\\n' : ' ');
    return 0;
}
"""


def model() -> torch.nn.Module:
    """A classifier of eight numbers, with random weights."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3), torch.nn.Softmax(-1)
    return torch.nn.Sequential(*layers).eval()


def main(folder: Path) -> str:
    """Writes the library and the C program, and returns what the program prints."""
    exported = torch.export.export(model(), (torch.zeros(2, 8),))
    shlo_jit.export(exported, folder / "classifier.so", header=folder / "classifier.h", name="classifier")
    (folder / "main.c").write_text(PROGRAM)
    command = ["cc", "-o", "main", "main.c", "./classifier.so", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=folder, check=True)
    return subprocess.run([folder / "main"], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    print(main(Path(sys.argv[1])), end="")
