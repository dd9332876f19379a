/* box.h - the part of a logical tensor that a rank holds: a start and a count per dimension.
 *
 * The elements of a box lie in memory end to end, in row-major order; "element 2 of a box" counts
 * in that order.  In the whole tensor, or in another box of it, only runs of them lie end to end:
 *
 *      whole [3, 6]          box [3, 2] from column 2
 *      . . a b . .           a b c d e f
 *      . . c d . .
 *      . . e f . .           box_run(box, whole, 2, &at): a run of 2 elements (c d), at 8
 *
 * Code that copies between two boxes therefore goes from run to run.
 */
#ifndef TRIREME_BASE_BOX_H
#define TRIREME_BASE_BOX_H

#include <stdint.h>

/* BOX_DIMS: the most dimensions of a tensor.  BOX_TEXT: bytes of the text of a box. */
enum { BOX_DIMS = 4, BOX_TEXT = 192 };

struct box {
    int dims;                                 /* 1 to BOX_DIMS */
    int64_t whole[BOX_DIMS];                  /* the tensor's dimensions */
    int64_t start[BOX_DIMS], count[BOX_DIMS]; /* the box's first index and size, per dimension */
};

/* Returns the box that is all of a tensor of the dimensions whole[dims]. */
struct box box_whole(int dims, const int64_t *whole);

/* Returns 1 if the box is all of its tensor. */
int box_is_whole(const struct box *box);

/* Returns 1 if the box lies within its tensor.  start and count may hold any numbers, such as those
 * of a damaged file; box_elems() and the functions after it need boxes for which this is 1. */
int box_is_sound(const struct box *box);

/* Returns the number of elements of a box, which must fit into an int64_t. */
int64_t box_elems(const struct box *box);

/* Returns 1 if two boxes are the same part of tensors of the same dimensions. */
int box_equal(const struct box *a, const struct box *b);

/* Returns 1 if two boxes of one tensor have an element in common. */
int box_overlaps(const struct box *a, const struct box *b);

/* Find the run of elements that begins at element `from` of box a and is inside box b of the same
 * tensor, or outside of it.  Inside: the run lies end to end in a and in b, and *at becomes the
 * number of its first element in b.  Outside: no element of the run is in b, and *at becomes -1.
 * from: 0 to box_elems(a) - 1.  Returns the number of elements in the run, at least 1; the next run
 * begins after them. */
int64_t box_run(const struct box *a, const struct box *b, int64_t from, int64_t *at);

/* Describe a box in blocks of `block` elements of the whole tensor, in row-major order from its
 * first one on: *blocks becomes a box of a tensor of blocks, of as many dimensions where a row is
 * whole blocks, and else of one.  The dimensions of that tensor follow from the whole tensor's.
 * Returns 0, or -1 where the box, or the tensor, is not whole blocks. */
int box_in_blocks(const struct box *box, int64_t block, struct box *blocks);

/* Rows of a box that lie at equal distances in the whole tensor: `run` elements of each row lie end
 * to end there, and each row begins `stride` elements after the row before it. */
struct box_rows {
    int64_t first;       /* number in the whole tensor of the first element */
    int64_t run, stride; /* elements */
};

/* Describe the elements of a box from its element `from` on by rows at equal distances.  Returns
 * how many elements *rows describes; where `from` is inside a row, only what is left of that row.
 * The matrix of the example above is described by one call, with run 2 and stride 6; a box of whole
 * rows of a matrix is one run. */
int64_t box_rows(const struct box *box, int64_t from, struct box_rows *rows);

/* Write start+count of each dimension into text, such as "[0+3,2+2]".  Returns text. */
const char *box_text(const struct box *box, char text[BOX_TEXT]);

#endif
