#!/usr/bin/env python3
"""kernel_table.py - where a traced step's time goes, kernel by kernel, and how far that is from
what the machine can.

Every op of a trace is given the FLOPs it must do and the bytes it must move; its limit is the
longer of the two at the measured rates of matrix products and of copies.

  kernel_table.py TRACE.json --hidden 4096 --layers 16 ... --gemm GFLOP/s --copy GB/s
"""
import argparse
import json

from trace_lanes import lanes

# The products of a block, in the order of forward.
LINEARS = ("qkv", "out", "gate_up", "down")


def sizes(m):
    """Widths of the activations of a block."""
    dim = m["hidden"] // m["heads"]
    return dict(h=m["hidden"], qkv=(m["heads"] + 2 * m["kv_heads"]) * dim, o=m["heads"] * dim,
                f=m["ffn"], v=m["vocab"])


def parameters(m, unit):
    """Elements of the flat parameter of a unit, as a trace names it."""
    s = sizes(m)
    if unit == "embed":
        return s["v"] * s["h"]
    if unit == "head":
        return s["h"] + (0 if m.get("tie") else s["v"] * s["h"])
    return s["h"] * (s["qkv"] + s["o"] + 3 * s["f"] + 2)


def linear_flops(m, which, tokens):
    s = sizes(m)
    ins = dict(qkv=s["h"], out=s["o"], gate_up=s["h"], down=s["f"])
    outs = dict(qkv=s["qkv"], out=s["h"], gate_up=2 * s["f"], down=s["h"])
    return 2 * tokens * ins[which] * outs[which]


def op_work(m, name, nth, run, tokens, seq, width):
    """(label, FLOPs, bytes) of the nth op of its name in a RUN; width: bytes of an activation."""
    s, t = sizes(m), tokens
    attention = 2 * t * seq * s["o"]  # two products over half the square
    if name.startswith("linear"):
        forward = name == "linear"
        which = LINEARS[nth % 4] if forward else LINEARS[3 - nth % 4]
        return f"{name} {which}", linear_flops(m, which, t), 0
    if name.startswith("head_loss"):
        return name, (6 if name.endswith("train") else 2) * t * s["h"] * s["v"], 0
    if name == "rmsnorm":
        fused = nth % 2 == 1 and "head" not in run  # with the residual's sum
        return name + (" residual" if fused else ""), 0, (4 if fused else 2) * t * s["h"] * width
    if name == "rmsnorm_backward":
        tensors = 3 if "head" in run else 4
        return name, 0, tensors * t * s["h"] * width
    moved = {
        "embedding": 2 * t * s["h"] * width,
        "embedding_backward": t * s["h"] * (width + 4) + 4 * s["v"] * s["h"],
        "rope": 2 * t * s["qkv"] * width,
        "swiglu": 3 * t * s["f"] * width,
        "swiglu_backward": 5 * t * s["f"] * width,
        "add": 3 * t * s["h"] * width,
    }
    flops = {"attention": attention, "attention_backward": 2.5 * attention}
    return name, flops.get(name, 0), moved.get(name, 0)


def instruction_work(m, text, width):
    """The same for what no op does."""
    kind, _, rest = text.partition(" ")
    unit = rest.split(" ")[0]
    if kind == "UPDATE":  # weight and moments read and written, gradient read, bf16 copy written
        return "AdamW", 0, parameters(m, unit) * (30 if width == 2 else 28)
    if kind == "NORM":
        return "gradient norm", 0, parameters(m, unit) * 4
    return kind.lower(), 0, 0


def table(events, m, tokens, seq, width=2):
    """Rows {name, count, ms, flops, bytes} of a rank's trace, longest first, and the step's ms."""
    compute, ops = lanes(events, "compute"), lanes(events, "ops")
    instructions = compute | lanes(events, "update")
    mine = sorted((e for e in events if e["ph"] == "X" and e["pid"] == 0), key=lambda e: e["ts"])
    runs = [e for e in mine if e["tid"] in compute and e["name"].startswith("RUN ")]
    rows, seen = {}, {}

    def add(label, e, flops, moved):
        row = rows.setdefault(label, dict(name=label, count=0, ms=0, flops=0, bytes=0))
        row["count"] += 1
        row["ms"] += e["dur"] / 1e3
        row["flops"] += flops
        row["bytes"] += moved

    for e in mine:
        if e["tid"] in ops:
            middle = e["ts"] + e["dur"] / 2
            at = next((i for i, r in enumerate(runs) if r["ts"] <= middle <= r["ts"] + r["dur"]), -1)
            nth = seen[at, e["name"]] = seen.get((at, e["name"]), -1) + 1
            run = runs[at]["name"] if at >= 0 else ""
            label, flops, moved = op_work(m, e["name"], nth, run, tokens, seq, width)
            add(label, e, flops, moved)
        elif e["tid"] in instructions and not e["name"].startswith("RUN "):
            label, flops, moved = instruction_work(m, e["name"], width)
            add(label, e, flops, moved)
    start = min((e["ts"] for e in mine), default=0)
    step = max((e["ts"] + e["dur"] for e in mine), default=0) - start
    return sorted(rows.values(), key=lambda r: -r["ms"]), step / 1e3


def add_limits(rows, gemm_gflops, copy_gbs):
    """The ms each row could take at best, and the share of that it reaches."""
    for row in rows:
        by_flops = row["flops"] / (gemm_gflops * 1e6) if gemm_gflops else 0
        by_bytes = row["bytes"] / (copy_gbs * 1e6) if copy_gbs else 0
        row["limit_ms"] = max(by_flops, by_bytes)
        row["limited_by"] = "-" if row["limit_ms"] == 0 else "GEMM" if by_flops > by_bytes else "copy"
        row["of_limit"] = row["limit_ms"] / row["ms"] if row["ms"] > 0 else 0


def text(rows, step_ms):
    out = [f"  {'kernel':26}{'times':>6}{'ms':>10}{'of step':>9}{'TFLOP/s':>9}{'GB/s':>8}"
           f"{'limit ms':>10}{'':6}{'of limit':>8}"]
    for r in rows:
        seconds = r["ms"] * 1e-3 or 1
        tflops = f"{r['flops'] / seconds * 1e-12:.1f}" if r["flops"] else "-"
        gbs = f"{r['bytes'] / seconds * 1e-9:.0f}" if r["bytes"] else "-"
        share = f"{r['of_limit']:.0%}" if r["limit_ms"] else "-"
        out.append(f"  {r['name']:26}{r['count']:6}{r['ms']:10.3f}{r['ms'] / step_ms:9.1%}{tflops:>9}"
                   f"{gbs:>8}{r['limit_ms']:10.3f} {r['limited_by']:5}{share:>8}")
    named = sum(r["ms"] for r in rows)
    out.append(f"  {'between kernels':26}{'':6}{step_ms - named:10.3f}{(step_ms - named) / step_ms:9.1%}")
    best = sum(r["limit_ms"] or r["ms"] for r in rows)
    out.append(f"  all {step_ms:.2f} ms; every kernel at its limit: {best:.2f} ms, {best / step_ms:.0%}")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    for name in ("hidden", "layers", "heads", "kv_heads", "ffn", "vocab", "seq", "batch"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, required=True)
    parser.add_argument("--tie", action="store_true")
    parser.add_argument("--width", type=int, choices=[2, 4], default=2)
    parser.add_argument("--gemm", type=float, default=0, help="GFLOP/s")
    parser.add_argument("--copy", type=float, default=0, help="GB/s, read and written")
    c = parser.parse_args()
    with open(c.trace) as f:
        events = json.load(f)["traceEvents"]
    rows, step = table(events, vars(c), c.seq * c.batch, c.seq, c.width)
    add_limits(rows, c.gemm, c.copy)
    print(text(rows, step))


if __name__ == "__main__":
    main()
