"""What only a GPU can answer, in sections that each leave a file of their own: `benchmarks/gpu_proofs.sh` runs them.

- `views`: whether parts of a joined product are read rightly there (tests/switchboard/test_views.py, case by case);
- `attention`: whether one row's attention repeats itself, and whether the length of the cache's buffer changes it;
- `bisects`: the exactness ladder on one model, switch by switch;
- `steps`: kernels of one decode step, plain and with each switch, from CUPTI and from torch's profiler;
- `gather`: all of it into few files, the epilogue's verdict, and a short table.

Every section writes its file after each case, so that one that is ended keeps what it found.
"""
