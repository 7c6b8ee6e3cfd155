"""A fence around programs that nobody has read: answers of models are run here, and judged from outside.

    from battery.quality.sandbox.pool import Sandbox

A program and its tests never share a process. The program's process is forked from a warm server before the tests are
read; it only executes the answer and returns results. The tests run in a second process, which calls across a pipe and
takes plain data back. So there is no token, no expected result and no test for the program to find, and no printed
word, exit status or forged message is a pass.

What it protects against: endless loops and sleeping (processor time and the clock, both from outside), memory (of
each process by the kernel, of all together from outside), output without end, fork bombs and orphans (limits; process
ids of their own that end together), files (an empty folder in memory; the interpreter and its packages, read-only, are
all else that is there), network (none), other tasks, the answers' file and this machine's other processes (not
visible), forged verdicts, and results that a check took at their own word, such as one that claims to equal everything
(marked `suspicious`).

What it does not protect against: a hole in the kernel or in Python's unpickling of plain data; the data file itself,
whose tests and canonical solutions run beside the judge, fenced but trusted with the verdict; side channels; wear. An
answer that knows the tasks by heart passes. Where namespaces are forbidden (some containers) Landlock stands in for
them, as far as the kernel has it: files cannot be read, written or removed, other processes not be signalled and TCP
not be used, while UDP stays within reach, and modes and times of the user's own files. Where there is neither (macOS)
files, network and the user's processes stay within reach, memory is not limited and a process that leaves its session
can outlive its program: run strangers' answers there in a virtual machine.
What held and what did not is in every receipt (`fences`, `missing`).
"""
