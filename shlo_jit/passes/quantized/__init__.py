"""Quantized arithmetic as arithmetic on storage. Helpers: `math` has the words, `products` the rules of products."""
