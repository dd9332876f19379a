/* test_ops_dropout.c - numbers dropped at random, on the CPU: against a plain loop over the same
 * words, as many as asked for, by every part of a number's place, and by nothing else. */
#include "tests/unit/ops_check.h"

#include "base/philox.h"

enum { BATCH = 3, SEQ = 16, COLS = 27, ROWS = BATCH * SEQ };

static const uint32_t samples[BATCH][2] = {{7, 0}, {8, 0}, {7, 1}};

static struct dropout dropout_of(enum dtype dt, double share, uint64_t key)
{
    struct dropout p = {.dt = dt,
                        .rows = ROWS,
                        .cols = COLS,
                        .batch = BATCH,
                        .seq = SEQ,
                        .ranks = 1,
                        .row_chunks = 1,
                        .mask = dropout_mask_of(share)};
    p.mask.key = key;
    p.mask.samples = samples[0];
    return p;
}

/* What number (row of all ranks' own, column) of the whole is multiplied by. */
static double by_hand(const struct dropout *p, int64_t row, int64_t column)
{
    int64_t b = row / p->seq, position = sequence_position(&p->part, row % p->seq);
    struct philox4 counter = {{(uint32_t)(column / 4), (uint32_t)position, p->mask.samples[2 * b],
                               p->mask.samples[2 * b + 1]}};
    struct philox4 drawn = philox(counter, (uint32_t)p->mask.key, (uint32_t)(p->mask.key >> 32));
    return drawn.v[column % 4] < p->mask.limit ? 0 : (double)p->mask.factor;
}

/* Odd first columns and numbers of columns, with and without an addend, and in place of each. */
static uint64_t loop_case(struct device *d, enum dtype dt)
{
    uint64_t hash = 0;
    for (int i = 0; i < 8; i++) {
        struct dropout p = dropout_of(dt, i % 2 ? 0.1 : 0.5, 77);
        p.first = i * 3 % 7;
        p.cols = i % 3 ? COLS : 523;
        int64_t elems = p.rows * p.cols;
        struct tensor x = tensor_random(dt, elems, 1, 2), addend = tensor_random(dt, elems, 2, 1);
        struct tensor y = tensor_poisoned(dt, elems);
        double *want = malloc((size_t)elems * sizeof *want);
        for (int64_t k = 0; k < elems; k++)
            want[k] = tensor_get(&x, k) * by_hand(&p, k / p.cols, p.first + k % p.cols) +
                      (i < 4 ? 0 : tensor_get(&addend, k));
        d->ops->dropout(d, &p, y.data, x.data, i < 4 ? NULL : addend.data);
        check_close("dropout", &y, want, tolerance_of(dt));
        hash = hash * 31 + tensor_hash(&y);
        void *in_place = i < 4 || i % 2 ? x.data : addend.data;
        d->ops->dropout(d, &p, in_place, x.data, i < 4 ? NULL : addend.data);
        assert_memory_equal(in_place, y.data, (size_t)elems * dtype_bytes(dt));
        free(want);
        tensor_free(&x);
        tensor_free(&addend);
        tensor_free(&y);
    }
    return hash;
}

static void agrees_with_a_loop(void **state)
{
    for_each_setting(loop_case);
}

/* The mask of p, 1 where a number is kept: of ones. */
static void mask_of(struct device *d, const struct dropout *p, float *kept)
{
    int64_t elems = p->rows * p->cols;
    for (int64_t i = 0; i < elems; i++)
        kept[i] = 1;
    d->ops->dropout(d, p, kept, kept, NULL);
    for (int64_t i = 0; i < elems; i++) {
        assert_true(kept[i] == 0 || kept[i] == p->mask.factor);
        kept[i] = kept[i] != 0;
    }
}

static double mean_of(const float *kept, int64_t elems)
{
    double sum = 0;
    for (int64_t i = 0; i < elems; i++)
        sum += kept[i];
    return sum / (double)elems;
}

/* Of pairs of numbers so many elements apart in two masks, the correlation, in deviations. */
static double correlation(const float *a, const float *b, int64_t apart, int64_t elems, double keep)
{
    double sum = 0;
    for (int64_t i = 0; i + apart < elems; i++)
        sum += (a[i] - keep) * (b[i + apart] - keep);
    return sum / (keep * (1 - keep)) / sqrt((double)(elems - apart));
}

/* As many as asked for are kept, the mean is that of what was there, and neighbours in a row, in a
 * column and in the next block of words know nothing of each other: within four deviations. */
static void keeps_its_share(void **state)
{
    enum { WIDE = 1024 };
    static const double shares[] = {0.1, 0.5};
    static const int64_t apart[] = {1, 2, 3, 4, 5, 64, WIDE - 1, WIDE, WIDE + 1, SEQ * WIDE};
    struct device *d = open_device(NULL, 2);
    float *kept = malloc(sizeof *kept * ROWS * WIDE);
    for (int i = 0; i < 2; i++) {
        struct dropout p = dropout_of(DTYPE_F32, shares[i], 123);
        double keep = 1 - shares[i], elems = ROWS * WIDE;
        p.cols = WIDE;
        mask_of(d, &p, kept);
        double mean = mean_of(kept, ROWS * WIDE), deviation = sqrt(keep * shares[i] / elems);
        print_message("dropout %g: %.5f are kept, %.2f deviations off\n", shares[i], mean,
                      (mean - keep) / deviation);
        assert_true(fabs(mean - keep) <= 4 * deviation);
        assert_true(fabs(mean * (double)p.mask.factor - 1) <= 4 * deviation / keep);
        for (size_t k = 0; k < sizeof apart / sizeof apart[0]; k++)
            assert_true(fabs(correlation(kept, kept, apart[k], ROWS * WIDE, keep)) <= 4);
    }
    free(kept);
    device_close(d);
}

/* Two masks have nothing to do with each other. */
static void assert_others(const float *a, const float *b, int64_t elems)
{
    assert_true(fabs(correlation(a, b, 0, elems, 0.5)) <= 4);
}

/* Another key, which is another seed, layer or site; another sample, by its lower or upper half;
 * another position; another column: another mask.  Asked again: the same. */
static void follows_the_place(void **state)
{
    enum { ELEMS = ROWS * COLS };
    static float first[ELEMS], other[ELEMS];
    static const uint32_t upper[BATCH][2] = {{7, 2}, {8, 2}, {7, 3}};
    static const uint32_t lower[BATCH][2] = {{100, 0}, {101, 0}, {102, 0}};
    struct device *d = open_device(NULL, 1);
    struct dropout p = dropout_of(DTYPE_F32, 0.5, 5), changed = p;
    mask_of(d, &p, first);
    mask_of(d, &p, other);
    assert_memory_equal(first, other, sizeof first);
    for (int64_t b = 1; b < BATCH; b++) /* samples 8, and 7 with another upper half */
        assert_others(first, first + b * SEQ * COLS, SEQ * COLS);
    changed.mask.key = 6;
    mask_of(d, &changed, other);
    assert_others(first, other, ELEMS);
    changed = p;
    changed.mask.samples = upper[0];
    mask_of(d, &changed, other);
    assert_others(first, other, ELEMS);
    changed.mask.samples = lower[0];
    mask_of(d, &changed, other);
    assert_others(first, other, ELEMS);
    changed = p;
    changed.first = 64;
    mask_of(d, &changed, other);
    assert_others(first, other, ELEMS);
    changed = p;
    changed.part = (struct sequence_part){.chunk = SEQ / 2, .first = {100, 200}};
    mask_of(d, &changed, other);
    assert_others(first, other, ELEMS);
    device_close(d);
}

/* A part of the columns, of the rows of ranks that share them in one chunk and in two, and of the
 * positions of a sequence has the whole's mask there. */
static void parts_are_of_the_whole(void **state)
{
    static float whole[ROWS * COLS], part[ROWS * COLS];
    struct device *d = open_device(NULL, 1);
    struct dropout p = dropout_of(DTYPE_F32, 0.5, 9), own = p;
    mask_of(d, &p, whole);
    own.first = 5;
    own.cols = 11;
    mask_of(d, &own, part);
    for (int64_t r = 0; r < ROWS; r++)
        assert_memory_equal(part + r * 11, whole + r * COLS + 5, 11 * sizeof *part);
    for (int chunks = 1; chunks <= 2; chunks++)
        for (int64_t rank = 0; rank < 4; rank++) {
            int64_t each = ROWS / 4 / chunks;
            own = p;
            own.rows = ROWS / 4, own.ranks = 4, own.rank = rank, own.row_chunks = chunks;
            mask_of(d, &own, part);
            for (int64_t r = 0; r < own.rows; r++) {
                int64_t at = r / each * (ROWS / chunks) + rank * each + r % each;
                assert_memory_equal(part + r * COLS, whole + at * COLS, COLS * sizeof *part);
            }
        }
    own = p;
    own.seq = SEQ / 2, own.rows = BATCH * own.seq;
    own.part = (struct sequence_part){.chunk = SEQ / 4, .first = {SEQ / 4, SEQ / 2}};
    mask_of(d, &own, part);
    for (int64_t r = 0; r < own.rows; r++) {
        int64_t at = r / own.seq * SEQ + sequence_position(&own.part, r % own.seq);
        assert_memory_equal(part + r * COLS, whole + at * COLS, COLS * sizeof *part);
    }
    /* seven rows on two ranks: the eighth, which pads them, stays within the samples */
    own = p;
    own.batch = 1, own.seq = 7, own.ranks = 2, own.rank = 1, own.rows = 4;
    mask_of(d, &own, part);
    assert_memory_equal(part, whole + 4 * COLS, 3 * COLS * sizeof *part);
    device_close(d);
}

/* The gradient is the difference quotient: of the sum of y times random numbers. */
static void gradient_is_the_quotient(void **state)
{
    enum { ELEMS = ROWS * COLS };
    struct device *d = open_device(NULL, 1);
    struct dropout p = dropout_of(DTYPE_F32, 0.5, 3);
    struct tensor x = tensor_random(DTYPE_F32, ELEMS, 1, 1),
                  dy = tensor_random(DTYPE_F32, ELEMS, 2, 1);
    struct tensor y = tensor_poisoned(DTYPE_F32, ELEMS), z = tensor_poisoned(DTYPE_F32, ELEMS);
    struct tensor dx = tensor_poisoned(DTYPE_F32, ELEMS);
    double dropped = 0;
    d->ops->dropout(d, &p, dx.data, dy.data, NULL);
    d->ops->dropout(d, &p, y.data, x.data, NULL);
    for (int64_t i = 0; i < ELEMS; i += 29) {
        double was = tensor_get(&x, i), step = 0.25;
        tensor_set(&x, i, was + step);
        d->ops->dropout(d, &p, z.data, x.data, NULL);
        double quotient = 0;
        for (int64_t k = 0; k < ELEMS; k++)
            quotient += (tensor_get(&z, k) - tensor_get(&y, k)) / step * tensor_get(&dy, k);
        tensor_set(&x, i, was);
        assert_true(fabs(quotient - tensor_get(&dx, i)) <= 1e-5);
        dropped += quotient == 0;
    }
    assert_true(dropped > 5);
    tensor_free(&x);
    tensor_free(&dy);
    tensor_free(&y);
    tensor_free(&z);
    tensor_free(&dx);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_loop),       cmocka_unit_test(keeps_its_share),
        cmocka_unit_test(follows_the_place),        cmocka_unit_test(parts_are_of_the_whole),
        cmocka_unit_test(gradient_is_the_quotient),
    };
    return cmocka_run_group_tests_name("dropout", tests, NULL, NULL);
}
