"""The exactness ladder: a switch on against off on the same weights, in five rungs of rising rigour.

1. every module that the switch replaced, at length 1, several magnitudes;
2. the attention and the MLP of every layer, each with the plain model's own input;
3. the whole model: logits of a prefill, and what the cache holds after it;
4. twenty steps over a filled cache, across the place where the cache grows;
5. whole answers, greedy and drawn with a seed: the same ids and the same bytes.

Then an audit: what /health calls engaged was seen to run, in as many places as the coverage says. `exact` means the
same bits on every rung; `rounding` means within a stated bound, and no token of the plain model changed that was not
a near-tie.
"""
