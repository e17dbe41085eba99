"""Updates of a part of a tensor, rewritten such that they cost what they touch.

Loops that change a small part of a large state write it in many ways: under conditions, as scatters of one element, as
sums with a tensor of zeros. The passes bring them into forms that memory planning recognizes as updates in place.
"""
