/* nearest.c - finding the valid name that was probably meant by what a user typed. */
#include "config/schema.h"

#include <ctype.h>
#include <string.h>

#include "base/round.h"

enum { NAME_MAX_CHARS = 64 };

/* Optimal string alignment: Levenshtein's table [length of a][length of b], plus swaps of
 * neighbours, of which three rows are in memory at a time.  Characters beyond NAME_MAX_CHARS count
 * as one edit each. */
int nearest_distance(const char *a, const char *b)
{
    int rows[3][NAME_MAX_CHARS + 1];
    int na = (int)strnlen(a, 1000), nb = (int)strnlen(b, 1000);
    int surplus = (int)max_i64(max_i64(na, nb) - NAME_MAX_CHARS, 0);
    na = (int)min_i64(na, NAME_MAX_CHARS);
    nb = (int)min_i64(nb, NAME_MAX_CHARS);
    for (int j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *now = rows[i % 3], *before = rows[(i + 2) % 3], *earlier = rows[(i + 1) % 3];
        int x = tolower((unsigned char)a[i - 1]);
        now[0] = i;
        for (int j = 1; j <= nb; j++) {
            int y = tolower((unsigned char)b[j - 1]);
            now[j] = (int)min_i64(min_i64(before[j], now[j - 1]) + 1, before[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]))
                now[j] = (int)min_i64(now[j], earlier[j - 2] + 1);
        }
    }
    return rows[na % 3][nb] + surplus;
}

/* Has the name a word, without a letter before or after it: "max" in "train.max_lr"? */
static int has_word(const char *name, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = name; (at = strstr(at, word)); at += length)
        if ((at == name || !isalpha((unsigned char)at[-1])) && !isalpha((unsigned char)at[length]))
            return 1;
    return 0;
}

/* Is one name the least and the other the most of something: "max_lr", "min_lr"? */
static int is_opposite(const char *a, const char *b)
{
    return (has_word(a, "max") && has_word(b, "min")) || (has_word(a, "min") && has_word(b, "max"));
}

/* A name of up to 4 characters is near at 1 edit, up to 8 at 2, a longer one at a third of its
 * length; never an opposite, nor one of which no letter stays.  Of names that are equally near the
 * first one tried stays. */
void nearest_try(struct nearest *nearest, const char *compared, const char *name)
{
    int distance = nearest_distance(nearest->wanted, compared);
    int longest = (int)strlen(compared);
    int bound = longest / 3 > 2 ? longest / 3 : longest > 4 ? 2 : 1;
    if (distance > bound || distance >= longest || is_opposite(nearest->wanted, compared) ||
        (nearest->name && distance >= nearest->distance))
        return;
    nearest->name = name;
    nearest->distance = distance;
}
