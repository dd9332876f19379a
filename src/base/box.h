/* box.h - the part of a logical tensor that a rank holds: a start and a count per dimension.
 *
 * The elements of a box lie in memory in row-major order.  Those that lie end to end there do so in
 * the whole tensor, or in another box of it, for a while only:
 *
 *      whole [3, 6]          box [3, 2] from column 2
 *      . . a b . .           a b c d e f
 *      . . c d . .
 *      . . e f . .           box_run(box, whole, 2, &at): 2 elements (c d), at 8
 */
#ifndef TRIREME_BASE_BOX_H
#define TRIREME_BASE_BOX_H

#include <stdint.h>

enum { BOX_DIMS = 4, BOX_TEXT = 192 };

struct box {
    int dims;
    int64_t whole[BOX_DIMS]; /* the tensor's dimensions */
    int64_t start[BOX_DIMS], count[BOX_DIMS];
};

/* All of a tensor. */
struct box box_whole(int dims, const int64_t *whole);

int box_is_whole(const struct box *box);

/* Does it lie within its tensor?  The numbers may be any. */
int box_is_sound(const struct box *box);

/* Elements of a sound box whose tensor's can be counted. */
int64_t box_elems(const struct box *box);

/* Are two boxes the same part of tensors of the same dimensions? */
int box_equal(const struct box *a, const struct box *b);

/* Have two boxes of one tensor elements in common? */
int box_overlaps(const struct box *a, const struct box *b);

/* How many elements of box a, from its element `from` on, lie end to end in box b of the same
 * tensor too: *at is the place of the first of them in b.  Where that one is not in b, *at is -1
 * and the result a number of elements of a that are not.  from is an element of a. */
int64_t box_run(const struct box *a, const struct box *b, int64_t from, int64_t *at);

/* Elements of a box by rows: `run` of each lie end to end in the whole tensor, and each row begins
 * `stride` behind the one before. */
struct box_rows {
    int64_t first; /* the place in the whole of the first of them */
    int64_t run, stride;
};

/* How many elements of a box, from its element `from` on, are of such rows; where `from` is inside
 * a row, those that are left of it.  A matrix divided by columns is of rows from its first element
 * to its last, one divided by rows is one row. */
int64_t box_rows(const struct box *box, int64_t from, struct box_rows *rows);

/* "[0+3,2+2]", start and count of each dimension, into text; returns text. */
const char *box_text(const struct box *box, char text[BOX_TEXT]);

#endif
