#!/bin/sh
# rounds.sh - what benches say about times is right: quartiles and Kendall's tau, by hand.
. "$(dirname "$0")/../cli/helpers.inc"

python=${TRIREME_PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
    skip "rounds" "no Python"
    finish
fi
export PYTHONPATH="$top/tests/bench" PYTHONDONTWRITEBYTECODE=1

# says NAME WANTED EXPRESSION
says() {
    is "$1" "$2" "$("$python" -c "from rounds import *
print($3)" 2>&1 | tail -n 1)"
}

says "the lower quartile" "1 2 2 10" "quartile([1, 2, 3, 4]), quartile([5, 4, 3, 2, 1]), \
    quartile([8, 7, 6, 5, 4, 3, 2, 1]), quartile([10])"
says "from quartile to quartile" "(0, 1, 3, 5)" "(quartile_range([3]), quartile_range([1, 2]), \
    quartile_range([4, 1, 3, 2]), quartile_range([8, 1, 7, 2, 6, 3, 5, 4]))"
says "all in order" "(1.0, 6, [])" "kendall_tau([(1, 10, 0), (2, 20, 0), (3, 30, 0), (9, 31, 0)])"
says "the other way round" "(-1.0, 3, [(0, 1), (0, 2), (1, 2)])" \
    "kendall_tau([(3, 10, 0), (2, 20, 0), (1, 30, 0)])"
says "one pair of three is not" "(1 / 3, 3, [(1, 2)])" \
    "tuple(kendall_tau([(1, 10, 0), (3, 20, 0), (2, 30, 0)])).__repr__().replace('0.3333333333333333', '1 / 3')"
says "a pair counts if it differs by more than either varies" "(1.0, 2, [])" \
    "kendall_tau([(2, 10, 5), (1, 15, 1), (3, 30, 2)])"
says "the wider of the two counts" "(0, 0, [])" "kendall_tau([(2, 10, 1), (1, 15, 6)])"
says "forecast alike is no order" "(0.0, 1, [(0, 1)])" "kendall_tau([(2, 10, 1), (2, 15, 1)])"
says "the order of rows does not matter" "(1.0, 3, [])" \
    "kendall_tau([(3, 30, 0), (1, 10, 0), (2, 20, 0)])"
says "nothing" "(0, 0, [])" "kendall_tau([])"
finish
