"""rounds.py - what the benches that run two programs in turns say about their times."""
import math
import statistics


def quartile(values):
    """The lower one: of the steps of a run, what other programs disturb least."""
    return sorted(values)[(len(values) + 3) // 4 - 1]


def quartile_range(values):
    """From the lower to the upper quartile: by how much values vary."""
    ordered = sorted(values)
    return ordered[-((len(ordered) + 3) // 4)] - quartile(ordered)


def kendall_tau(rows):
    """Of rows of a forecast, what was measured, and by how much that varies: how far the forecasts
    are in the order of what was measured, from 1 to -1 for the other way round, over the pairs whose
    measured values differ by more than either varies.  Two that are forecast alike are in no order.
    Returns tau, the number of these pairs, and those (i, k) that are not in order; tau is 0 where
    there is no pair."""
    counted, order, wrong = 0, 0, []
    for k, (second, slower, spread) in enumerate(rows):
        for i, (first, faster, other) in enumerate(rows[:k]):
            if abs(slower - faster) <= max(spread, other):
                continue
            counted += 1
            agree = (second - first) * (slower - faster)
            order += (agree > 0) - (agree < 0)
            if agree <= 0:
                wrong.append((i, k))
    return (order / counted if counted else 0), counted, wrong


def interval(ratios, digits=2):
    """Their median and an interval of at least 95 %, as interval.awk has it."""
    ratios, n, below, k = sorted(ratios), len(ratios), 0.0, 0
    while k <= n and 2 * (below + math.comb(n, k) * 0.5**n) <= 0.05:
        below += math.comb(n, k) * 0.5**n
        k += 1
    middle = statistics.median(ratios)
    if k == 0:
        low, high, note = ratios[0], ratios[-1], f" (all {n}: too few for 95 %)"
    else:
        low, high, note = ratios[k - 1], ratios[n - k], ""
    return f"{middle:.{digits}f}  [{low:.{digits}f}, {high:.{digits}f}]{note}"
