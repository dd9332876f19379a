# text.awk - a text to train on in tests, the same on every machine and at every commit.
#
#   awk -v bytes=N -f text.awk        at least N bytes, whole lines
#
# Sentences of words of one to four syllables.  A word's number is the square of a uniform number, so
# that low numbers are frequent and high ones rare, as in real text; a word depends on the one before
# it half of the time, so that there is something to learn beyond single letters.  Random numbers:
# x -> 16807 x mod 2^31 - 1 (Park and Miller 1988), whose products are exact in doubles.
function uniform() {
    seed = seed * 16807 % 2147483647
    return seed / 2147483647
}
function word(   n, s) {
    for (n = 1 + int(4 * uniform() * uniform()); n > 0; n--)
        s = s substr("bdfghklmnprstvwz", 1 + int(16 * uniform()), 1) \
            substr("aeiou", 1 + int(5 * uniform()), 1) (uniform() < 0.3 ? "n" : "")
    return s
}
BEGIN {
    seed = 1
    words = 600
    for (i = 0; i < words; i++)
        list[i] = word()
    while (written < bytes) {
        line = ""
        for (n = 4 + int(10 * uniform()); n > 0; n--) {
            u = uniform()
            last = uniform() < 0.5 ? (last * 7 + int(3 * u)) % words : int(words * u * u)
            line = line (line == "" ? "" : uniform() < 0.1 ? ", " : " ") list[last]
        }
        line = toupper(substr(line, 1, 1)) substr(line, 2) "."
        print line
        written += length(line) + 1
    }
}
