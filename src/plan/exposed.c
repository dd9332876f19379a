/* exposed.c - see exposed.h. */
#include "plan/exposed.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

void exposed_begin(struct exposed *exposed, const struct program *const *program, int ranks)
{
    *exposed = (struct exposed){.ranks = ranks};
    exposed->seconds = array_make((size_t)ranks, sizeof *exposed->seconds);
    for (int r = 0; r < ranks; r++)
        exposed->seconds[r] = array_make((size_t)program[r]->instrs + 1, sizeof(double));
}

void exposed_add(struct exposed *exposed, int rank, int instr, double seconds)
{
    exposed->seconds[rank][instr] += seconds;
}

/* Write to name what a trace calls an instruction, without " micro 3". */
static void name_of(const struct program *program, int i, char name[TRACE_NAME])
{
    instr_text(program, i, name, TRACE_NAME);
    char *micro = strstr(name, " micro "), *rest = micro ? strchr(micro + 7, ' ') : NULL;
    if (micro)
        memmove(micro, rest ? rest : "", rest ? strlen(rest) + 1 : 1);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct exposed_row *)a)->name, ((const struct exposed_row *)b)->name);
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const struct exposed_row *)a)->seconds;
    double y = ((const struct exposed_row *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : by_name(a, b);
}

/* Make one row of rows with the same name, which follow one another.  Returns how many are left. */
static int merge(struct exposed_row *row, int count)
{
    int merged = 0;
    for (int i = 0; i < count; i++) {
        if (merged && !by_name(&row[merged - 1], &row[i])) {
            row[merged - 1].times++;
            row[merged - 1].seconds += row[i].seconds;
        } else
            row[merged++] = row[i];
    }
    return merged;
}

int exposed_list(const struct exposed *exposed, const struct program *program, int rank,
                 struct exposed_row row[EXPOSED_ROWS])
{
    struct exposed_row *all = NULL;
    int count = 0, capacity = 0;
    for (int i = 0; i < program->instrs; i++) {
        if (exposed->seconds[rank][i] <= 0)
            continue;
        all = array_grow(all, count, &capacity, sizeof *all);
        name_of(program, i, all[count].name);
        all[count].times = 1;
        all[count++].seconds = exposed->seconds[rank][i];
    }
    if (count) {
        qsort(all, (size_t)count, sizeof *all, by_name);
        count = merge(all, count);
        qsort(all, (size_t)count, sizeof *all, by_seconds);
    }
    count = count < EXPOSED_ROWS ? count : EXPOSED_ROWS;
    if (count)
        memcpy(row, all, (size_t)count * sizeof *row);
    free(all);
    return count;
}

void exposed_free(struct exposed *exposed)
{
    for (int r = 0; r < exposed->ranks; r++)
        free(exposed->seconds[r]);
    free(exposed->seconds);
    *exposed = (struct exposed){0};
}
