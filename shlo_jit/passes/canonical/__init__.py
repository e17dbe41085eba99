"""Products, convolutions, linear algebra and collective ops in the forms that the routines take: passes alone."""
