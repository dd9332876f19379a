/* test_forecast.c - what steps take on a machine whose figures are round: sums that can be done by
 * hand, and what holds on every machine.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "program/compile.h"
#include "simulate/forecast.h"
#include "simulate/machine_file.h"
#include "tests/unit/rig.h"
#include "verify/verify.h"

/* Products alone take time: one operation a nanosecond. */
static struct machine of_products(void)
{
    struct machine m = {.memory_bytes_per_s = 1e30,
                        .bandwidth_efficiency = 1,
                        .attention_forward = 1,
                        .attention_backward = 1,
                        .host_link_bytes_per_s = 1e30,
                        .host_memory_bytes_per_s = 1e30,
                        .node = {.bytes_per_s = 1e30, .efficiency = 1},
                        .network = {.bytes_per_s = 1e30, .efficiency = 1},
                        .network_ports = 1,
                        .per_node = 4};
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        m.peak[dtype] = (struct machine_peak){.flops_per_s = 1e9, .efficiency = 1};
    return m;
}

static const char *const models[] = {
    "model.preset=llama-tiny",
    "model.preset=gpt2 model.layers=2 model.hidden=32 model.heads=4 model.kv_heads=4 "
    "model.vocab=97",
    "model.preset=llama-tiny lora.r=4",
    "model.preset=llama-tiny parallel.tensor=2",
    "model.preset=llama-tiny parallel.context=2 recompute=full",
    "model.preset=gpt2 model.layers=2 model.hidden=32 model.heads=4 model.kv_heads=4 "
    "model.vocab=97 "
    "parallel.tensor=2 parallel.tensor_overlap=2",
    "model.preset=llama-tiny parallel.pipeline=2 parallel.schedule=zb_h1",
};
enum { MODELS = sizeof models / sizeof models[0] };

static void open_fleet(struct fleet *fleet, const char *model, const char *more, int ranks)
{
    char settings[320];
    snprintf(settings, sizeof settings,
             "data.seq_len=16 train.micro_batch=1 train.global_batch=8 data.train=none.h5 %s %s",
             model, more);
    struct config config = rig_config(settings);
    fleet_open(fleet, &config, ranks, PROGRAM_TRAIN);
}

static struct forecast must_forecast_files(const struct fleet *fleet, const struct machine *machine,
                                           const struct machine_files *files)
{
    struct forecast forecast;
    struct error err = {0};
    const struct forecast_request request = {
        .machine = machine,
        .device = fleet->device,
        .ranks = fleet->ranks,
        .program = (const struct program *const *)fleet->program,
        .per_node = machine->per_node,
        .files = files,
    };
    if (forecast_make(&forecast, &request, &err))
        fail_msg("%s", err.text);
    return forecast;
}

/* A program that is compiled without waits does not say what waits for what: it cannot be checked
 * or played. */
static void programs_without_waits_are_refused(void **state)
{
    struct fleet fleet;
    struct forecast forecast;
    struct error err = {0};
    const struct machine machine = of_products();
    open_fleet(&fleet, models[0], "", 2);
    program_destroy(fleet.program[1]);
    fleet.program[1] = program_create_without_waits(fleet.state[1], PROGRAM_TRAIN);
    const struct forecast_request request = {
        .machine = &machine,
        .device = fleet.device,
        .ranks = fleet.ranks,
        .program = (const struct program *const *)fleet.program,
        .per_node = machine.per_node,
    };
    assert_int_equal(forecast_make(&forecast, &request, &err), -1);
    assert_non_null(strstr(err.text, "without waits"));
    assert_int_equal(verify_program(fleet.program[0], &err), 0);
    assert_int_equal(verify_program(fleet.program[1], &err), -1);
    assert_non_null(strstr(err.text, "without waits"));
    fleet_close(&fleet);
}

static struct forecast must_forecast(const struct fleet *fleet, const struct machine *machine)
{
    return must_forecast_files(fleet, machine, NULL);
}

static double flops_of(const struct op_product *product, int count)
{
    double flops = 0;
    for (int i = 0; i < count; i++)
        flops += 2.0 * (double)product[i].times * (double)product[i].gemm.m *
                 (double)product[i].gemm.n * (double)product[i].gemm.k;
    return flops;
}

/* The products that an op says it runs have the operations that it says it takes. */
static void test_products_are_an_ops_operations(void **state)
{
    int met = 0;
    for (int k = 0; k < MODELS; k++) {
        struct fleet fleet;
        open_fleet(&fleet, models[k], "", 2);
        for (int kind = 0; kind < fleet.units->kinds; kind++) {
            const struct graph *graph = fleet.units->kind[kind].train;
            for (int n = 0; n < graph->node_count; n++) {
                struct op_product product[OP_PRODUCTS];
                const struct graph_node *node = &graph->nodes[n];
                int count = op_products(fleet.device, graph, node, product);
                double flops = op_flops(graph, node);
                assert_true(op_bytes(graph, node) >= 0);
                if (!count)
                    continue;
                if (fabs(flops_of(product, count) - flops) > 1e-9 * flops)
                    fail_msg("%s: %s has products of %g, not %g", models[k], node->op->name,
                             flops_of(product, count), flops);
                met++;
            }
        }
        fleet_close(&fleet);
    }
    assert_true(met > 100);
}

/* Products and attention of a rank's RUNs. */
static double run_flops(const struct fleet *fleet, int rank)
{
    const struct program *program = fleet->program[rank];
    double flops = 0;
    for (int i = 0; i < program->instrs; i++) {
        const struct instr *instr = &program->instr[i];
        if (instr->kind != INSTR_RUN)
            continue;
        const struct segment *segment = program_segment(program, instr->unit, instr->phase);
        for (int s = segment->piece[instr->piece].first; s < segment->piece[instr->piece].end;
             s++) {
            const struct graph_node node = segment_step_node(segment, &segment->step[s]);
            if (node.op->products || node.op->keys)
                flops += op_flops(segment->graph, &node);
        }
    }
    return flops;
}

/* One rank: its operations by the machine's, and a fixed time. */
static void test_one_rank_takes_its_operations(void **state)
{
    for (int k = 0; k < 3; k++) {
        struct fleet fleet;
        struct machine machine = of_products();
        machine.step_s = 0.5;
        open_fleet(&fleet, models[k], "", 1);
        struct forecast f = must_forecast(&fleet, &machine);
        double want = run_flops(&fleet, 0) * 1e-9 + 0.5;
        assert_true(fabs(f.step_s - want) < 1e-9 * want);
        forecast_free(&f);
        fleet_close(&fleet);
    }
}

/* Compute takes no time: what is left are transfers, each as the machine has it, of which those of
 * one stream follow one another. */
static void test_transfers_take_their_bytes(void **state)
{
    struct fleet fleet;
    struct machine machine = of_products();
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        machine.peak[dtype].flops_per_s = 1e30;
    machine.node.bytes_per_s = 1e6;
    open_fleet(&fleet, models[0],
               "parallel.strategy=FULL_SHARD parallel.forward_prefetch=false "
               "parallel.backward_prefetch=none train.global_batch=4",
               4);
    struct forecast f = must_forecast(&fleet, &machine);
    const struct program *program = fleet.program[0];
    double gathers = 0, reduces = 0;
    for (int i = 0; i < program->instrs; i++) {
        const struct instr *instr = &program->instr[i];
        double bytes = (double)instr->elems * (double)dtype_bytes(instr->dtype) * 3;
        gathers += instr->kind == INSTR_GATHER ? bytes * 1e-6 : 0;
        reduces += instr->kind == INSTR_REDUCE ? bytes * 1e-6 : 0;
    }
    assert_true(gathers > 0 && reduces > 0);
    assert_true(f.rank[0].busy_s[STREAM_GATHER] >= gathers * (1 - 1e-9));
    assert_true(f.step_s >= gathers && f.step_s <= 2 * (gathers + reduces));
    machine.node.bytes_per_s = 2e6;
    struct forecast twice = must_forecast(&fleet, &machine);
    assert_true(fabs(twice.step_s - f.step_s / 2) < 1e-9 * f.step_s);
    forecast_free(&twice);
    forecast_free(&f);
    fleet_close(&fleet);
}

/* Where links are slow, ranks that are alike wait for transfers, not for one another, while the
 * transfers before one are under way. */
static void test_ranks_that_are_alike_do_not_wait_for_one_another(void **state)
{
    struct fleet fleet;
    struct machine machine;
    struct error err = {0};
    if (machine_find(&machine, "h100", &err))
        fail_msg("%s", err.text);
    machine.node.bytes_per_s /= 1000;
    open_fleet(&fleet, models[0], "device=cuda precision=bf16 train.micro_batch=1", 4);
    struct forecast f = must_forecast(&fleet, &machine);
    for (int r = 0; r < f.ranks; r++) {
        const double *seconds = f.rank[r].seconds;
        if (!(seconds[PLAY_RANKS] < 0.02 * f.step_s && seconds[PLAY_REDUCE] > 0.2 * f.step_s))
            fail_msg("%g of %g s for other ranks, %g for reductions", seconds[PLAY_RANKS], f.step_s,
                     seconds[PLAY_REDUCE]);
    }
    forecast_free(&f);
    fleet_close(&fleet);
    machine_free(&machine);
}

/* A node of each rank puts everything on the network. */
static void test_nodes_divide_the_ranks(void **state)
{
    struct fleet fleet;
    struct machine machine = of_products();
    machine.network.bytes_per_s = 1e6;
    open_fleet(&fleet, models[0], "parallel.strategy=FULL_SHARD", 4);
    struct forecast one = must_forecast(&fleet, &machine);
    machine.per_node = 2;
    struct forecast two = must_forecast(&fleet, &machine);
    machine.per_node = 1;
    struct forecast four = must_forecast(&fleet, &machine);
    assert_true(two.step_s > 1.1 * one.step_s);
    assert_true(four.step_s > one.step_s);
    forecast_free(&one);
    forecast_free(&two);
    forecast_free(&four);
    fleet_close(&fleet);
}

/* Messages wait for ranks that compute: stages of a pipeline are later for it. */
static void test_messages_of_busy_ranks(void **state)
{
    static const struct machine_transfer rows[] = {
        {.kind = MACHINE_MESSAGE, .ranks = 2, .nodes = 1, .bytes = 1, .seconds = 1e-9},
        {.kind = MACHINE_MESSAGE_BUSY, .ranks = 2, .nodes = 1, .bytes = 1, .seconds = 1e-6},
    };
    struct fleet fleet;
    struct machine machine = of_products();
    machine.transfer = (struct machine_transfer *)rows;
    machine.transfers = 1;
    open_fleet(&fleet, models[0], "parallel.pipeline=2 parallel.schedule=1f1b", 2);
    struct forecast idle = must_forecast(&fleet, &machine);
    machine.transfers = 2;
    struct forecast busy = must_forecast(&fleet, &machine);
    assert_true(busy.step_s > idle.step_s * 1.001);
    for (int r = 0; r < 2; r++)
        for (int kind = PLAY_FORWARD; kind <= PLAY_UPDATE; kind++)
            assert_true(fabs(busy.rank[r].seconds[kind] - idle.rank[r].seconds[kind]) <=
                        1e-9 * idle.step_s);
    forecast_free(&idle);
    forecast_free(&busy);
    fleet_close(&fleet);
}

/* Nothing but files takes time.  Reads and writes go side by side: what the disk has takes the
 * longer of both, what the page cache has both, as they share it, and updates beside are slower. */
static void test_files_take_their_bytes(void **state)
{
    struct fleet fleet;
    struct machine machine = of_products();
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        machine.peak[dtype].flops_per_s = 1e30;
    machine.memory_bytes = 1 << 30;
    machine.per_node = 2;
    machine.disk_read_bytes_per_s = machine.disk_write_bytes_per_s = 1e6;
    machine.disk_unwritten = 1;
    open_fleet(&fleet, models[0], "parallel.strategy=FULL_SHARD offload.optimizer=disk", 2);
    double read = 0, write = 0;
    for (int i = 0; i < fleet.program[0]->instrs; i++) {
        const struct instr *instr = &fleet.program[0]->instr[i];
        double bytes = 0;
        if (instr->kind == INSTR_FETCH || instr->kind == INSTR_SPILL)
            bytes = (double)fleet.program[0]->buffer[instr->buffer[SLOT_TO]].bytes;
        read += instr->stream == STREAM_READ ? bytes : 0;
        write += instr->stream == STREAM_WRITE ? bytes : 0;
    }
    assert_true(read > 0 && write > 0);
    struct machine_files files = {.ranks = 2, .memory_bytes = 1 << 20, .bytes = 1 << 20};
    struct forecast disk = must_forecast_files(&fleet, &machine, NULL);
    assert_true(fabs(disk.rank[0].busy_s[STREAM_READ] - 2 * read / 1e6) < 1e-9);
    assert_true(fabs(disk.rank[0].busy_s[STREAM_WRITE] - 2 * write / 1e6) < 1e-9);
    assert_true(disk.step_s < 0.9 * 2 * (read + write) / 1e6); /* side by side */
    struct forecast same = must_forecast_files(&fleet, &machine, &files);
    assert_true(same.step_s == disk.step_s);
    machine.disk_cached_read_bytes_per_s = machine.disk_cached_write_bytes_per_s = 1e7;
    struct forecast cached = must_forecast_files(&fleet, &machine, &files);
    assert_true(fabs(cached.step_s - 2 * (read + write) / 1e7) < 1e-6 * cached.step_s);
    files.bytes = 3e9; /* more than the node's memory */
    struct forecast full = must_forecast_files(&fleet, &machine, &files);
    assert_true(full.step_s == disk.step_s);
    forecast_free(&disk);
    forecast_free(&same);
    forecast_free(&cached);
    forecast_free(&full);
    fleet_close(&fleet);
}

/* Every machine that is known forecasts every model in finite time, where it has the format. */
static void test_known_machines_forecast(void **state)
{
    char names[1024], *rest = names, *name;
    machine_names(names, sizeof names, " ");
    while ((name = strsep(&rest, " ")))
        for (int k = 0; k < MODELS; k++) {
            struct machine machine;
            struct error err = {0};
            struct fleet fleet;
            if (machine_find(&machine, name, &err))
                fail_msg("%s", err.text);
            int has_bf16 = machine.peak[DTYPE_BF16].flops_per_s > 0;
            open_fleet(&fleet, models[k],
                       has_bf16 ? "device=cuda precision=bf16" : "device=cuda precision=fp32", 2);
            struct forecast f = must_forecast(&fleet, &machine);
            if (!(f.step_s > 1e-5 && f.step_s < 10))
                fail_msg("%s, %s: %g s", name, models[k], f.step_s);
            forecast_free(&f);
            fleet_close(&fleet);
            machine_free(&machine);
        }
}

/* Each rank's transfers are summed by kind and way, with the bytes that they move; of 10^9 bytes
 * per second within a node the sums take at least what their bytes do. */
static void test_transfers_are_summed(void **state)
{
    struct fleet fleet;
    struct machine machine = of_products();
    machine.node.bytes_per_s = machine.network.bytes_per_s = 1e9;
    open_fleet(&fleet, models[0], "", 4);
    for (machine.per_node = 1; machine.per_node <= 4; machine.per_node *= 4) {
        struct forecast f = must_forecast(&fleet, &machine);
        int between = machine.per_node == 1 ? FORECAST_BETWEEN : FORECAST_WITHIN;
        for (int r = 0; r < 4; r++) {
            double count[MACHINE_TRANSFERS] = {0}, bytes[MACHINE_TRANSFERS] = {0};
            const struct program *program = fleet.program[r];
            for (int i = 0; i < program->instrs; i++) {
                if (!instr_is_transfer(&program->instr[i]))
                    continue;
                count[cost_transfer_kind(&program->instr[i])]++;
                bytes[cost_transfer_kind(&program->instr[i])] +=
                    cost_transfer_bytes(program, &program->instr[i]);
            }
            assert_true(count[MACHINE_GATHER] > 0 && count[MACHINE_REDUCE] > 0);
            for (int kind = 0; kind < MACHINE_TRANSFERS; kind++) {
                const struct forecast_transfer *t = &f.transfers[r].of[kind][between];
                assert_true(t->count == count[kind] && t->bytes == bytes[kind]);
                assert_true(f.transfers[r].of[kind][!between].count == 0);
                if (between == FORECAST_WITHIN)
                    assert_true(t->seconds >= 0.74 * t->bytes / 1e9);
            }
        }
        forecast_free(&f);
    }
    fleet_close(&fleet);
}

/* Bytes that an instruction moves in fp32: sums are cleared, and read and written; LOAD reads and
 * writes each array; an update reads and writes masters and the optimizer's slots that it is given,
 * and reads the gradient.  -1: not asked here. */
static double bytes_of(const struct program *program, const struct instr *instr)
{
    double bytes = 0;
    int slots = 0;
    for (int k = 0; k < OPTIMIZER_SLOTS; k++)
        slots += instr->buffer[SLOT_OPTIMIZER + k] >= 0;
    switch (instr->kind) {
    case INSTR_ZERO: return (double)program->buffer[instr->buffer[SLOT_SUMS]].bytes;
    case INSTR_SCALE: return 2 * (double)program->buffer[instr->buffer[SLOT_SUMS]].bytes;
    case INSTR_UPDATE:
        return (8 + 8 * slots + 4) * (double)program->units->flat[instr->flat].shard_elems;
    case INSTR_LOAD:
        for (int slot = 0; slot < LOAD_SLOTS; slot++)
            if (instr->buffer[slot] >= 0)
                bytes += 2 * (double)program->buffer[instr->buffer[slot]].bytes;
        return bytes;
    default: return -1;
    }
}

/* Of a byte in a microsecond they take what they move, in a program that has one of each at least;
 * 128 bytes are 16 tokens and their targets. */
static void test_small_instructions_take_their_bytes(void **state)
{
    static const char *const rules[] = {"sgd", "adamw", "muon"};
    struct machine machine = of_products();
    machine.memory_bytes_per_s = 1e6;
    for (int k = 0; k < 3; k++) {
        struct fleet fleet;
        char more[64];
        int met[INSTR_KINDS] = {0};
        snprintf(more, sizeof more, "train.optimizer=%s", rules[k]);
        open_fleet(&fleet, models[0], more, 1);
        const struct program *program = fleet.program[0];
        const struct cost_request request = {
            .machine = &machine, .program = program, .device = fleet.device, .per_node = 1};
        struct cost *cost = cost_create(&request);
        for (int i = 0; i < program->instrs; i++) {
            enum instr_kind kind = program->instr[i].kind;
            double bytes = bytes_of(program, &program->instr[i]);
            if (bytes < 0)
                continue;
            met[kind]++;
            if (fabs(cost_instr_s(cost, i) - bytes * 1e-6) > 1e-9 * bytes * 1e-6)
                fail_msg("%s, %s: %g s for %g bytes", rules[k], instr_name(kind),
                         cost_instr_s(cost, i), bytes);
            assert_true(kind != INSTR_LOAD || bytes >= 2 * 128);
        }
        assert_true(met[INSTR_ZERO] == 1 && met[INSTR_SCALE] == 1);
        assert_true(met[INSTR_LOAD] == 8 && met[INSTR_UPDATE] >= 1);
        cost_destroy(cost);
        fleet_close(&fleet);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_without_waits_are_refused),
        cmocka_unit_test(test_small_instructions_take_their_bytes),
        cmocka_unit_test(test_transfers_are_summed),
        cmocka_unit_test(test_products_are_an_ops_operations),
        cmocka_unit_test(test_one_rank_takes_its_operations),
        cmocka_unit_test(test_transfers_take_their_bytes),
        cmocka_unit_test(test_ranks_that_are_alike_do_not_wait_for_one_another),
        cmocka_unit_test(test_nodes_divide_the_ranks),
        cmocka_unit_test(test_messages_of_busy_ranks),
        cmocka_unit_test(test_files_take_their_bytes),
        cmocka_unit_test(test_known_machines_forecast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
