"""switchboard beside mlx_lm and llama.cpp: same weights, same prompt tokens, one run, every engine asked in turn.

    python -m benchmarks.engine [--quick] [--blocks N] [--rungs 128,512] [--derive]

Each arm is a process that stays: it loads the model once and is asked over a pipe (`pipes`), so that neither HTTP nor
a start is inside a figure. A block is one new prompt for each rung. In it every arm reads the prompt, in a Williams
order; then all decode it in slices of a few tokens, the arms forwards, backwards, forwards, backwards, so that a
machine that drifts or is disturbed touches all alike; what an engine starts ahead is no gift to it (`worker`).
Arms are compared within blocks only (`ratios`); the interval is that of the block ratios. Other engines get what
switchboard's launcher gives itself: the preloaded BLAS, its threads, and the very same arrays (`weights`). What those
are worth is measured apart (`routes`), by mlx_lm's own loop with and without them.
"""
