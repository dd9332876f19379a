/* test_machine.c - how long a machine takes: by its peaks, against sums made by hand; by tables:
 * exact in their rows, monotone between and behind them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "simulate/machine.h"

/* Round numbers: 4 processors with tiles of 128 x 64, 100 operations a second in half of which it
 * succeeds, and a node of 4 ranks with 2 ports. */
static struct machine by_hand(void)
{
    return (struct machine){
        .per_node = 4,
        .peak = {[DTYPE_BF16] = {.flops_per_s = 1e6, .efficiency = 0.5},
                 [DTYPE_F32] = {.flops_per_s = 1e5, .efficiency = 0.8}},
        .units = 4,
        .tile_m = 128,
        .tile_n = 64,
        .half_k = 16,
        .attention_forward = 0.5,
        .attention_backward = 0.4,
        .attention_half = 100,
        .memory_bytes_per_s = 1e6,
        .bandwidth_efficiency = 0.8,
        .launch_s = 0.25,
        .node = {.bytes_per_s = 200, .efficiency = 0.5, .latency_s = 2},
        .network = {.bytes_per_s = 80, .efficiency = 0.5, .latency_s = 8},
        .network_ports = 2,
    };
}

static void is_near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-12 * fabs(wanted)))
        fail_msg("%.17g is not %.17g", got, wanted);
}

/* Whole tiles in whole rounds. */
static void test_tiles(void **state)
{
    struct machine m = by_hand();
    /* 1 tile of [128, 64] is a round of 4: 2 * 4 * 128 * 64 * (16 + 16) / (1e6 / 2) */
    double round_s = 2 * 4 * 128 * 64 * 32 / 5e5;
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_FORWARD, 128, 64, 16), round_s + 0.25);
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_FORWARD, 1, 1, 16), round_s + 0.25);
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_FORWARD, 256, 128, 16), round_s + 0.25);
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_FORWARD, 257, 64, 16), round_s + 0.25);
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_FORWARD, 257, 128, 16), 2 * round_s + 0.25);
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_FORWARD, 257, 128, 48), 4 * round_s + 0.25);
    is_near(machine_product_s(&m, DTYPE_F32, PRODUCT_FORWARD, 128, 64, 16),
            round_s * 5e5 / 8e4 + 0.25);
    m.units = 0; /* processors share a product as they like */
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_FORWARD, 130, 65, 16),
            2 * 130 * 65 * 32 / 5e5 + 0.25);
}

/* A product takes no less than its bytes; the result of a weight's is fp32. */
static void test_product_bytes(void **state)
{
    struct machine m = by_hand();
    m.memory_bytes_per_s = 10;
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_FORWARD, 100, 50, 30),
            2 * (100 * 30 + 30 * 50 + 100 * 50) / 8. + 0.25);
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_INPUT, 100, 50, 30),
            2 * (100 * 30 + 30 * 50 + 100 * 50) / 8. + 0.25);
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_WEIGHT, 100, 50, 30),
            (2 * (100 * 30 + 30 * 50) + 4 * 100 * 50) / 8. + 0.25);
}

static void test_absent_format(void **state)
{
    struct machine m = by_hand();
    assert_true(isinf(machine_product_s(&m, DTYPE_F16, PRODUCT_FORWARD, 1, 1, 1)));
    assert_true(
        isinf(machine_attention_s(&m, "attention", DTYPE_F16, 1, 1, MACHINE_ATTENTION_LIBRARY)));
    assert_true(machine_peak(&m, DTYPE_F16) == 0);
    assert_true(machine_peak(&m, DTYPE_BF16) == 1e6);
}

static void test_memory_and_attention(void **state)
{
    struct machine m = by_hand();
    is_near(machine_memory_s(&m, "rmsnorm", DTYPE_BF16, 8e5), 1.25);
    is_near(machine_attention_s(&m, "attention", DTYPE_BF16, 1e6, 300, MACHINE_ATTENTION_LIBRARY),
            2 / 0.75 + 0.25);
    is_near(machine_attention_s(&m, "attention_backward", DTYPE_BF16, 1e6, 300,
                                MACHINE_ATTENTION_LIBRARY),
            2.5 / 0.75 + 0.25);
    m.attention_own = 0.5;
    is_near(machine_attention_s(&m, "attention", DTYPE_BF16, 1e6, 300, MACHINE_ATTENTION_OWN),
            4 / 0.75 + 0.25);
}

/* 4 ranks of a node: (4 - 1) / 4 of the bytes at 200 / 2 bytes a second, 3 steps. */
static void test_ring(void **state)
{
    struct machine m = by_hand();
    double ring = 0.75 * 400 / 100 + 3 * 2;
    is_near(machine_transfer_s(&m, MACHINE_GATHER, 4, 1, 1, 400), ring);
    is_near(machine_transfer_s(&m, MACHINE_REDUCE, 4, 1, 7, 400), ring);
    is_near(machine_transfer_s(&m, MACHINE_ALL_TO_ALL, 4, 1, 1, 400), ring);
    is_near(machine_transfer_s(&m, MACHINE_ALL_REDUCE, 4, 1, 1, 400), 2 * ring);
    is_near(machine_transfer_s(&m, MACHINE_MESSAGE, 2, 1, 1, 400), 2 + 4);
    for (int kind = 0; kind < MACHINE_TRANSFERS; kind++)
        is_near(machine_transfer_s(&m, kind, 1, 1, 1, 400), 0);
    m.has_nvls = 1;
    is_near(machine_transfer_s(&m, MACHINE_GATHER, 4, 1, 1, 400), ring);
    is_near(machine_transfer_s(&m, MACHINE_ALL_REDUCE, 4, 1, 1, 400), 4 / 0.75 + 2 * 2);
}

/* 8 ranks on 2 nodes pass 7/8 of the bytes through a node's ports; 2 nodes' groups of one rank have
 * a port, and share it. */
static void test_nodes(void **state)
{
    struct machine m = by_hand();
    double out = 7. / 8 * 800 / 40, steps = 6 * 2 + 8;
    is_near(machine_transfer_s(&m, MACHINE_GATHER, 8, 2, 1, 800), out + steps);
    is_near(machine_transfer_s(&m, MACHINE_REDUCE, 8, 2, 1, 800), out + steps);
    is_near(machine_transfer_s(&m, MACHINE_ALL_REDUCE, 8, 2, 1, 800), 2 * (out + 3 * 2 + 8));
    /* each of 4 ranks gives half of its bytes to the other node */
    is_near(machine_transfer_s(&m, MACHINE_ALL_TO_ALL, 8, 2, 1, 800), 4 * 400 / 40. + steps);
    is_near(machine_transfer_s(&m, MACHINE_GATHER, 2, 2, 1, 800), 400 / 20. + 8);
    is_near(machine_transfer_s(&m, MACHINE_GATHER, 2, 2, 2, 800), 400 / 20. + 8);
    is_near(machine_transfer_s(&m, MACHINE_GATHER, 2, 2, 4, 800), 400 / 10. + 8);
    is_near(machine_transfer_s(&m, MACHINE_MESSAGE, 2, 2, 1, 800), 800 / 20. + 8);
    is_near(machine_transfer_s(&m, MACHINE_MESSAGE, 2, 2, 4, 800), 800 / 10. + 8);
    m.network_ports = 8; /* two for each rank, which drives both */
    is_near(machine_transfer_s(&m, MACHINE_GATHER, 2, 2, 1, 800), 400 / 10. + 8);
    m.network.bytes_per_s = 1e9; /* so that links within the node are narrowest */
    is_near(machine_transfer_s(&m, MACHINE_GATHER, 8, 2, 1, 800), 7 + steps);
}

/* 4 ranks of 250 bytes make a node of 1000; files may fill what ranks leave, and a quarter of that
 * before the disk is waited for. */
static void test_files(void **state)
{
    static const struct {
        double memory, bytes, read, write; /* seconds of 100 bytes of one rank */
    } cases[] = {
        {600, 100, 400 / 40., 400 / 80.}, /* exactly a quarter of what is left */
        {600, 101, 400 / 40., 400 / 5.},  /* one more: the disk is waited for */
        {600, 400, 400 / 40., 400 / 5.},  /* all that is left */
        {600, 401, 400 / 10., 400 / 5.},  /* one more: nothing is there when it is read again */
        {1001, 0, 400 / 10., 400 / 5.},   /* ranks alone do not fit */
        {0, 250, 400 / 40., 400 / 80.},
    };
    struct machine m = by_hand();
    m.memory_bytes = 250;
    m.disk_read_bytes_per_s = 10;
    m.disk_write_bytes_per_s = 5;
    m.disk_cached_read_bytes_per_s = 40;
    m.disk_cached_write_bytes_per_s = 80;
    m.disk_unwritten = 0.25;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct machine_files files = {
            .ranks = 4, .memory_bytes = cases[i].memory, .bytes = cases[i].bytes};
        is_near(machine_file_s(&m, MACHINE_FILE_READ, &files, 100), cases[i].read);
        is_near(machine_file_s(&m, MACHINE_FILE_WRITE, &files, 100), cases[i].write);
        assert_int_equal(machine_file_is_cached(&m, MACHINE_FILE_READ, &files),
                         cases[i].read == 10);
    }
    struct machine_files small = {.ranks = 4, .bytes = 100};
    m.host_memory_bytes =
        399; /* a node's memory, said apart, of which files may take a quarter: 99.75 */
    is_near(machine_file_s(&m, MACHINE_FILE_READ, &small, 100), 400 / 40.);
    is_near(machine_file_s(&m, MACHINE_FILE_WRITE, &small, 100), 400 / 5.);
    snprintf(m.gpu, sizeof m.gpu, "a GPU"); /* whose memory is not the node's */
    m.host_memory_bytes = 0;
    is_near(machine_file_s(&m, MACHINE_FILE_READ, &small, 100), 400 / 10.);
    m = by_hand(); /* without speeds of the page cache all is as the disk has it */
    m.memory_bytes = 250;
    m.disk_read_bytes_per_s = 10;
    m.disk_write_bytes_per_s = 5;
    m.disk_unwritten = 1;
    is_near(machine_file_s(&m, MACHINE_FILE_READ, &small, 100), 400 / 10.);
    is_near(machine_file_s(&m, MACHINE_FILE_WRITE, &small, 100), 400 / 5.);
}

static const struct machine_op ops[] = {
    {.name = "swiglu", .dtype = DTYPE_BF16, .size = 1000, .rate = 100},
    {.name = "attention", .dtype = DTYPE_BF16, .size = 512, .rate = 3e5},
    {.name = "rmsnorm", .dtype = DTYPE_BF16, .size = 100, .rate = 10},
    {.name = "swiglu", .dtype = DTYPE_BF16, .size = 10, .rate = 4},
    {.name = "swiglu", .dtype = DTYPE_F32, .size = 10, .rate = 5},
    {.name = "swiglu", .dtype = DTYPE_BF16, .size = 100, .rate = 25},
};

static void test_op_table(void **state)
{
    struct machine m = by_hand();
    m.op = (struct machine_op *)ops;
    m.ops = sizeof ops / sizeof ops[0];
    for (int i = 0; i < m.ops; i++)
        if (strcmp(ops[i].name, "attention"))
            is_near(machine_memory_s(&m, ops[i].name, ops[i].dtype, ops[i].size),
                    ops[i].size / ops[i].rate);
    /* half-way in the logarithm of bytes: the geometric mean */
    is_near(machine_memory_s(&m, "swiglu", DTYPE_BF16, sqrt(10 * 100)), sqrt(1000) / 10);
    is_near(machine_memory_s(&m, "swiglu", DTYPE_BF16, 1e6), 1e4);
    is_near(machine_memory_s(&m, "swiglu", DTYPE_BF16, 5), 1.25);
    is_near(machine_memory_s(&m, "swiglu", DTYPE_BF16, 0.4), 0.25); /* launch_s */
    double before = 0;
    for (double bytes = 1; bytes < 1e6; bytes *= 1.07) {
        double seconds = machine_memory_s(&m, "swiglu", DTYPE_BF16, bytes);
        assert_true(seconds >= before);
        before = seconds;
    }
    /* one row; a format that no row has; an op that is not there */
    is_near(machine_memory_s(&m, "rmsnorm", DTYPE_BF16, 1e4), 1e3);
    is_near(machine_memory_s(&m, "rmsnorm", DTYPE_F32, 1e4), 1e3);
    is_near(machine_memory_s(&m, "rope", DTYPE_BF16, 8e5), 1.25);
    is_near(machine_attention_s(&m, "attention", DTYPE_BF16, 6e5, 512, MACHINE_ATTENTION_LIBRARY),
            2);
    is_near(machine_attention_s(&m, "attention", DTYPE_F32, 1e5, 300, MACHINE_ATTENTION_LIBRARY),
            2 / 0.75 + 0.25);
}

static double rate_at(int64_t m, int64_t n, int64_t k)
{
    return 1e3 * pow((double)m, 0.4) * pow((double)n, 0.3) * pow((double)k, 0.2);
}

/* A grid of a power law, of which all between is that power law too. */
static void test_product_table(void **state)
{
    static const int64_t side[] = {512, 64, 4096};
    struct machine_product rows[3 * 3 * 3 + 1];
    struct machine m = by_hand();
    m.product = rows;
    for (int i = 0; i < 27; i++) {
        int64_t a = side[i / 9], b = side[i / 3 % 3], c = side[i % 3];
        rows[m.products++] = (struct machine_product){.dtype = DTYPE_BF16,
                                                      .kind = PRODUCT_INPUT,
                                                      .m = a,
                                                      .n = b,
                                                      .k = c,
                                                      .flops_per_s = rate_at(a, b, c)};
    }
    rows[m.products++] = (struct machine_product){
        .dtype = DTYPE_BF16, .kind = PRODUCT_WEIGHT, .m = 8, .n = 8, .k = 8, .flops_per_s = 64};
    static const int64_t sizes[] = {64, 100, 512, 777, 4096};
    for (int i = 0; i < 125; i++) {
        int64_t a = sizes[i / 25], b = sizes[i / 5 % 5], c = sizes[i % 5];
        is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_INPUT, a, b, c),
                2. * (double)(a * b * c) / rate_at(a, b, c));
    }
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_INPUT, 8192, 64, 64),
            2. * 8192 * 64 * 64 / rate_at(4096, 64, 64));
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_WEIGHT, 16, 16, 16), 2 * 4096 / 64.);
    m.memory_bytes_per_s = 0.001; /* less than in any row: its bytes bound it */
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_INPUT, 32, 64, 64),
            2 * (32 * 64 + 64 * 64 + 32 * 64) / 0.0008 + 0.25);
    is_near(machine_product_s(&m, DTYPE_BF16, PRODUCT_INPUT, 64, 64, 64),
            2. * 64 * 64 * 64 / rate_at(64, 64, 64));
}

static const struct machine_transfer transfers[] = {
    {.kind = MACHINE_GATHER, .ranks = 4, .nodes = 1, .bytes = 1e4, .seconds = 500},
    {.kind = MACHINE_GATHER, .ranks = 4, .nodes = 1, .bytes = 100, .seconds = 20},
    {.kind = MACHINE_GATHER, .ranks = 2, .nodes = 1, .bytes = 100, .seconds = 8},
    {.kind = MACHINE_GATHER, .ranks = 8, .nodes = 2, .bytes = 100, .seconds = 90},
};

static void test_transfer_table(void **state)
{
    struct machine m = by_hand(), plain = by_hand();
    m.transfer = (struct machine_transfer *)transfers;
    m.transfers = sizeof transfers / sizeof transfers[0];
    for (int i = 0; i < m.transfers; i++)
        is_near(machine_transfer_s(&m, transfers[i].kind, transfers[i].ranks, transfers[i].nodes, 1,
                                   transfers[i].bytes),
                transfers[i].seconds);
    is_near(machine_transfer_s(&m, MACHINE_GATHER, 4, 1, 1, 1000), 100);
    is_near(machine_transfer_s(&m, MACHINE_GATHER, 4, 1, 1, 1), 20);
    is_near(machine_transfer_s(&m, MACHINE_GATHER, 4, 1, 1, 1e5), 5000);
    /* groups that were not measured, by what the formula says of the nearest one that was */
    is_near(machine_transfer_s(&m, MACHINE_GATHER, 3, 1, 1, 100),
            20 * machine_transfer_s(&plain, MACHINE_GATHER, 3, 1, 1, 100) /
                machine_transfer_s(&plain, MACHINE_GATHER, 4, 1, 1, 100));
    is_near(machine_transfer_s(&m, MACHINE_GATHER, 8, 2, 4, 100),
            90 * machine_transfer_s(&plain, MACHINE_GATHER, 8, 2, 4, 100) /
                machine_transfer_s(&plain, MACHINE_GATHER, 8, 2, 1, 100));
    is_near(machine_transfer_s(&m, MACHINE_REDUCE, 4, 1, 1, 100),
            machine_transfer_s(&plain, MACHINE_REDUCE, 4, 1, 1, 100));
}

/* A message of a rank that computes has rows of its own, or is as one of a rank that does not. */
static void test_busy_messages(void **state)
{
    static const struct machine_transfer rows[] = {
        {.kind = MACHINE_MESSAGE, .ranks = 2, .nodes = 1, .bytes = 100, .seconds = 3},
        {.kind = MACHINE_MESSAGE_BUSY, .ranks = 2, .nodes = 1, .bytes = 100, .seconds = 70},
    };
    struct machine m = by_hand();
    is_near(machine_transfer_s(&m, MACHINE_MESSAGE_BUSY, 2, 1, 1, 400), 2 + 4);
    m.transfer = (struct machine_transfer *)rows;
    m.transfers = 1;
    is_near(machine_transfer_s(&m, MACHINE_MESSAGE_BUSY, 2, 1, 1, 100), 3);
    m.transfers = 2;
    is_near(machine_transfer_s(&m, MACHINE_MESSAGE_BUSY, 2, 1, 1, 100), 70);
    is_near(machine_transfer_s(&m, MACHINE_MESSAGE, 2, 1, 1, 100), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles),          cmocka_unit_test(test_product_bytes),
        cmocka_unit_test(test_absent_format),  cmocka_unit_test(test_memory_and_attention),
        cmocka_unit_test(test_ring),           cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_op_table),       cmocka_unit_test(test_product_table),
        cmocka_unit_test(test_transfer_table), cmocka_unit_test(test_busy_messages),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
