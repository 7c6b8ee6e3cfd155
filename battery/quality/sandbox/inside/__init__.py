"""What runs inside the fences: the judge with its tests, the program, and the pipes between them.

`server` imports all of it before it builds the fences, and forks from there: nothing here is looked for on disk while a
program runs. The judge's side is `judge` with `checking` and `comparing` (kinds of tests) over `foreign` (the program
as seen from there); the program's side is `program`; both speak `wire`.
"""
