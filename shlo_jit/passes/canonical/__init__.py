"""Products, convolutions and linear algebra in the forms that the routines take: passes alone."""
