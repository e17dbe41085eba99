"""Products, convolutions, linear algebra and collective ops in the forms that the routines take: passes alone, but for
`byte_operands`, which finds the bytes that wide integers were, `zero_points`: products of values less a number, and
`channel_constants`, which knows constants that are the same along most dimensions."""
