"""The fused epilogue on a GPU: the kernel against its chain, bitwise; the same text; time and memory of a step.

    python -m benchmarks.epilogue_gpu kernel --share 0 --shares 6 --out FOLDER
    python -m benchmarks.epilogue_gpu text --model smollm2-135m --out FOLDER
    python -m benchmarks.epilogue_gpu speed --model smollm2-135m --out FOLDER

`benchmarks/epilogue_gpu.sh` runs all of them and `benchmarks.gpu.gather` draws the verdict over their files:

- kernel: every head size, type, rotation, input form and way of writing (66 cases), at offsets up to 131,071 and 1 to 5
  rows, against MLX's add, rope and slice update on the same numbers: the same bytes or not;
- text: 128 greedy tokens after three lengths of prose, and the logits of 128 given tokens with the caches they leave,
  chain against kernel, and the chain against itself; once as MLX is, once with cuDNN's attention off, since MLX picks
  that by the memory that the allocator hands out and need not repeat itself;
- speed: decode over caches filled with random numbers, the arms chain, rows and cache in turn within each block, the
  order rotating; ratio to the chain by blocks, with its interval, and the peak memory over what the model holds.

Exit status: 0 when everything planned was measured and nothing differed, 1 when something did, 2 when something planned
was not measured (`verdict`).
"""
