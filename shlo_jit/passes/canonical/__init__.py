"""Passes that bring products, convolutions, linear algebra and collective ops into the forms that the kernels take.

Helpers: `byte_operands` finds the bytes that wide integers were converted from, `affine_weights` recognizes matrices of
scaled integers, `zero_points` emits products of values less a zero point, `channel_constants` evaluates constants that
are the same along most dimensions, and `exact_narrowing` finds the narrower numbers that an array holds."""
