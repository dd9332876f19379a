#!/usr/bin/env python3
"""muon.py - make muon.h5: thirty steps of Muon in double precision.

The rule is that of torch.optim.Muon (PyTorch 2.9) without its rounding to bf16: the mean of
gradients by lerp, Nesterov's by another, five Newton-Schulz steps of the normalized matrix (of its
transpose where it has more rows than columns), decoupled weight decay, and the learning rate
adjusted by the shape.  The result is checked in; this is run by hand:  muon.py FILE.h5

For each shape, /ROWSxCOLS: float32 [9, rows, cols]:
  0        the first p
  1        target
  2, 3, 4  noise: the gradient of step t, from 0 on, is p - target + noise[t % 3]
  5, 6     the last p of adjust_lr original, without and with Nesterov's look ahead
  7, 8     the same of match_rms_adamw
Attributes of the file: lr, weight_decay, momentum, ns_steps, steps.
"""
import math
import sys

import h5py
import numpy

SHAPES = ((1, 1), (1, 7), (7, 1), (3, 3), (3, 7), (7, 3), (11, 23), (23, 11), (17, 17), (2, 61))
RULE = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.95, "ns_steps": 5, "steps": 30}


def orthogonal(g, steps, eps=1e-7, coefficients=(3.4445, -4.7750, 2.0315)):
    a, b, c = coefficients
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / max(numpy.linalg.norm(x), eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if g.shape[0] > g.shape[1] else x


def adjusted(adjust, rows, cols):
    return math.sqrt(max(1, rows / cols)) if adjust == "original" else 0.2 * math.sqrt(max(rows, cols))


def train(start, target, noise, adjust, nesterov):
    p, mean = start.astype(numpy.float64), 0
    for t in range(RULE["steps"]):
        g = p - target + noise[t % 3]
        mean = mean + (g - mean) * (1 - RULE["momentum"])
        update = g + (mean - g) * RULE["momentum"] if nesterov else mean
        p = p * (1 - RULE["lr"] * RULE["weight_decay"])
        p = p - RULE["lr"] * adjusted(adjust, *p.shape) * orthogonal(update, RULE["ns_steps"])
    return p.astype(numpy.float32)


def main():
    random = numpy.random.RandomState(2025)
    with h5py.File(sys.argv[1], "w") as file:
        for name, value in RULE.items():
            file.attrs[name] = numpy.float64(value)
        for shape in SHAPES:
            data = random.standard_normal((5,) + shape).astype("f4")
            ends = [train(data[0], data[1], data[2:], adjust, nesterov)
                    for adjust in ("original", "match_rms_adamw") for nesterov in (False, True)]
            file["%dx%d" % shape] = numpy.concatenate((data, numpy.stack(ends)))


main()
