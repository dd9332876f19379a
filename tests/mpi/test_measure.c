/* test_measure.c - products that trireme doctor --measure times read numbers that no product wrote:
 * products of products would soon be so small that some processors are many times slower. */
#include <stdlib.h>
#include <string.h>

#include "doctor/measure_work.h"
#include "tests/mpi/check.h"

enum { BLOCK = 3 << 20, SIDE = 128 };

/* All of the block that products do not write is as it was filled. */
static void check_sources(struct checks *c, struct measure *m, enum dtype last)
{
    struct error err = {0};
    char *filled = malloc(m->block_bytes);
    CHECK(c, !measure_fill(m, filled, m->block_bytes, last, &err));
    CHECK(c, !memcmp(m->block, filled, m->block_bytes / 3 * 2));
    CHECK(c, memcmp(m->block, filled, m->block_bytes));
    free(filled);
}

static void check_products(struct checks *c, struct measure *m)
{
    struct error err = {0};
    enum dtype last = DTYPE_COUNT;
    for (const enum dtype *f = measure_formats(m); *f != DTYPE_COUNT; f++)
        last = *f;
    CHECK(c, !measure_products(m, &err));
    CHECK(c, m->machine->products > 0 && m->machine->peak[last].flops_per_s > 0);
    check_sources(c, m, last);
}

/* What a product reads, and what it writes, come from memory that the calls before did not have,
 * and the one never meets the other. */
static void check_cold(struct checks *c, struct measure *m)
{
    const char *source = NULL, *target = NULL;
    for (int i = 0; i < 1000; i++) {
        const size_t read = (size_t)(rand() % (BLOCK / 8)) + 1;
        const size_t written = (size_t)(rand() % (BLOCK / 8)) + 1;
        const char *from = measure_cold_source(m, read), *to = measure_cold_target(m, written);
        CHECK(c, from >= m->block && from + read <= to);
        CHECK(c, to + written <= m->block + m->block_bytes);
        CHECK(c, from != source && to != target);
        source = from;
        target = to;
    }
}

int main(void)
{
    const struct measure_options options = {.quick = 1};
    const struct measure_limits limits = {.products_s = 0.5,
                                          .work_s = 0.001,
                                          .least = 2,
                                          .most = 3,
                                          .block_bytes = BLOCK,
                                          .side = SIDE};
    const struct device_request request = {.kind = DEVICE_CPU, .threads = 1};
    struct checks c = {0};
    struct machine machine = {0};
    struct error err = {0};
    if (checks_start(&c))
        return 1;
    struct measure m = {.options = &options,
                        .limits = &limits,
                        .world = c.world,
                        .mem = &c.mem,
                        .deadline_ns = INT64_MAX,
                        .machine = &machine};
    CHECK(&c, !device_open(&m.device, &request, &err));
    if (m.device) {
        check_products(&c, &m);
        check_cold(&c, &m);
        device_free(m.device, m.mem, POOL_WORKSPACE, m.block_bytes, m.block);
        device_close(m.device);
    }
    free(m.op);
    machine_free(&machine);
    return checks_finish(&c);
}
