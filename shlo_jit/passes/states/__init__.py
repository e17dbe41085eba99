"""Updates of a part of a tensor, rewritten such that they cost what they touch.

Loops that change a small part of a large state write it in many ways: under conditions, as scatters of one element, as
sums with a tensor of zeros, in rows that are read and written back. The passes bring them into forms that memory
planning recognizes as updates in place.

Helpers: `updates.py` (which ops update a part, and what reads a value), `known_signs.py` (values without -0),
`known_ranges.py` (what counters may be), `counted_loops.py` (what they are in each iteration). `stacked_rows` has
`row_chains.py`, `row_updates.py` and `stacked_results.py`.
"""
