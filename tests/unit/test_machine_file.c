/* test_machine_file.c - machines by name and in files: those that are known are plausible, what is
 * written reads back to the same, and mistakes are named with their line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/array.h"
#include "simulate/machine_fields.h"
#include "simulate/machine_file.h"
#include "simulate/machine_reader.h"
#include "simulate/machine_text.h"

static struct machine_list known(void)
{
    struct machine_list list = {0};
    struct error err = {0};
    if (machine_list_read(&list, NULL, "machines.yaml", machine_text, strlen(machine_text), &err))
        fail_msg("%s", err.text);
    return list;
}

static void test_known(void **state)
{
    struct machine_list list = known();
    char names[512];
    machine_names(names, sizeof names, ",");
    for (int i = 0; i < list.count; i++) {
        const struct machine *m = &list.machine[i];
        struct machine again;
        const struct machine_peak *peak = m->peak;
        assert_true(strstr(names, m->name) && m->gpu[0] && m->source[0]);
        assert_int_equal(machine_find(&again, m->name, NULL), 0);
        assert_string_equal(again.name, m->name);
        machine_free(&again);
        assert_int_equal(machine_of_gpu(&again, m->gpu), 0);
        assert_string_equal(again.name, m->name);
        machine_free(&again);
        assert_true(m->memory_bytes > (size_t)20 << 30 && m->memory_bytes < (size_t)256 << 30);
        assert_true(peak[DTYPE_F16].flops_per_s >= 2 * peak[DTYPE_F32].flops_per_s);
        assert_true(peak[DTYPE_BF16].flops_per_s == peak[DTYPE_F16].flops_per_s || !m->runs);
        /* a tensor core wants some hundred operations per byte */
        assert_true(peak[DTYPE_F16].flops_per_s / m->memory_bytes_per_s > 100 &&
                    peak[DTYPE_F16].flops_per_s / m->memory_bytes_per_s < 500);
        /* a network is slower than the links within a node, and those are than memory */
        assert_true(m->network.bytes_per_s / m->per_node < m->node.bytes_per_s);
        assert_true(m->node.bytes_per_s < m->memory_bytes_per_s);
        assert_true(m->network.latency_s > m->node.latency_s);
        assert_true(m->units >= 72 && m->units <= 148 && m->tile_m > 0 && m->half_k > 0);
    }
    assert_int_equal(list.count, 12);
    machine_list_free(&list);
}

static void test_by_name(void **state)
{
    struct machine machine;
    struct error err = {0};
    assert_int_equal(machine_find(&machine, "H200", &err), 0);
    assert_string_equal(machine.gpu, "NVIDIA H200");
    assert_int_equal(machine.memory_bytes, (size_t)143052 << 20);
    assert_true(machine.network.bytes_per_s == 8 * 400e9 / 8 && machine.has_nvls);
    machine_free(&machine);
    assert_int_equal(machine_find(&machine, "h20", &err), -1);
    assert_non_null(strstr(err.text, "\"h20\"; did you mean h200? known are a100-80, "));
    assert_int_equal(machine_of_gpu(&machine, "NVIDIA H200 NVL"), -1);
    assert_int_equal(machine_of_gpu(&machine, ""), -1);
    assert_int_equal(machine_find(&machine, "titan-rtx", &err), 0);
    assert_true(machine_peak(&machine, DTYPE_BF16) == 0 && !machine.runs);
    machine_free(&machine);
}

static void test_quantities(void **state)
{
    static const struct {
        enum machine_quantity quantity;
        const char *text;
        double value; /* 0: refused */
    } cases[] = {
        {.quantity = QUANTITY_BYTES, .text = "2 GiB", .value = 0x1p31},
        {.quantity = QUANTITY_BYTES, .text = "2GB", .value = 2e9},
        {.quantity = QUANTITY_BYTES, .text = "4096", .value = 4096},
        {.quantity = QUANTITY_BYTES_PER_S, .text = "400 Gb/s", .value = 50e9},
        {.quantity = QUANTITY_BYTES_PER_S, .text = "3.35 TB/s", .value = 3.35e12},
        {.quantity = QUANTITY_FLOPS_PER_S, .text = "312 Tflop/s", .value = 312e12},
        {.quantity = QUANTITY_SECONDS, .text = "2 us", .value = 2e-6},
        {.quantity = QUANTITY_BYTES, .text = "2 GB/s"},
        {.quantity = QUANTITY_BYTES, .text = "two"},
        {.quantity = QUANTITY_BYTES, .text = ""},
        {.quantity = QUANTITY_SECONDS, .text = "nan"},
        {.quantity = QUANTITY_SECONDS, .text = "inf s"},
        {.quantity = QUANTITY_NUMBER, .text = "1e999"},
        {.quantity = QUANTITY_NUMBER, .text = "1 s"},
    };
    static const double values[] = {
        1,     0.1,     1e-6 / 3,   123456789, 2.039e12, 80998. * 0x1p20,
        1e-17, 1.0 / 3, 0x1p53 - 1, 989.5e12,  3e-6,     0};
    char text[64];
    double value;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int rc = machine_quantity_read(cases[i].quantity, cases[i].text, &value);
        assert_int_equal(rc, cases[i].value == 0 ? -1 : 0);
        if (!rc)
            assert_true(value == cases[i].value);
    }
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        for (int quantity = QUANTITY_NUMBER; quantity <= QUANTITY_SECONDS; quantity++) {
            machine_quantity_text(quantity, values[i], text, sizeof text);
            assert_int_equal(machine_quantity_read(quantity, text, &value), 0);
            assert_true(value == values[i]);
        }
    assert_string_equal(machine_quantity_text(QUANTITY_BYTES_PER_S, 50e9, text, sizeof text),
                        "50 GB/s");
    assert_string_equal(machine_quantity_text(QUANTITY_SECONDS, 3e-6, text, sizeof text), "3 us");
}

/* A file of this process's own. */
static char *path_of(char *path, size_t size)
{
    snprintf(path, size, "machine-%d.yaml", (int)getpid());
    return path;
}

static void write_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static void same_machine(const struct machine *a, const struct machine *b)
{
    char of_a[MACHINE_TEXT], of_b[MACHINE_TEXT];
    assert_string_equal(a->name, b->name);
    for (int i = 0; i < machine_field_count; i++) {
        const struct machine_field *field = &machine_fields[i];
        machine_field_text(a, field, of_a, sizeof of_a);
        if (strcmp(of_a, machine_field_text(b, field, of_b, sizeof of_b)))
            fail_msg("%s is %s and %s", field->name, of_a, of_b);
        if (field->type != MACHINE_FIELD_TEXT)
            assert_memory_equal((const char *)a + field->offset, (const char *)b + field->offset,
                                field->bytes);
    }
    assert_int_equal(a->products, b->products);
    assert_int_equal(a->ops, b->ops);
    assert_int_equal(a->transfers, b->transfers);
    for (int i = 0; i < a->products; i++) {
        const struct machine_product *x = &a->product[i], *y = &b->product[i];
        assert_true(x->dtype == y->dtype && x->kind == y->kind && x->m == y->m && x->n == y->n &&
                    x->k == y->k && x->flops_per_s == y->flops_per_s);
    }
    for (int i = 0; i < a->ops; i++) {
        const struct machine_op *x = &a->op[i], *y = &b->op[i];
        assert_true(!strcmp(x->name, y->name) && x->dtype == y->dtype && x->size == y->size &&
                    x->rate == y->rate);
    }
    for (int i = 0; i < a->transfers; i++) {
        const struct machine_transfer *x = &a->transfer[i], *y = &b->transfer[i];
        assert_true(x->kind == y->kind && x->ranks == y->ranks && x->nodes == y->nodes &&
                    x->bytes == y->bytes && x->seconds == y->seconds);
    }
}

/* Values with all their bits in every field, and rows in every table. */
static struct machine odd_machine(void)
{
    struct machine m = {.name = "odd-1.2_3",
                        .gpu = "a \"GPU\" \\ of: somebody #1",
                        .source = "measured; 100 %, - and {more}"};
    for (int i = 0; i < machine_field_count; i++) {
        const struct machine_field *field = &machine_fields[i];
        void *at = (char *)&m + field->offset;
        double share = (i + 1.0) / (machine_field_count + 1);
        double between = field->least + (field->most / 1e3 - field->least) * share;
        if (field->type == MACHINE_FIELD_REAL)
            *(double *)at = field->most > 1 ? between : share;
        else if (field->type == MACHINE_FIELD_COUNT)
            *(int *)at = i + 1;
        else if (field->type == MACHINE_FIELD_BYTES)
            *(size_t *)at = 123456789012345;
        else if (field->type == MACHINE_FIELD_SWITCH)
            *(int *)at = i & 1;
    }
    m.product = array_make(12, sizeof *m.product);
    m.op = array_make(3, sizeof *m.op);
    m.transfer = array_make(MACHINE_TRANSFERS, sizeof *m.transfer);
    for (int i = 0; i < 12; i++)
        m.product[m.products++] = (struct machine_product){.dtype = i / 4 ? DTYPE_BF16 : DTYPE_F32,
                                                           .kind = i / 4,
                                                           .m = 64 << (i & 1),
                                                           .n = 1000003,
                                                           .k = 3 << (i & 2),
                                                           .flops_per_s = 1e15 / (i + 3)};
    for (int i = 0; i < 3; i++)
        m.op[m.ops++] = (struct machine_op){
            .name = "UPDATE", .dtype = DTYPE_F16, .size = i + 1. / 3, .rate = 1e12 / 7};
    for (int i = 0; i < MACHINE_TRANSFERS; i++)
        m.transfer[m.transfers++] = (struct machine_transfer){
            .kind = i, .ranks = 2 + i, .nodes = 1 + i, .bytes = 1e9 / 3, .seconds = 1e-5 / 3};
    return m;
}

static void test_round_trip(void **state)
{
    char path[64], text[80];
    struct machine_list list = known();
    struct machine machine, odd = odd_machine();
    struct error err = {0};
    path_of(path, sizeof path);
    for (int i = -1; i < list.count; i++) {
        const struct machine *written = i < 0 ? &odd : &list.machine[i];
        if (machine_write(written, path, "measured today:\n\nwith care", &err) ||
            machine_read(&machine, path, NULL, &err))
            fail_msg("%s", err.text);
        same_machine(written, &machine);
        machine_free(&machine);
    }
    machine_write(&odd, path, NULL, NULL);
    snprintf(text, sizeof text, "%s:ODD-1.2_3", path);
    assert_int_equal(machine_open(&machine, text, &err), 0);
    same_machine(&odd, &machine);
    machine_free(&machine);
    unlink(path);
    assert_int_equal(machine_write(&odd, "no/such/folder/file", NULL, &err), -1);
    machine_free(&odd);
    machine_list_free(&list);
}

static void test_like(void **state)
{
    char path[64], text[80];
    struct machine mine, h100;
    struct error err = {0};
    write_file(path_of(path, sizeof path),
               "mine:\n  like: H100\n  network: {ports: 1, bandwidth: 200 Gb/s}\n"
               "  disk: {cached_read: 8 GB/s, write: 2 GB/s}\n  host: {memory: 1 TiB}\n"
               "  ops: [[swiglu, bf16, 10, 20]]\n"
               "other:\n  like: mine\n  memory: 1 GiB\n  disk: {cached_write: 9 GB/s}\n");
    snprintf(text, sizeof text, "%s:other", path);
    machine_find(&h100, "h100", NULL);
    assert_int_equal(machine_open(&mine, text, &err), 0);
    assert_true(mine.network.bytes_per_s == 25e9 && mine.network_ports == 1);
    assert_true(mine.network.latency_s == h100.network.latency_s);
    assert_true(mine.memory_bytes == 1 << 30 && mine.ops == 0);
    assert_true(mine.disk_cached_read_bytes_per_s == 8e9 &&
                mine.disk_cached_write_bytes_per_s == 9e9);
    assert_true(mine.disk_read_bytes_per_s == h100.disk_read_bytes_per_s &&
                mine.disk_write_bytes_per_s == 2e9);
    assert_true(mine.host_memory_bytes == (size_t)1 << 40 && mine.disk_unwritten == 0.15);
    assert_true(h100.disk_cached_read_bytes_per_s == 0 && h100.host_memory_bytes == 0 &&
                h100.beside_file == 1);
    assert_string_equal(mine.name, "other");
    assert_string_equal(mine.gpu, h100.gpu);
    machine_free(&mine);
    machine_free(&h100);
    assert_int_equal(machine_open(&mine, path, &err), -1);
    assert_non_null(strstr(err.text, "has several machines (mine, other): name one as "));
    unlink(path);
}

static void test_mistakes(void **state)
{
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {.text = "", .wanted = "FILE: there is no machine in it"},
        {.text = "- a\n", .wanted = "FILE:1: expected \"key: value\""},
        {.text = "m: 3\n", .wanted = "FILE:1: m: a map of what the machine has is wanted"},
        {.text = "m:\n  like: h101\n",
         .wanted = "FILE:2: m: like: there is no machine \"h101\" before this one"},
        {.text = "m:\n  like: h100\n  bandwith: 1 TB/s\n",
         .wanted = "FILE:3: m: unknown key \"bandwith\", did you mean \"bandwidth\"?"},
        {.text = "m:\n  like: h100\n  node: {latencies: 1 us}\n",
         .wanted = "FILE:3: m: unknown key \"node.latencies\", did you mean \"node.latency\"?"},
        {.text = "m:\n  like: h100\n\n  bandwidth: 1 TB\n",
         .wanted = "FILE:4: m: bandwidth: \"1 TB\" is not bytes per second, such as 3.35 TB/s"},
        {.text = "m:\n  like: h100\n  node:\n    efficiency: 1.5\n",
         .wanted = "FILE:4: m: node.efficiency: 1.5 is not in 0.001 to 1"},
        {.text = "m:\n  like: h100\n  per_node: 1.5\n",
         .wanted = "FILE:3: m: per_node: 1.5 is not a whole number"},
        {.text = "m:\n  like: h100\n  runs: yes\n",
         .wanted = "FILE:3: m: runs: \"yes\" is not true or false"},
        {.text = "m:\n  like: h100\n  disk: {cached_read: 12 GB}\n",
         .wanted = "FILE:3: m: disk.cached_read: \"12 GB\" is not bytes per second"},
        {.text = "m:\n  like: h100\n  disk: {cached_write: -1}\n",
         .wanted = "FILE:3: m: disk.cached_write: -1 is not in 0 to 1e+06 TB/s"},
        {.text = "m:\n  like: h100\n  disk: {unwritten: 1.5}\n",
         .wanted = "FILE:3: m: disk.unwritten: 1.5 is not in 0 to 1"},
        {.text = "m:\n  like: h100\n  disk: {cached: 1}\n",
         .wanted = "FILE:3: m: unknown key \"disk.cached\""},
        {.text = "m:\n  like: h100\n  host: {memory: lots}\n",
         .wanted = "FILE:3: m: host.memory: \"lots\" is not a number of bytes"},
        {.text = "m:\n  like: h100\n  beside: {file: 0}\n",
         .wanted = "FILE:3: m: beside.file: 0 is not in 0.001 to 1"},
        {.text = "m:\n  like: h100\n  node: 3\n",
         .wanted = "FILE:3: m: node: a map is wanted, as {...}"},
        {.text = "m:\n  like: h100\n  launch: [1]\n",
         .wanted = "FILE:3: m: launch: one value is wanted"},
        {.text = "m:\n  like: h100\n  launch: 1\n  launch: 2\n",
         .wanted = "FILE:4: m: launch is given twice"},
        {.text = "m: {like: h100}\nn:\n  like: m\n  like: h100\n",
         .wanted = "FILE:4: n: like is given twice"},
        {.text = "m:\n  like: h100\nM:\n  like: h100\n",
         .wanted = "FILE:4: M: a second machine of that name"},
        {.text = "a b:\n  like: h100\n", .wanted = "FILE:2: a b: \"a b\" is not a name"},
        {.text = "m:\n  memory: 1 GiB\n", .wanted = "FILE:2: m: no per_node (like: NAME takes"},
        {.text = "m:\n  like: h100\n  peak: {fp32: 0, bf16: 0, fp16: 0, fp8: 0}\n",
         .wanted = "FILE:2: m: no peak of any format"},
        {.text = "m:\n  like: h100\n  ops:\n    - [rope, bf16, 1, 1]\n    - [rope, bf16, 1]\n",
         .wanted = "FILE:5: m: ops: a row is [NAME, FORMAT, size, rate]"},
        {.text = "m:\n  like: h100\n  ops:\n    - [rope, bf17, 1, 1]\n",
         .wanted = "FILE:4: m: there is no format \"bf17\""},
        {.text = "m:\n  like: h100\n  ops:\n    - [rope, bf16, 0, 1]\n",
         .wanted = "FILE:4: m: ops: \"0\" is not a number above 0"},
        {.text = "m:\n  like: h100\n  ops:\n    - [rope, bf16, 1, 1]\n    - [rope, bf16, 1, 2]\n",
         .wanted = "m: ops: rope bf16 of 1 is there twice"},
        {.text = "m:\n  like: h100\n  products:\n    - [bf16, forward, 1, 1, 1, 1]\n"
                 "    - [bf16, forward, 2, 2, 1, 1]\n",
         .wanted = "m: products: bf16 forward has 2 rows, but 2 x 2 x 1 sizes"},
        {.text = "m:\n  like: h100\n  products:\n    - [bf16, forward, 1, 1.5, 1, 1]\n",
         .wanted = "FILE:4: m: products: 1.5 is not a whole number"},
        {.text = "m:\n  like: h100\n  transfers: [[reduce, 2, 3, 1, 1]]\n",
         .wanted = "FILE:3: m: 2 ranks on 3 nodes"},
        {.text = "m:\n  like: h100\n  transfers: [[scatter, 2, 1, 1, 1]]\n",
         .wanted = "FILE:3: m: there is no kind of transfer \"scatter\""},
        {.text = "m: &a\n  like: h100\nn: *a\n", .wanted = "FILE:3: aliases (*a)"},
        {.text = "m:\n  like: [h100\n", .wanted = "FILE:3:1: did not find"},
    };
    char path[64], wanted[400];
    path_of(path, sizeof path);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct machine machine;
        struct error err = {0};
        const char *rest = cases[i].wanted;
        write_file(path, cases[i].text);
        assert_int_equal(machine_read(&machine, path, NULL, &err), -1);
        if (!strncmp(rest, "FILE", 4))
            snprintf(wanted, sizeof wanted, "%s%s", path, rest + 4);
        else
            snprintf(wanted, sizeof wanted, "%s", rest);
        if (!strstr(err.text, wanted))
            fail_msg("\"%s\" is not \"%s\"", err.text, wanted);
    }
    struct machine machine;
    struct error err = {0};
    write_file(path, "m:\n  like: h100\n");
    assert_int_equal(machine_read(&machine, path, "n", &err), -1);
    assert_non_null(strstr(err.text, "there is no machine \"n\"; it has m"));
    unlink(path);
    assert_int_equal(machine_open(&machine, path, &err), -1);
    assert_non_null(strstr(err.text, "known are a100-80"));
    assert_int_equal(machine_open(&machine, "no-such-file:m", &err), -1);
    assert_non_null(strstr(err.text, "no-such-file: No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),      cmocka_unit_test(test_by_name),
        cmocka_unit_test(test_quantities), cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_like),       cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests_name("machine files", tests, NULL, NULL);
}
