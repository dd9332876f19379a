# interval.awk - print the median of numbers, which are read sorted and one a line, and its interval of at
# least 95 %, by order statistics of the sign test, which assumes nothing about the noise.
{ a[NR] = $1 }

function tail(k,   i, p, b) { # P(at most k of NR heads)
    b = 0.5 ^ NR
    for (i = 0; i <= k; i++) { p += b; b = b * (NR - i) / (i + 1) }
    return p
}

END {
    k = 1
    while (2 * tail(k) <= 0.05) k++
    printf "%.4f  [%.4f, %.4f]", (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2, a[k], a[NR + 1 - k]
}
