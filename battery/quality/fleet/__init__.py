"""Grading on many machines: the answers of all arms to a suite go out in shards, and come back as the same rows.

    with cluster.opened("auto", cache=folder) as graders:
        with graders(tasks) as grader: ...

In one shard's order: `driver` sorts answers into programs, as the grader of one machine does · `shards` cuts these and
deals them out · `post` is what runs on every machine: the same grader, with a test of itself there · `cluster` carries
between the two, through Ray. Only `cluster` knows Ray.

What holds: a machine that fails its own test grades nothing and is named; a shard whose machine dies is judged by
another; one that fails twice ends the run as an error of the grader, never as failed answers. Verdicts are kept by the
driver alone, under keys that the machine made which judged. What does not: a machine's worker is believed, so a fleet
is as trustworthy as whoever can change its machines; and where a machine has no namespaces, which its receipt says, a
program reaches Ray's ports there as it reaches the network.
"""
