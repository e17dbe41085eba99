"""Quantized arithmetic lowered to arithmetic on storage types. Helpers: `math` has the arithmetic, `products` the rules
for products."""
