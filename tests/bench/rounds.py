"""rounds.py - what the benches that run two programs in turns say about their times."""
import math
import statistics


def quartile(values):
    """The lower one: of the steps of a run, what other programs disturb least."""
    return sorted(values)[(len(values) + 3) // 4 - 1]


def interval(ratios):
    """Their median and an interval of at least 95 %, as interval.awk has it."""
    ratios, n, below, k = sorted(ratios), len(ratios), 0.0, 0
    while k <= n and 2 * (below + math.comb(n, k) * 0.5**n) <= 0.05:
        below += math.comb(n, k) * 0.5**n
        k += 1
    middle = statistics.median(ratios)
    if k == 0:
        return f"{middle:.2f}  [{ratios[0]:.2f}, {ratios[-1]:.2f}] (all {n}: too few for 95 %)"
    return f"{middle:.2f}  [{ratios[k - 1]:.2f}, {ratios[n - k]:.2f}]"
