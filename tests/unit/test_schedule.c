/* test_schedule.c - the table of schedules: the orders of all ranks together take the time and keep
 * the micro-batches alive that others count; schedules from files; and what one rank makes of one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/text.h"
#include "plan/report.h"
#include "program/schedule.h"
#include "segment/place.h"
#include "tests/unit/rig.h"

static const char *const rows[] = {"naive", "gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v"};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* ---- against what others count ---- */

/* A row of schedules.csv. */
struct counted {
    char name[24], most_whole[64], most_input[64];
    int ranks, micros, chunks, makespan, idle;
    struct schedule_costs costs;
};

/* The next row; 0: none. */
static int next_row(FILE *file, struct counted *row)
{
    char line[256];
    long forward, input, weight;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%23[^,],%d,%d,%d,%ld,%ld,%ld,%d,%d,%63[^,],%63[^\n]", row->name,
                   &row->ranks, &row->micros, &row->chunks, &forward, &input, &weight,
                   &row->makespan, &row->idle, row->most_whole, row->most_input) == 11) {
            row->costs = (struct schedule_costs){forward, input, weight};
            return 1;
        }
    return 0;
}

/* The most chunks of a rank between forward and the end of a part of backward: the last, or the
 * first of it. */
static int most_alive(const struct schedule *s, int rank, int until_input)
{
    int count, alive = 0, most = 0;
    const struct schedule_action *action = schedule_actions(s, rank, &count);
    for (int a = 0; a < count; a++) {
        enum segment_phase phase = action[a].phase;
        alive += phase == PHASE_FORWARD;
        most = alive > most ? alive : most;
        alive -= phase == PHASE_BACKWARD ||
                 phase == (until_input ? PHASE_BACKWARD_INPUT : PHASE_BACKWARD_WEIGHT);
    }
    assert_int_equal(alive, 0);
    return most;
}

static void check_alive(const struct schedule *s, int until_input, const char *want)
{
    char text[128] = "";
    for (int rank = 0; rank < s->ranks; rank++)
        text_append(text, sizeof text, "%s%d", rank ? " " : "", most_alive(s, rank, until_input));
    assert_string_equal(text, want);
}

static struct schedule *made(const char *name, int ranks, int micros, int chunks)
{
    struct schedule_request request = {
        .name = name, .ranks = ranks, .micros = micros, .chunks = chunks};
    struct schedule *s = NULL;
    struct error err = {0};
    if (schedule_create(&s, &request, &err))
        fail_msg("%s", err.text);
    return s;
}

/* Play it; also what rank 0 waits in all. */
static int64_t play(const struct schedule *s, const struct schedule_costs *costs, int64_t *idle)
{
    int64_t *start = array_make((size_t)s->first[s->ranks], sizeof *start);
    int64_t makespan = schedule_play(s, costs, start, NULL);
    *idle = makespan;
    for (int a = 0; a < s->first[1]; a++)
        *idle -= schedule_cost(costs, s->action[a].phase);
    free(start);
    return makespan;
}

static void test_times_and_memory_are_those_counted(void **state)
{
    FILE *file = fopen(TEST_FILES "/unit/schedules.csv", "r");
    struct counted row;
    int count = 0;
    assert_non_null(file);
    for (; next_row(file, &row); count++) {
        int64_t idle;
        struct schedule *s = made(row.name, row.ranks, row.micros, row.chunks);
        assert_int_equal(play(s, &row.costs, &idle), row.makespan);
        assert_int_equal(idle, row.idle);
        check_alive(s, 0, row.most_whole);
        check_alive(s, 1, row.most_input);
        schedule_destroy(s);
    }
    fclose(file);
    assert_int_equal(count, 642);
}

/* Huang et al. 2019 (GPipe), Narayanan et al. 2019, 2021 (1F1B, interleaved), Qi et al. 2023
 * (ZB-H1): the share of the step that a rank waits, where all parts cost the same and there are as
 * many micro-batches as ranks at least. */
static void test_waits_are_those_of_theory(void **state)
{
    static const struct schedule_costs costs = {1, 1, 1};
    static const struct {
        const char *name;
        int chunks, parts; /* of a micro-batch, that the bubble is one of */
    } shares[] = {{"gpipe", 1, 1},
                  {"1f1b", 1, 1},
                  {"interleaved_1f1b", 2, 2},
                  {"interleaved_1f1b", 4, 4},
                  {"zb_h1", 1, 3}};
    for (int i = 0; i < 5 * 7 * 4; i++) {
        int ranks = 2 + i / 5 % 7, micros = ranks * (1 + i / 35), row = i % 5;
        struct schedule *s = made(shares[row].name, ranks, micros, shares[row].chunks);
        int64_t idle, makespan = play(s, &costs, &idle);
        assert_int_equal(idle * (shares[row].parts * micros + ranks - 1), makespan * (ranks - 1));
        schedule_destroy(s);
    }
}

/* Whatever the numbers, all actions are there, and end. */
static void test_every_size_is_scheduled(void **state)
{
    for (int i = 0; i < 9 * 40 * 5; i++) {
        int ranks = 1 + i % 9, micros = 1 + i / 9 % 40, chunks = 1 + i / 360;
        schedule_destroy(made("interleaved_1f1b", ranks, micros, chunks));
        if (chunks == 2)
            schedule_destroy(made("zb_v", ranks, micros, chunks));
    }
}

/* In every row each stage has its backward parts in the order of the micro-batches: its gradients
 * are the same sums, to the bit. */
static void test_gradients_are_summed_in_order(void **state)
{
    for (size_t i = 0; i < ROWS * 8 * 12; i++) {
        struct schedule *s =
            made(rows[i % ROWS], 1 + (int)(i / ROWS % 8), 1 + (int)(i / ROWS / 8), 0);
        int *next = array_make((size_t)s->stages, sizeof *next);
        for (int a = 0; a < s->first[s->ranks]; a++) {
            const struct schedule_action *action = &s->action[a];
            int is_weight =
                action->phase == (s->splits_backward ? PHASE_BACKWARD_WEIGHT : PHASE_BACKWARD);
            if (is_weight)
                assert_int_equal(next[action->stage]++, action->micro);
        }
        free(next);
        schedule_destroy(s);
    }
}

/* ---- files ---- */

static struct config config_of(const char *row, int micros, const char *more)
{
    char text[512];
    snprintf(text, sizeof text,
             "model.layers=3 model.hidden=12 model.heads=2 model.ffn=20 model.vocab=23 "
             "data.seq_len=7 train.global_batch=%d train.micro_batch=1 parallel.schedule=%s %s",
             micros, row, more);
    return rig_config(text);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static void test_files_are_read_and_checked(void **state)
{
    static const struct {
        const char *text, *says; /* NULL: it is right */
    } files[] = {
        {"0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n", NULL},
        {" 0F0 , \"0F1\",0I0,0W0,0B1\r\n1F0,1B0,1F1,1I1,1W1\r\n\n", NULL},
        {"0F0,3F0,0F1,3F1,3B0,0B0,3B1,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n", NULL},
        {"0F0,0B0,0F1\n1F0,1F1,1B0,1B1\n", "rank 0 lacks 0B1"},
        {"0F0,0F1,0B0,0B1,0F0\n1F0,1F1,1B0,1B1\n", "rank 0 has 0F0 twice"},
        {"0F0,0B0,0B1,0F1\n1F0,1F1,1B0,1B1\n", "rank 0 has 0B1 before its forward"},
        {"0F0,0W0,0I0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "rank 0 has 0W0 before its input part"},
        {"0F0,0F1,0B0,0B1,1F0\n1F1,1B0,1B1\n",
         "1F1 is on rank 1, and stage 1 has actions on rank 0"},
        {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
         "actions wait for one another: rank 0 at 0B0 waits for 1B0 of rank 1, rank 1 at 1F1 waits "
         "for 0F1 of rank 0"},
        {"0F0,0F1,0B0,0B1\n", "1 lines, and parallel.pipeline is 2"},
        {"0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n2F0\n", "more lines than parallel.pipeline 2"},
        {"0F0,0F1,0B0,0B1,0F2,0B2\n1F0,1F1,1B0,1B1,1F2,1B2\n", "of 3 micro-batches a step"},
        {"0F0,0F1,0B0,0B1\n,,\n", "line 2 has no action: rank 1 would have nothing to do"},
        {"\n0F0,0F1,0B0,0B1\n", "line 1 has no action: rank 0 would have nothing to do"},
        {"0F0,0F1,0B0,0B1\n2F0,2F1,2B0,2B1\n", "has stage 2, but not stage 1"},
        {"0F0,0SEND_F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", "line 1: \"0SEND_F0\" is a transfer"},
        {"0F0,0F1,0B0,0B1\n1RECV_F0,1F0,1F1,1B0,1B1\n", "line 2: \"1RECV_F0\" is a transfer"},
        {"0UNSHARD,0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", "\"0UNSHARD\" is a transfer"},
        {"0F0,0F1,0B0,0REDUCE_GRAD,0B1\n1F0,1F1,1B0,1B1\n", "is a transfer"},
        {"(0F1;0B0)OVERLAP_F_B\n1F0\n", "two actions at once"},
        {"0F0,0X1\n1F0\n", "\"0X1\" is no action"},
        {"0F0,0F\n1F0\n", "\"0F\" is no action"},
        {"0F0,-1F1\n1F0\n", "\"-1F1\" is no action"},
        {"0F0,0F99999999999\n1F0\n", "is no action"},
    };
    char path[] = "/tmp/trireme-schedule-XXXXXX.csv";
    close(mkstemps(path, 4));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct schedule_request request = {.name = path, .ranks = 2, .micros = 2};
        struct schedule *s = NULL;
        struct error err = {0};
        write_file(path, files[i].text);
        int rc = schedule_create(&s, &request, &err);
        if (rc != (files[i].says ? -1 : 0) || (rc && !strstr(err.text, files[i].says)))
            fail_msg("file %zu: %s", i, rc ? err.text : "accepted");
        schedule_destroy(s);
    }
    unlink(path);
    struct schedule_request request = {.name = "/no/such.csv", .ranks = 2, .micros = 2};
    struct schedule *none = NULL;
    struct error err = {0};
    assert_int_equal(schedule_create(&none, &request, &err), -1);
    assert_non_null(strstr(err.text, "/no/such.csv: No such file"));
}

/* What is written is read back as the same actions. */
static void test_what_is_written_is_read(void **state)
{
    char path[] = "/tmp/trireme-schedule-XXXXXX.csv";
    close(mkstemps(path, 4));
    for (size_t i = 0; i < ROWS * 3; i++) {
        int ranks = 1 + (int)(i / ROWS);
        struct schedule *s = made(rows[i % ROWS], ranks, 5, 0);
        FILE *file = fopen(path, "w");
        schedule_write(s, file);
        fclose(file);
        struct schedule *again = made(path, ranks, 5, 0);
        assert_int_equal(again->stages, s->stages);
        assert_int_equal(again->splits_backward, s->splits_backward);
        assert_int_equal(again->splits_loss, s->splits_loss);
        assert_memory_equal(again->first, s->first, sizeof *s->first * (size_t)(ranks + 1));
        assert_memory_equal(again->rank_of, s->rank_of, sizeof *s->rank_of * (size_t)s->stages);
        assert_memory_equal(again->action, s->action, sizeof *s->action * (size_t)s->first[ranks]);
        schedule_destroy(again);
        schedule_destroy(s);
    }
    unlink(path);
}

/* Stages anywhere: on four ranks, one may get messages on the stream on which it sends others.  It
 * gets none of them before it has sent what these wait for, and what it has sent is gone when its
 * memory is used again. */
static void test_stages_may_be_on_any_ranks(void **state)
{
    static const struct {
        int micros;
        const char *text;
    } files[] = {
        {1, "2F0,2B0\n4F0,4B0\n0F0,3F0,3B0,0B0\n1F0,1B0\n"},
        {3, "1F1,1I1,1F0,1F2,1W1,1I0,1W0,1I2,1W2\n0F1,0F0,0F2,0I1,0W1,0I0,0W0,0I2,0W2\n"
            "2F1,2I1,2F0,2F2,2W1,2I0,2I2,2W0,2W2\n3F1,3I1,3W1,3F0,3F2,3I2,3I0,3W0,3W2\n"},
        {5, "3F0,3B0,3F3,3B3,3F4,3B4,3F1,3B1,3F2,3B2\n0F0,0F2,0F3,0F4,0F1,0B0,0B3,0B4,0B1,0B2\n"
            "2F0,2B0,2F3,2B3,2F4,2B4,2F1,2B1,2F2,2B2\n1F0,1B0,1F3,1B3,1F4,1B4,1F1,1B1,1F2,1B2\n"},
    };
    char path[] = "/tmp/trireme-schedule-XXXXXX.csv";
    close(mkstemps(path, 4));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct config config =
            config_of(path, files[i].micros, "parallel.pipeline=4 model.layers=6");
        struct report report;
        struct error err = {0};
        write_file(path, files[i].text);
        struct report_request request = {.config = &config, .ranks = 4, .nodes = 1, .threads = 1};
        assert_int_equal(report_make(&report, &request, &err), 0);
        if (!report.verified)
            fail_msg("file %zu: %s", i, report.verdict.text);
        report_free(&report);
    }
    unlink(path);
}

static void test_chunks_are_those_of_the_row(void **state)
{
    static const struct {
        const char *name;
        int chunks;
        const char *says;
    } wrong[] = {{"1f1b", 2, "set parallel.schedule=interleaved_1f1b"},
                 {"zb_v", 3, "leave it at 2"},
                 {"zb_v", 1, "set it to 2"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct schedule_request request = {
            .name = wrong[i].name, .ranks = 2, .micros = 2, .chunks = wrong[i].chunks};
        struct schedule *s = NULL;
        struct error err = {0};
        assert_int_equal(schedule_create(&s, &request, &err), -1);
        assert_non_null(strstr(err.text, wrong[i].says));
    }
}

/* ---- what a rank makes of it ---- */

static int is_same_work(const struct instr *a, const struct instr *b)
{
    return a->kind == b->kind && a->kind == INSTR_RUN && a->unit == b->unit && a->phase == b->phase;
}

/* Do two RUNs have their activations, tokens and targets at the same addresses? */
static int has_same_addresses(const struct program *p, const struct instr *a, const struct instr *b)
{
    for (int s = SPACE_INPUT; s < SPACE_COUNT; s++) {
        if ((a->buffer[s] < 0) != (b->buffer[s] < 0))
            return 0;
        if (a->buffer[s] >= 0 && p->buffer[a->buffer[s]].offset != p->buffer[b->buffer[s]].offset)
            return 0;
    }
    return 1;
}

/* RUNs of one unit and phase on memory that no RUN before them had. */
static int count_address_sets(const struct program *p, int i)
{
    int sets = 0;
    for (int k = i; k < p->instrs; k++) {
        if (!is_same_work(&p->instr[i], &p->instr[k]))
            continue;
        int known = 0;
        for (int j = i; j < k; j++)
            known |= is_same_work(&p->instr[i], &p->instr[j]) &&
                     has_same_addresses(p, &p->instr[j], &p->instr[k]);
        sets += !known;
    }
    return sets;
}

/* What passes has the address that it had `alive` micro-batches before. */
static void check_ring(const struct program *p, const struct instr *instr, int alive)
{
    for (int s = SPACE_INPUT; s < SPACE_COUNT; s++) {
        int b = instr->buffer[s];
        if (b >= 0 && !p->buffer[b].persistent)
            assert_true(p->buffer[b].like >= 0 || instr->micro < alive);
    }
}

/* As many sets of buffers as micro-batches are alive, used again in their order: that many CUDA
 * graphs. */
static void test_buffers_are_a_ring(void **state)
{
    static const char *const more[] = {"", "recompute=full model.tie_embeddings=true",
                                       "model.family=gpt2 recompute=selective"};
    for (int i = 0; i < ROWS * 3 * 5; i++) {
        const char *row = rows[i % ROWS];
        int micros = 1 + i / ROWS % 5, alive = 1;
        if (!strcmp(row, "gpipe") || !strcmp(row, "zb_v")) /* in a V, forward is one ahead */
            alive = !strcmp(row, "gpipe") || micros < 2 ? micros : 2;
        struct config config = config_of(row, micros, more[i / ROWS / 5]);
        struct fleet fleet;
        fleet_open(&fleet, &config, 1, PROGRAM_TRAIN);
        const struct program *p = fleet.program[0];
        for (int k = 0; k < p->instrs; k++)
            if (p->instr[k].kind == INSTR_RUN) {
                assert_true(count_address_sets(p, k) <= alive);
                check_ring(p, &p->instr[k], alive);
            }
        fleet_close(&fleet);
    }
}

static size_t bytes_of(const char *row, int micros, enum mem_pool pool)
{
    struct config config = config_of(row, micros, "");
    struct fleet fleet;
    fleet_open(&fleet, &config, 1, PROGRAM_TRAIN);
    size_t bytes = fleet.program[0]->pool_bytes[pool];
    fleet_close(&fleet);
    return bytes;
}

/* Each micro-batch more that is alive costs what forward keeps for its backward: of each unit its
 * input and what is saved. */
static void test_memory_grows_with_what_is_alive(void **state)
{
    struct config config = config_of("gpipe", 2, "");
    struct fleet fleet;
    size_t kept = 0;
    fleet_open(&fleet, &config, 1, PROGRAM_TRAIN);
    for (int u = 0; u < fleet.units->count; u++)
        kept += (fleet.units->boundary[u].bytes + 63) / 64 * 64 +
                (units_segment(fleet.units, u, PHASE_FORWARD)->saved_bytes + 63) / 64 * 64;
    fleet_close(&fleet);
    for (int micros = 1; micros < 5; micros++) {
        size_t one = bytes_of("naive", micros, POOL_ACTIVATIONS);
        assert_int_equal(bytes_of("1f1b", micros, POOL_ACTIVATIONS), one);
        size_t all = bytes_of("gpipe", micros + 1, POOL_ACTIVATIONS);
        size_t two = bytes_of("gpipe", 2, POOL_ACTIVATIONS), more = (size_t)(micros - 1) * kept;
        assert_in_range(all, two + more * 9 / 10, two + more);
    }
    assert_int_equal(bytes_of("gpipe", 1, POOL_ACTIVATIONS),
                     bytes_of("naive", 1, POOL_ACTIVATIONS)); /* they are the same */
}

/* Items that are to share a place do, and still nothing overlaps what lives with any of them. */
static void test_alike_items_share_a_place(void **state)
{
    struct place items[] = {
        {.bytes = 100, .first = 0, .last = 1}, {.bytes = 300, .first = 1, .last = 2},
        {.bytes = 200, .first = 4, .last = 6}, {.bytes = 100, .first = 3, .last = 4},
        {.bytes = 100, .first = 5, .last = 6},
    };
    items[3].like = &items[0];
    items[4].like = &items[3];
    assert_int_equal(place_items(items, 5), 320 + 128);
    assert_int_equal(items[1].offset, 0);
    assert_int_equal(items[2].offset, 0);
    assert_int_equal(items[0].offset, 320);
    assert_int_equal(items[3].offset, 320);
    assert_int_equal(items[4].offset, 320);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_and_memory_are_those_counted),
        cmocka_unit_test(test_waits_are_those_of_theory),
        cmocka_unit_test(test_every_size_is_scheduled),
        cmocka_unit_test(test_gradients_are_summed_in_order),
        cmocka_unit_test(test_files_are_read_and_checked),
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_stages_may_be_on_any_ranks),
        cmocka_unit_test(test_chunks_are_those_of_the_row),
        cmocka_unit_test(test_buffers_are_a_ring),
        cmocka_unit_test(test_memory_grows_with_what_is_alive),
        cmocka_unit_test(test_alike_items_share_a_place),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
