/* test_box.c - boxes of tensors: runs between two of them are what counting element by element
 * finds, and the parts into which a parameter is divided are the whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/box.h"
#include "base/philox.h"
#include "model/transformer.h"

enum { MOST = 7 * 7 * 7 * 7 };

static int64_t draw(uint64_t *next, int64_t below)
{
    return (int64_t)(philox_u64(3, (*next)++) % (uint64_t)below);
}

static struct box any_box(uint64_t *next, const struct box *whole)
{
    struct box box = *whole;
    for (int i = 0; i < box.dims; i++)
        if (draw(next, 3)) {
            box.start[i] = draw(next, box.whole[i]);
            box.count[i] = 1 + draw(next, box.whole[i] - box.start[i]);
        }
    return box;
}

/* The elements of the whole that a box has, in its order. */
static int64_t list(const struct box *box, int64_t element[MOST])
{
    int64_t elems = box_elems(box);
    for (int64_t e = 0; e < elems; e++) {
        int64_t left = e, weight = 1;
        element[e] = 0;
        for (int i = box->dims - 1; i >= 0; i--) {
            element[e] += (box->start[i] + left % box->count[i]) * weight;
            left /= box->count[i];
            weight *= box->whole[i];
        }
    }
    return elems;
}

static int64_t find(const int64_t *element, int64_t elems, int64_t wanted)
{
    for (int64_t e = 0; e < elems; e++)
        if (element[e] == wanted)
            return e;
    return -1;
}

/* From any element: each of a run is where the run says, and no element of a that is in b is passed
 * over. */
static void check_runs(const struct box *a, const struct box *b)
{
    static int64_t in_a[MOST], in_b[MOST];
    int64_t elems = list(a, in_a), others = list(b, in_b), common = 0;
    for (int64_t from = 0; from < elems; from++) {
        int64_t at, count = box_run(a, b, from, &at);
        assert_in_range(count, 1, elems - from);
        for (int64_t e = 0; e < count; e++)
            assert_int_equal(find(in_b, others, in_a[from + e]), at < 0 ? -1 : at + e);
        common += at >= 0;
    }
    assert_int_equal(common > 0, box_overlaps(a, b));
    assert_int_equal(common > 0, box_overlaps(b, a));
}

static void runs_are_those_of_elements(void **state)
{
    uint64_t next = 0;
    for (int i = 0; i < 600; i++) {
        int64_t dim[BOX_DIMS];
        int dims = 1 + (int)draw(&next, BOX_DIMS);
        for (int d = 0; d < dims; d++)
            dim[d] = 1 + draw(&next, 5);
        struct box whole = box_whole(dims, dim), a = any_box(&next, &whole);
        struct box b = any_box(&next, &whole);
        assert_true(box_is_whole(&whole) && box_is_sound(&a));
        assert_int_equal(box_is_whole(&a), box_elems(&a) == box_elems(&whole));
        check_runs(&a, &whole);
        check_runs(&whole, &a);
        check_runs(&a, &b);
    }
}

/* What lies end to end in both is one run: a checkpoint of as many boxes is read in as large parts.
 */
static void runs_are_long(void **state)
{
    struct box whole = box_whole(3, (int64_t[]){6, 5, 4}), rows = whole, columns = whole;
    int64_t at;
    rows.start[0] = 2, rows.count[0] = 3;
    columns.start[2] = 1, columns.count[2] = 2;
    assert_int_equal(box_run(&whole, &whole, 7, &at), 113);
    assert_int_equal(box_run(&rows, &whole, 0, &at), 60);
    assert_int_equal(at, 40);
    assert_int_equal(box_run(&rows, &rows, 1, &at), 59);
    assert_int_equal(box_run(&columns, &columns, 3, &at), 57);
    assert_int_equal(box_run(&columns, &whole, 2, &at), 2);
    assert_int_equal(at, 5);
    assert_int_equal(box_run(&whole, &rows, 3, &at), 37); /* as many are not in it */
    assert_int_equal(at, -1);
}

/* From any element: each is where the rows say, and where the rows end others would begin. */
static void check_rows(const struct box *box)
{
    static int64_t place[MOST];
    int64_t elems = list(box, place);
    for (int64_t from = 0; from < elems; from++) {
        struct box_rows rows;
        int64_t count = box_rows(box, from, &rows);
        assert_in_range(count, 1, elems - from);
        for (int64_t e = 0; e < count; e++)
            assert_int_equal(place[from + e],
                             rows.first + e / rows.run * rows.stride + e % rows.run);
    }
}

static void rows_are_those_of_elements(void **state)
{
    uint64_t next = 1 << 20;
    for (int i = 0; i < 600; i++) {
        int64_t dim[BOX_DIMS];
        int dims = 1 + (int)draw(&next, BOX_DIMS);
        for (int d = 0; d < dims; d++)
            dim[d] = 1 + draw(&next, 5);
        struct box whole = box_whole(dims, dim), box = any_box(&next, &whole);
        check_rows(&whole);
        check_rows(&box);
    }
}

/* A matrix divided in any way is all of one kind of rows, so that an op goes over it once. */
static void matrices_are_rows_throughout(void **state)
{
    struct box_rows rows;
    struct box box = box_whole(2, (int64_t[]){7, 6});
    assert_int_equal(box_rows(&box, 0, &rows), 42);
    box.start[1] = 2, box.count[1] = 3;
    assert_int_equal(box_rows(&box, 0, &rows), 21);
    assert_int_equal(box_rows(&box, 1, &rows), 2);
    assert_int_equal(box_rows(&box, 6, &rows), 15);
    box.start[0] = 1, box.count[0] = 5;
    assert_int_equal(box_rows(&box, 0, &rows), 15);
    assert_int_equal(rows.first, 8);
}

static void only_what_fits_is_sound(void **state)
{
    static const struct {
        int64_t start, count;
        int sound;
    } rows[] = {{0, 9, 1},         {9, 0, 1},         {3, 6, 1},  {3, 7, 0},
                {-1, 3, 0},        {3, -1, 0},        {10, 0, 0}, {INT64_MAX, 1, 0},
                {1, INT64_MAX, 0}, {INT64_MIN, 1, 0}, {9, 1, 0},  {INT64_MAX, INT64_MAX, 0}};
    char text[BOX_TEXT];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct box box = box_whole(2, (int64_t[]){4, 9});
        box.start[1] = rows[i].start;
        box.count[1] = rows[i].count;
        assert_int_equal(box_is_sound(&box), rows[i].sound);
    }
    struct box box = box_whole(4, (int64_t[]){INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX});
    for (int i = 0; i < 4; i++)
        box.start[i] = INT64_MIN;
    assert_true(strlen(box_text(&box, text)) < BOX_TEXT);
    box = box_whole(2, (int64_t[]){4, 9});
    box.start[1] = 2, box.count[1] = 3;
    assert_string_equal(box_text(&box, text), "[0+4,2+3]");
}

/* ---- division of parameters ---- */

static const struct transformer_tensor qkv[] = {{"q", 24}, {"k", 12}, {"v", 12}};

/* The parameter of a rank; NULL where it cannot be divided so. */
static struct graph *divided(struct graph_division division, struct graph_param *param)
{
    struct graph *graph = graph_create(1, 3, DTYPE_F32);
    int value = transformer_divided_matrix(graph, qkv, 3, 10, 0.1, division);
    *param = graph->params[0];
    assert_int_equal(graph->values[value].dim[0], param->dim[0]);
    assert_int_equal(graph->values[value].dim[1], param->dim[1]);
    if (!graph->err.text[0])
        return graph;
    graph_destroy(graph);
    return NULL;
}

/* Behind one another, the ranks' parts of each tensor are the tensor, along one dimension; no chunk
 * is cut; a rank's parts stacked are its matrix. */
static void parts_are_the_whole(void **state)
{
    static const struct graph_division divisions[] = {
        {.dim = 0}, {.dim = 1}, {.dim = 0, .chunks = 6}, {.dim = 1, .chunks = 5}};
    for (size_t i = 0; i < sizeof divisions / sizeof divisions[0]; i++)
        for (int size = 1; size <= 5; size++) {
            int64_t next[3] = {0};
            for (int rank = 0; rank < size; rank++) {
                struct graph_division division = divisions[i];
                struct graph_param param;
                division.group = (struct graph_group){.axes = 8, .size = size, .rank = rank};
                struct graph *graph = divided(division, &param);
                assert_non_null(graph);
                int64_t rows = 0, other = 1 - division.dim;
                for (int p = 0; p < 3; p++) {
                    struct box *box = &param.box[p];
                    int64_t whole[2] = {qkv[p].rows, 10};
                    int64_t chunk = division.chunks ? whole[division.dim] / division.chunks : 1;
                    assert_memory_equal(box->whole, whole, sizeof whole);
                    assert_int_equal(box->start[division.dim], next[p]);
                    assert_int_equal(box->start[division.dim] % chunk, 0);
                    assert_true(box->count[division.dim] > 0 && box_is_sound(box));
                    assert_int_equal(box->start[other], 0);
                    assert_int_equal(box->count[other], whole[other]);
                    assert_int_equal(box->count[0], param.tensor_rows[p]);
                    assert_int_equal(box->count[1], param.dim[1]);
                    next[p] += box->count[division.dim];
                    rows += box->count[0];
                }
                assert_int_equal(rows, param.dim[0]);
                graph_destroy(graph);
            }
            for (int p = 0; p < 3; p++)
                assert_int_equal(next[p], divisions[i].dim ? 10 : qkv[p].rows);
        }
}

static void what_cannot_be_divided_is_refused(void **state)
{
    static const struct graph_division divisions[] = {{{8, 13, 0}, 0, 0}, /* 12 rows */
                                                      {{8, 7, 0}, 0, 6},
                                                      {{8, 2, 0}, 0, 5},
                                                      {{8, 11, 0}, 1, 0}};
    for (size_t i = 0; i < sizeof divisions / sizeof divisions[0]; i++) {
        struct graph_param param;
        assert_null(divided(divisions[i], &param));
    }
    struct graph *graph = graph_create(1, 3, DTYPE_F32);
    transformer_divided_matrix(graph, qkv, 3, 10, 0.1, divisions[1]);
    assert_string_equal(graph->err.text,
                        "q: 24 rows, in 6 chunks, cannot be divided among 7 ranks");
    graph_destroy(graph);
}

/* The number in its whole tensor of element i of a box. */
static int64_t number_in_whole(const struct box *box, int64_t i)
{
    int64_t number = 0, stride = 1;
    for (int k = box->dims - 1; k >= 0; k--) {
        number += (box->start[k] + i % box->count[k]) * stride;
        i /= box->count[k];
        stride *= box->whole[k];
    }
    return number;
}

/* Where a box is whole blocks, block i of it is block number_in_whole() of the tensor. */
static void check_blocks(const struct box *box, int64_t block, int is_whole_blocks)
{
    struct box blocks, all, whole = box_whole(box->dims, box->whole);
    assert_int_equal(box_in_blocks(box, block, &blocks), is_whole_blocks ? 0 : -1);
    if (!is_whole_blocks)
        return;
    assert_int_equal(box_in_blocks(&whole, block, &all), 0);
    assert_int_equal(box_elems(&blocks) * block, box_elems(box));
    assert_int_equal(blocks.dims, all.dims);
    for (int i = 0; i < all.dims; i++)
        assert_int_equal(blocks.whole[i], all.whole[i]);
    for (int64_t i = 0; i < box_elems(box); i++)
        assert_int_equal(number_in_whole(box, i),
                         number_in_whole(&blocks, i / block) * block + i % block);
}

static void boxes_are_described_in_blocks(void **state)
{
    struct box rows = box_whole(2, (int64_t[]){6, 12}), columns = rows;
    check_blocks(&rows, 4, 1);
    check_blocks(&rows, 8, 1); /* not of a row, but of all */
    check_blocks(&rows, 5, 0);
    rows.start[0] = 2, rows.count[0] = 2;
    check_blocks(&rows, 4, 1);
    check_blocks(&rows, 8, 1);
    rows.count[0] = 3;
    check_blocks(&rows, 8, 0);
    rows.start[0] = 1, rows.count[0] = 2;
    check_blocks(&rows, 8, 0);
    columns.start[1] = 4, columns.count[1] = 8;
    check_blocks(&columns, 4, 1);
    check_blocks(&columns, 8, 0);
    columns.start[1] = 2;
    check_blocks(&columns, 4, 0);
    struct box cube = box_whole(3, (int64_t[]){2, 3, 8});
    cube.start[1] = 1, cube.count[1] = 2;
    check_blocks(&cube, 4, 1);
    check_blocks(&cube, 16, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_those_of_elements),
        cmocka_unit_test(runs_are_long),
        cmocka_unit_test(rows_are_those_of_elements),
        cmocka_unit_test(matrices_are_rows_throughout),
        cmocka_unit_test(only_what_fits_is_sound),
        cmocka_unit_test(parts_are_the_whole),
        cmocka_unit_test(what_cannot_be_divided_is_refused),
        cmocka_unit_test(boxes_are_described_in_blocks),
    };
    return cmocka_run_group_tests_name("box", tests, NULL, NULL);
}
