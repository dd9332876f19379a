/* box.c - see box.h. */
#include "base/box.h"

#include <stdio.h>

#include "base/round.h"
#include "base/text.h"

struct box box_whole(int dims, const int64_t *whole)
{
    struct box box = {.dims = dims};
    for (int i = 0; i < dims; i++)
        box.whole[i] = box.count[i] = whole[i];
    return box;
}

int box_is_whole(const struct box *box)
{
    for (int i = 0; i < box->dims; i++)
        if (box->count[i] != box->whole[i])
            return 0;
    return 1;
}

int box_is_sound(const struct box *box)
{
    for (int i = 0; i < box->dims; i++)
        if (box->start[i] < 0 || box->count[i] < 0 || box->start[i] > box->whole[i] ||
            box->count[i] > box->whole[i] - box->start[i])
            return 0;
    return 1;
}

int64_t box_elems(const struct box *box)
{
    int64_t elems = 1;
    for (int i = 0; i < box->dims; i++)
        elems *= box->count[i];
    return elems;
}

int box_equal(const struct box *a, const struct box *b)
{
    int equal = a->dims == b->dims;
    for (int i = 0; equal && i < a->dims; i++)
        equal =
            a->whole[i] == b->whole[i] && a->start[i] == b->start[i] && a->count[i] == b->count[i];
    return equal;
}

int box_in_blocks(const struct box *box, int64_t block, struct box *blocks)
{
    int last = box->dims - 1;
    int64_t whole = 1, row = 1; /* elements of the tensor; of one index of its first dimension */
    *blocks = *box;
    if (box->whole[last] % block == 0) {
        blocks->whole[last] /= block;
        blocks->start[last] /= block;
        blocks->count[last] /= block;
        return box->start[last] % block || box->count[last] % block ? -1 : 0;
    }
    for (int i = 0; i < box->dims; i++) {
        whole *= box->whole[i];
        row *= i ? box->whole[i] : 1;
        if (i && box->count[i] != box->whole[i])
            return -1;
    }
    int64_t start = box->start[0] * row, count = box->count[0] * row;
    *blocks = (struct box){
        .dims = 1, .whole = {whole / block}, .start = {start / block}, .count = {count / block}};
    return whole % block || start % block || count % block ? -1 : 0;
}

int box_overlaps(const struct box *a, const struct box *b)
{
    for (int i = 0; i < a->dims; i++)
        if (a->start[i] + a->count[i] <= b->start[i] || b->start[i] + b->count[i] <= a->start[i] ||
            !a->count[i] || !b->count[i])
            return 0;
    return 1;
}

/* Returns the outermost dimension that a run can go along without leaving a gap in either box:
 * start and count of both boxes are equal in all dimensions after it.  *slice becomes the number
 * of elements in these dimensions, which one step along the returned dimension moves by. */
static int find_axis(const struct box *a, const struct box *b, int64_t *slice)
{
    int axis = a->dims - 1;
    *slice = 1;
    while (axis > 0 && a->start[axis] == b->start[axis] && a->count[axis] == b->count[axis])
        *slice *= a->count[axis--];
    return axis;
}

/* `row` is the number of the slice of a that element `from` is in.  In the loop its digits, the
 * innermost first, are the slice's index along each dimension, counted from a's start. */
int64_t box_run(const struct box *a, const struct box *b, int64_t from, int64_t *at)
{
    int64_t slice, place = 0, weight = 1;
    int axis = find_axis(a, b, &slice), outside = 0;
    int64_t row = from / slice, here = a->start[axis] + row % a->count[axis];
    int64_t end = a->start[axis] + a->count[axis];
    int64_t first = b->start[axis], last = first + b->count[axis];
    for (int i = axis; i >= 0; i--) {
        int64_t index = a->start[i] + row % a->count[i] - b->start[i];
        outside |= index < 0 || index >= b->count[i];
        place += index * weight;
        weight *= b->count[i];
        row /= a->count[i];
    }
    *at = outside ? -1 : place * slice + from % slice;
    if (!outside)
        end = min_i64(end, last);
    else if (here < first)
        end = min_i64(end, first);
    return (end - here) * slice - from % slice;
}

int64_t box_rows(const struct box *box, int64_t from, struct box_rows *rows)
{
    const struct box whole = box_whole(box->dims, box->whole);
    int64_t slice, alike = 1, left = box_run(box, &whole, from, &rows->first);
    int axis = find_axis(box, &whole, &slice);
    rows->run = box->count[axis] * slice;
    rows->stride = box->whole[axis] * slice;
    if (from % rows->run)
        return left;
    /* The distance between rows stays the same up to and with the first dimension, from the inside,
     * of which the box has only a part. */
    for (int i = axis - 1; i >= 0; i--) {
        alike *= box->count[i];
        if (box->count[i] != box->whole[i])
            break;
    }
    return alike * rows->run - from % (alike * rows->run);
}

const char *box_text(const struct box *box, char text[BOX_TEXT])
{
    snprintf(text, BOX_TEXT, "[");
    for (int i = 0; i < box->dims; i++)
        text_append(text, BOX_TEXT, "%s%lld+%lld", i ? "," : "", (long long)box->start[i],
                    (long long)box->count[i]);
    return text_append(text, BOX_TEXT, "]");
}
