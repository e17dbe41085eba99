"""Custom calls of API version 4: handlers that were written with XLA's headers for `jax.ffi`.

`structures.py` has the structures of that interface. `handler_calls.py` prepares a call when an executable is created.
The machine code is written by `dispatch.py`, which makes calls, `api.py`, whose functions handlers call back, and
`tasks.py`, their thread pool.
"""
