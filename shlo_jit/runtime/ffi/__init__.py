"""Custom calls of API version 4: handlers that were written with XLA's headers for `jax.ffi`.

`structures.py` has the structures of that interface. `handler_calls.py` is what is made of each call when an executable
is made. The machine code behind it is written by `dispatch.py`, which makes calls, `api.py`, which handlers call back,
and `tasks.py`, their thread pool.
"""
