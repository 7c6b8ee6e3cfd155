"""One kernel a layer for bias, rotation and KV write: the kernel, the writes, the passes, what fits, and its proof."""
