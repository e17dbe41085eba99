"""How the processes of a grid exchange data, in LLVM text: no run-time library, and no Python between them.

`board.py` is the memory that all ranks see, and what each keeps for itself; `waiting.py` waits for a word of it;
`messages.py` posts, meets and leaves; `grid_calls.py` begins and ends calls of programs; `routine.py` is all of it as
one object. A rank is a process, or a thread, that runs one program of the grid.
"""
