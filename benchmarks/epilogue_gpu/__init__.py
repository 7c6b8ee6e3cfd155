"""The fused epilogue on a GPU: the kernel against its chain, bitwise; the same text; time, memory and launches a step.

    python -m benchmarks.epilogue_gpu --out FOLDER [--budget 420]
    python -m benchmarks.epilogue_gpu --launches MODEL ARM            one JSON line, for the first form to ask

Parts, each on its own, none of which ends the others:

- kernel: every head size, type, rotation, input form and way of writing, at offsets up to 131,071 and 1 to 5 rows,
  against MLX's add, rope and slice update on the same numbers: the same bytes or not;
- text: 128 greedy tokens after three prompts (one crosses the cache's growth), and the logits of 128 given tokens with
  the caches they leave, chain against kernel, and the chain against itself;
- speed: decode over caches filled with random numbers, the arms chain, rows and cache in turn within each block, the
  order rotating; ratio to the chain by blocks, with its interval, and the peak memory over what the model holds;
- launches: kernels of one decode step by name, from CUPTI through torch's profiler where that works.

The last line is one JSON; the whole goes to FOLDER/epilogue.json. Exit status 1 when any byte or token differed.
"""
