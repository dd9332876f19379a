# metrics.awk - the man page, whose line @METRICS@ becomes the table of metrics.md.
# awk -f metrics.awk metrics.md trireme.1.in
function bold(text) {
    gsub(/-/, "\\-", text)
    while (match(text, /`[^`]*`/))
        text = substr(text, 1, RSTART - 1) "\\fB" substr(text, RSTART + 1, RLENGTH - 2) "\\fR" \
            substr(text, RSTART + RLENGTH)
    return text
}
FNR == NR && /^\| `/ {
    split($0, cell, / *\| */)
    gsub(/`/, "", cell[2])
    notes = cell[3]
    if (cell[4] != "always")
        notes = notes (notes ? "; " : "") cell[4]
    sub(/see below/, "every line on CPUs, lines of steps with a progress line on GPUs", notes)
    fields = fields ".TP\n.B " cell[2] "\n" bold(cell[5]) (notes ? " (" notes ")" : "") "\n"
}
FNR == NR { next }
/^@METRICS@$/ { printf "%s", fields; next }
{ print }
