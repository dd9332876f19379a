/* test_io_boxes.c - tensors stored in boxes: cut in any way, they come back in any other, whole or
 * in boxes; what does not cover a tensor once is refused. */
#include "tests/unit/test_io_checkpoint.h"

#include "base/box.h"
#include "tests/unit/h5_data.h"

enum { MOST_BOXES = 256 };

/* Boxes and their pieces, of all tensors. */
struct cuts {
    struct box box[MOST_BOXES];
    struct checkpoint_piece piece[2 * MOST_BOXES];
    int boxes, pieces;
    uint64_t next; /* of random numbers */
};

static int64_t draw(struct cuts *cuts, int64_t below)
{
    return (int64_t)(philox_u64(17, cuts->next++) % (uint64_t)below);
}

/* Elements [start, start + count) of a box, as the whole tensor has them. */
static void add_piece(struct cuts *cuts, int t, const struct box *box, int64_t start, int64_t count,
                      uint64_t seed)
{
    struct checkpoint_piece whole = make_piece(&tensors[t], 0, elems_of(&tensors[t]), seed);
    struct checkpoint_piece *piece = &cuts->piece[cuts->pieces++];
    struct box all = box_whole(tensors[t].rank, tensors[t].dims);
    size_t width = dtype_bytes(tensors[t].dtype);
    *piece = tensors[t];
    piece->box = box;
    piece->start = start;
    piece->count = count;
    piece->data = calloc((size_t)count + 1, width);
    for (int64_t i = 0; i < count; i++) {
        int64_t at;
        box_run(box, &all, start + i, &at);
        memcpy((char *)piece->data + (size_t)i * width, (char *)whole.data + (size_t)at * width,
               width);
    }
    free(whole.data);
}

/* Cut a box in two, and each again: along the dimension `along`, or any where that is -1. */
static void cut_box(struct cuts *cuts, int t, struct box box, int times, int along, uint64_t seed)
{
    int axis = along >= 0 && along < box.dims ? along : (int)draw(cuts, box.dims);
    if (times && box.count[axis] > 1) {
        struct box low = box, high = box;
        low.count[axis] = 1 + draw(cuts, box.count[axis] - 1);
        high.start[axis] += low.count[axis];
        high.count[axis] -= low.count[axis];
        cut_box(cuts, t, high, times - 1, along, seed);
        cut_box(cuts, t, low, times - 1, along, seed);
        return;
    }
    int64_t elems = box_elems(&box), first = elems ? draw(cuts, elems) : 0;
    cuts->box[cuts->boxes] = box;
    add_piece(cuts, t, &cuts->box[cuts->boxes], first, elems - first, seed);
    add_piece(cuts, t, &cuts->box[cuts->boxes++], 0, first, seed);
}

static struct cuts *cut_all(int times, int along, uint64_t seed)
{
    struct cuts *cuts = calloc(1, sizeof *cuts);
    assert_non_null(cuts);
    cuts->next = seed * 1000 + (uint64_t)(times * 10 + along);
    for (int t = 0; t + 1 < TENSORS; t++) /* not the large one */
        cut_box(cuts, t, box_whole(tensors[t].rank, tensors[t].dims), times, along, seed);
    return cuts;
}

static void free_cuts(struct cuts *cuts)
{
    free_pieces(cuts->piece, cuts->pieces);
    free(cuts);
}

static int save_cuts(const char *dir, int64_t step, const struct cuts *cuts, struct error *err)
{
    return checkpoint_save(NULL, dir, step, cuts->piece, cuts->pieces, NULL, err);
}

/* All pieces of cuts, loaded at once, have the bits that were made. */
static void check_cuts(struct checkpoint *checkpoint, const struct cuts *cuts)
{
    static struct checkpoint_piece got[2 * MOST_BOXES];
    struct error err = {0};
    for (int i = 0; i < cuts->pieces; i++) {
        got[i] = cuts->piece[i];
        got[i].data = calloc((size_t)got[i].count + 1, dtype_bytes(got[i].dtype));
    }
    if (checkpoint_load(checkpoint, got, cuts->pieces, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < cuts->pieces; i++)
        assert_memory_equal(got[i].data, cuts->piece[i].data,
                            (size_t)got[i].count * dtype_bytes(got[i].dtype));
    free_pieces(got, cuts->pieces);
}

static void check_whole(struct checkpoint *checkpoint, uint64_t seed)
{
    for (int t = 0; t + 1 < TENSORS; t++)
        check_interval(checkpoint, &tensors[t], 0, elems_of(&tensors[t]), seed);
}

/* Rows, columns and anything, to each other and to none. */
static void any_boxes_come_back(void **state)
{
    static const struct {
        int times, along;
    } kinds[] = {{0, -1}, {1, 0}, {2, 0}, {1, 1}, {3, 1}, {2, -1}, {4, -1}};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    struct error err = {0};
    char dir[128];
    snprintf(dir, sizeof dir, "%s/any", folder);
    for (int i = 0; i < KINDS; i++) {
        struct cuts *stored = cut_all(kinds[i].times, kinds[i].along, 7);
        if (save_cuts(dir, i, stored, &err))
            fail_msg("%s", err.text);
        struct checkpoint *checkpoint = open_step(dir, i);
        if (checkpoint_verify(checkpoint, 0, 1, &err))
            fail_msg("%s", err.text);
        check_whole(checkpoint, 7);
        for (int k = 0; k < KINDS; k++) {
            struct cuts *wanted = cut_all(kinds[k].times, kinds[k].along, 7);
            check_cuts(checkpoint, wanted);
            free_cuts(wanted);
        }
        checkpoint_close(checkpoint);
        free_cuts(stored);
    }
}

/* The columns of a tall matrix have more segments than one reading takes up. */
static void columns_of_a_tall_one_come_back(void **state)
{
    enum { ROWS = 600000 };
    struct error err = {0};
    struct box half[2];
    struct checkpoint_piece piece[2],
        whole = {
            .name = "tall", .dtype = DTYPE_I32, .rank = 2, .dims = {ROWS, 2}, .count = 2 * ROWS};
    int32_t *column = malloc(ROWS * sizeof *column * 2), *got = malloc(ROWS * sizeof *got * 2);
    assert_true(column && got);
    for (int k = 0; k < 2; k++) {
        half[k] = box_whole(2, whole.dims);
        half[k].start[1] = k;
        half[k].count[1] = 1;
        piece[k] = whole;
        piece[k].count = ROWS;
        piece[k].box = &half[k];
        piece[k].data = column + k * ROWS;
    }
    for (int32_t i = 0; i < 2 * ROWS; i++)
        column[i % 2 * ROWS + i / 2] = i;
    if (checkpoint_save(NULL, folder, 50, piece, 2, NULL, &err))
        fail_msg("%s", err.text);
    struct checkpoint *checkpoint = open_step(folder, 50);
    whole.data = got;
    if (checkpoint_load(checkpoint, &whole, 1, &err))
        fail_msg("%s", err.text);
    for (int32_t i = 0; i < 2 * ROWS; i++)
        assert_int_equal(got[i], i);
    checkpoint_close(checkpoint);
    free(column);
    free(got);
}

/* ---- files ---- */

static uint64_t hash_of(const char *dir, int64_t step, const char *name)
{
    struct error err = {0};
    char path[256];
    char digest[DISK_DIGEST];
    snprintf(path, sizeof path, "%s/step-%08lld/%s", dir, (long long)step, name);
    if (disk_digest(path, digest, &err))
        fail_msg("%s", err.text);
    return strtoull(digest, NULL, 16);
}

static int64_t format_of(const char *dir, int64_t step)
{
    char path[256];
    snprintf(path, sizeof path, "%s/step-%08lld/COMMIT", dir, (long long)step);
    struct js *commit = js_read(path, NULL);
    int64_t format = js_get_int(commit, "format", -1);
    js_free(commit);
    return format;
}

/* Whole tensors are stored as they always were, whether or not somebody calls them boxes. */
static void whole_boxes_change_no_file(void **state)
{
    static const char *const names[] = {"shard-00000.h5", "index.h5", "meta.json", "COMMIT"};
    struct error err = {0};
    char dir[2][128];
    snprintf(dir[0], sizeof dir[0], "%s/plain", folder);
    snprintf(dir[1], sizeof dir[1], "%s/boxes", folder);
    struct cuts *cuts = cut_all(0, -1, 9), *parts = cut_all(1, 0, 9);
    assert_int_equal(save_cuts(dir[1], 1, cuts, &err), 0);
    for (int i = 0; i < cuts->pieces; i++)
        cuts->piece[i].box = NULL;
    assert_int_equal(save_cuts(dir[0], 1, cuts, &err), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_true(hash_of(dir[0], 1, names[i]) == hash_of(dir[1], 1, names[i]));
    assert_int_equal(save_cuts(dir[1], 2, parts, &err), 0);
    assert_int_equal(format_of(dir[1], 1), 1);
    assert_int_equal(format_of(dir[1], 2), 2);
    free_cuts(cuts);
    free_cuts(parts);
}

/* The virtual datasets, to a program that knows nothing of boxes. */
static void the_index_shows_tensors_whole(void **state)
{
    struct error err = {0};
    char dir[128], path[256];
    snprintf(dir, sizeof dir, "%s/shown", folder);
    snprintf(path, sizeof path, "%s/step-00000001/index.h5", dir);
    struct cuts *cuts = cut_all(3, -1, 4);
    assert_int_equal(save_cuts(dir, 1, cuts, &err), 0);
    struct h5 *file;
    assert_int_equal(h5_open(&file, path, &err), 0);
    for (int t = 0; t + 1 < TENSORS; t++) {
        int64_t elems = elems_of(&tensors[t]);
        struct checkpoint_piece whole = make_piece(&tensors[t], 0, elems, 4);
        struct h5_dataset dataset;
        void *read;
        if (h5_read(file, tensors[t].name, tensors[t].dtype, &read, &dataset, &err))
            fail_msg("%s", err.text);
        assert_int_equal(dataset.rank, tensors[t].rank);
        assert_memory_equal(dataset.dims, tensors[t].dims, (size_t)dataset.rank * 8);
        assert_memory_equal(read, whole.data, (size_t)elems * dtype_bytes(tensors[t].dtype));
        free(read);
        free(whole.data);
    }
    h5_close(file, NULL);
    free_cuts(cuts);
}

/* ---- what is refused ---- */

static void refuse(const struct checkpoint_piece *pieces, int count, const char *text)
{
    struct error err = {0};
    assert_int_equal(checkpoint_save(NULL, folder, 200, pieces, count, NULL, &err), -1);
    if (!strstr(err.text, text))
        fail_msg("expected \"%s\" in: %s", text, err.text);
}

static void boxes_cover_once(void **state)
{
    float x[24] = {0};
    struct box left = {2, {4, 6}, {0, 0}, {4, 3}}, right = {2, {4, 6}, {0, 3}, {4, 3}};
    struct checkpoint_piece pieces[] = {
        {.name = "x", .rank = 2, .dims = {4, 6}, .count = 12, .data = x, .box = &left},
        {.name = "x", .rank = 2, .dims = {4, 6}, .count = 12, .data = x, .box = &right},
    };
    struct error err = {0};
    assert_int_equal(checkpoint_save(NULL, folder, 201, pieces, 2, NULL, &err), 0);
    refuse(pieces, 1, "tensor x: 12 of its 24 elements are held by no rank");
    pieces[1].count = 11;
    refuse(pieces, 2, "tensor x[0+4,3+3]: element 11 is held by no rank");
    pieces[1].start = 1, pieces[1].count = 12;
    refuse(pieces, 2, "elements 1 to 12 are not in tensor x[0+4,3+3] of 12 elements");
    pieces[1].start = 0;
    right.start[1] = 2;
    refuse(pieces, 2, "tensor x: boxes [0+4,0+3] and [0+4,2+3] overlap, of ranks 0 and 0");
    right.start[1] = 4;
    refuse(pieces, 2, "a box [0+4,4+3] is not in tensor x of 24 elements");
    right.start[1] = 0;
    refuse(pieces, 2, "tensor x[0+4,0+3]: element 0 is held twice");
    right.start[1] = 3;
    right.whole[1] = 7;
    refuse(pieces, 2, "a box [0+4,3+3] is not in tensor x");
    right.whole[1] = 6;
    pieces[1].box = NULL, pieces[1].count = 24; /* the whole, beside a part of it */
    refuse(pieces, 2, "overlap");
}

static void wishes_are_within(void **state)
{
    struct error err = {0};
    float x[105] = {0};
    struct box box = {3, {3, 5, 7}, {0, 1, 0}, {3, 2, 7}};
    struct checkpoint_piece want = {
        .name = "cube", .rank = 3, .dims = {3, 5, 7}, .count = 42, .data = x, .box = &box};
    struct cuts *cuts = cut_all(2, -1, 4);
    assert_int_equal(save_cuts(folder, 60, cuts, &err), 0);
    struct checkpoint *checkpoint = open_step(folder, 60);
    assert_int_equal(checkpoint_load(checkpoint, &want, 1, &err), 0);
    want.count = 43;
    assert_int_equal(checkpoint_load(checkpoint, &want, 1, &err), -1);
    assert_non_null(strstr(err.text, "elements 0 to 42 are not in tensor cube[0+3,1+2,0+7]"));
    want.count = 42, box.start[1] = 4;
    assert_int_equal(checkpoint_load(checkpoint, &want, 1, &err), -1);
    assert_non_null(strstr(err.text, "a box [0+3,4+2,0+7] is not in tensor cube"));
    box.start[1] = INT64_MAX;
    assert_int_equal(checkpoint_load(checkpoint, &want, 1, &err), -1);
    box.start[1] = 1, box.dims = 2;
    assert_int_equal(checkpoint_load(checkpoint, &want, 1, &err), -1);
    checkpoint_close(checkpoint);
    free_cuts(cuts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_boxes_come_back),
        cmocka_unit_test(columns_of_a_tall_one_come_back),
        cmocka_unit_test(whole_boxes_change_no_file),
        cmocka_unit_test(the_index_shows_tensors_whole),
        cmocka_unit_test(boxes_cover_once),
        cmocka_unit_test(wishes_are_within),
    };
    h5_setup();
    return cmocka_run_group_tests_name("boxes", tests, make_folder, remove_folder);
}
