/* test_read_ahead.c - what is read ahead is what is read at once, in every packing, to the ragged
 * end; and a file that becomes shorter fails READ_AHEAD steps before a step needs what it has lost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/philox.h"
#include "base/round.h"
#include "train/read_ahead.h"

enum { VOCAB = 53, SEQ = 16, BATCH = 3, MICROS = 2, RANKS = 2, ROWS = BATCH * SEQ, LOADED = 5 };

static char path[64];

/* So many documents of 1 to 20 tokens, some of them masked in part. */
static void make_file(int documents)
{
    struct error err = {0};
    struct tokens_writer *writer;
    int rc = tokens_create(&writer, path, "bytes", VOCAB, "", &err);
    for (int d = 0; d < documents && !rc; d++) {
        uint32_t ids[20];
        uint8_t mask[20];
        int64_t length = 1 + (int64_t)(philox_u64(7, (uint64_t)d) % 20);
        for (int64_t i = 0; i < length; i++) {
            ids[i] = (uint32_t)(philox_u64((uint64_t)d, (uint64_t)i) % VOCAB);
            mask[i] = d % 5 || i % 3;
        }
        rc = tokens_append(writer, ids, length, &err) ||
             tokens_extend_mask(writer, mask, length, &err);
    }
    if (rc || tokens_finish(writer, &err))
        fail_msg("%s", err.text);
}

static void open_batches(struct batches *b, enum loader_order order, enum config_packing packing)
{
    struct error err = {0};
    const struct loader_options options = {
        .seq_len = SEQ, .vocab = VOCAB, .seed = 1, .order = order, .packing = packing};
    *b = (struct batches){
        .micro_batch = BATCH, .data_ranks = RANKS, .data_rank = 1, .batch = BATCH * MICROS * RANKS};
    if (dataset_open(&b->data, path, &options, &err))
        fail_msg("%s", err.text);
}

/* A program that loads all that files say, and the numbers of samples. */
static void make_program(struct program *program, struct instr instr[MICROS])
{
    *program = (struct program){.instr = instr, .instrs = MICROS};
    for (int m = 0; m < MICROS; m++) {
        instr[m] = (struct instr){.kind = INSTR_LOAD, .micro = m};
        for (int k = 0; k < SLOTS; k++)
            instr[m].buffer[k] = k < LOAD_SLOTS ? 0 : -1;
    }
}

struct values {
    int32_t of[LOADED][ROWS];
};

static int load(struct values *v, void *user, int micro,
                int (*tokens)(void *, const struct step_batch *, struct error *),
                int (*places)(void *, const struct step_batch *, struct error *))
{
    struct error err = {0};
    const struct step_batch batch = {.micro = micro,
                                     .tokens = {v->of[0]},
                                     .targets = v->of[1],
                                     .positions = {v->of[2]},
                                     .documents = {v->of[3]},
                                     .samples = {(uint32_t *)v->of[4]}};
    memset(v, 0x55, sizeof *v);
    return tokens(user, &batch, &err) || places(user, &batch, &err) ? -1 : 0;
}

/* Does a step load the same, micro-batch by micro-batch, also when one is loaded twice? */
static void compare_step(struct batches *b, struct read_ahead *ahead)
{
    static struct values values[2];
    for (int n = 0; n <= MICROS; n++) {
        assert_int_equal(
            load(&values[0], ahead, n % MICROS, read_ahead_load, read_ahead_load_positions), 0);
        assert_int_equal(load(&values[1], b, n % MICROS, batches_load, batches_load_positions), 0);
        assert_memory_equal(&values[0], &values[1], sizeof values[0]);
    }
}

static void compare(enum loader_order order, enum config_packing packing, int64_t first)
{
    struct error err = {0};
    struct batches b;
    struct program program;
    struct instr instr[MICROS];
    struct read_ahead *ahead = NULL;
    open_batches(&b, order, packing);
    make_program(&program, instr);
    const int64_t each = b.batch;
    const struct read_ahead_range range = {first, each,
                                           first + 9 * each + 5}; /* the last is ragged */
    if (read_ahead_open(&ahead, &b, &program, range, &err))
        fail_msg("%s", err.text);
    for (b.sample = first; b.sample < range.end; b.sample += each) {
        b.batch = min_i64(each, range.end - b.sample);
        compare_step(&b, ahead);
        assert_int_equal(read_ahead_check(ahead, &err), 0);
    }
    read_ahead_close(ahead);
    batches_close(&b);
}

static void test_is_what_is_read_at_once(void **state)
{
    static const enum config_packing packings[] = {PACKING_STREAM, PACKING_DOCUMENTS,
                                                   PACKING_PADDED};
    make_file(60);
    for (int p = 0; p < 3; p++) {
        compare(LOADER_SHUFFLED, packings[p], 0);
        compare(LOADER_SHUFFLED, packings[p], 17); /* as after a change of the batch size */
        compare(LOADER_SEQUENTIAL, packings[p], 0);
    }
}

/* In order of the file, cut behind what the first `whole` steps read. */
static void fail_after(int whole)
{
    struct error err = {0};
    struct batches b;
    struct program program;
    struct instr instr[MICROS];
    struct read_ahead *ahead = NULL;
    static struct values values;
    make_file(3000);
    open_batches(&b, LOADER_SEQUENTIAL, PACKING_STREAM);
    make_program(&program, instr);
    const int64_t each = b.batch;
    const struct read_ahead_range range = {0, each, b.data.windows};
    if (read_ahead_open(&ahead, &b, &program, range, &err))
        fail_msg("%s", err.text);
    for (int step = 0; step < whole; step++, b.sample += each) {
        int is_cut = step >= whole - READ_AHEAD;
        if (step == whole - READ_AHEAD)
            assert_int_equal(truncate(path, 4096), 0);
        for (int m = 0; m < MICROS; m++)
            assert_int_equal(load(&values, ahead, m, read_ahead_load, read_ahead_load_positions),
                             0);
        assert_int_equal(read_ahead_check(ahead, &err), is_cut ? -1 : 0);
        assert_int_equal(strstr(err.text, "truncated") != NULL, is_cut);
    }
    assert_int_equal(load(&values, ahead, 0, read_ahead_load, read_ahead_load_positions), -1);
    read_ahead_close(ahead);
    batches_close(&b);
}

static void test_fails_in_time(void **state)
{
    for (int whole = READ_AHEAD; whole < 3 * READ_AHEAD; whole++)
        fail_after(whole);
}

/* What cannot be read at the start is said there; a rank that loads nothing reads nothing. */
static void test_fails_at_the_start(void **state)
{
    struct error err = {0};
    struct batches b;
    struct program program, none = {0};
    struct instr instr[MICROS];
    struct read_ahead *ahead = NULL;
    make_file(3000);
    open_batches(&b, LOADER_SEQUENTIAL, PACKING_STREAM);
    make_program(&program, instr);
    const struct read_ahead_range range = {0, b.batch, b.data.windows};
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(read_ahead_open(&ahead, &b, &program, range, &err), -1);
    assert_non_null(strstr(err.text, "truncated"));
    read_ahead_close(ahead);
    assert_int_equal(read_ahead_open(&ahead, &b, &none, range, &err), 0);
    assert_int_equal(read_ahead_check(ahead, &err), 0);
    read_ahead_close(ahead);
    read_ahead_close(NULL);
    assert_int_equal(read_ahead_check(NULL, &err), 0);
    batches_close(&b);
}

static int drop_file(void **state)
{
    return unlink(path);
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/trireme-ahead-%ld.h5", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_what_is_read_at_once),
        cmocka_unit_test(test_fails_in_time),
        cmocka_unit_test(test_fails_at_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, drop_file);
}
