"""Where weights come from: a package of the index, a GGUF file, an MLX folder, or nothing but a shape."""
