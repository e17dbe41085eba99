"""Custom calls of API version 4: handlers that were written with XLA's headers for `jax.ffi`.

`structures.py` has the structures of that interface, `api.py` and `dispatch.py` the machine code that stands behind it,
`handler_calls.py` what is made of each call when an executable is made.
"""
