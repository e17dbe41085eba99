"""Ahead of time: programs as libraries for C, without Python, LLVM or a run-time library.

export.py        the function `export`: options to files
image.py         what goes into a library: functions, targets, constants
sized.py         functions with unknown dimensions; with it sized_calls.py, sized_header.py, sized_words.py
modules.py       an image as one LLVM module, and its object code
interface.py     the C interface, in LLVM text; with it entry_points.py, imports.py, description.py, weights_code.py
instances.py     what an instance is in memory
services.py      what a library asks of its system: memory, files, locks
weights.py       constants, in the object or in a file beside the library
header.py        the C header; with it c_names.py
linking.py       linkers; archive.py, static libraries
"""
