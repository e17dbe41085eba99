"""Ahead-of-time compilation: programs as libraries for C, without Python, LLVM or a run-time library.

export.py        the function `export`: options to files
image.py         contents of a library: functions, targets, constants
sized.py         functions with unknown dimensions, with sized_calls.py, sized_header.py and sized_words.py
modules.py       translation of an image to one LLVM module and its object code
interface.py     the C interface in LLVM text, with entry_points.py, imports.py, description.py and weights_code.py
instances.py     memory layout of an instance
services.py      operating system services that a library uses: memory, files, locks
weights.py       constants, in the object or in a file beside the library
header.py        the C header, with c_names.py
linking.py       linkers; archive.py: static libraries
"""
