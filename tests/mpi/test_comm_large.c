/* test_comm_large.c - counts beyond 2^31 bytes, where memory allows: a message of 2^31 + odd
 * bytes and a gather whose result is larger than that. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/group.h"
#include "tests/mpi/check.h"

static uint8_t byte_at(int rank, size_t i)
{
    return (uint8_t)(i >> 20) ^ (uint8_t)(i >> 3) ^ (uint8_t)(rank * 31);
}

/* Sparse: a byte each page, the last ones all. */
static int wrong_in(const uint8_t *data, size_t bytes, int rank)
{
    int wrong = 0;
    for (size_t i = 0; i < bytes; i += i + 9000 < bytes ? 4099 : 1)
        wrong += data[i] != byte_at(rank, i);
    return wrong;
}

static void fill(uint8_t *data, size_t bytes, int rank)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = byte_at(rank, i);
}

static void test_message(struct checks *c, struct group *g, uint8_t *data, size_t bytes)
{
    struct comm_op op;
    struct error err = {0};
    if (group_rank(g) == 0) {
        fill(data, bytes, 0);
        group_send(g, COMM_POINT, &op, data, (int64_t)bytes, DTYPE_U8, 1);
    } else {
        group_recv(g, COMM_POINT, &op, data, (int64_t)bytes, DTYPE_U8, 0);
    }
    CHECK(c, !comm_wait(&op, &err));
    CHECK(c, !wrong_in(data, bytes, 0));
}

static void test_gather(struct checks *c, struct group *g, uint8_t *data, size_t bytes)
{
    struct comm_op op;
    struct error err = {0};
    uint8_t *mine = data + (size_t)group_rank(g) * bytes;
    fill(mine, bytes, group_rank(g));
    group_all_gather(g, COMM_GATHER, &op, data, mine, (int64_t)bytes, DTYPE_U8);
    CHECK(c, !comm_wait(&op, &err));
    for (int r = 0; r < 2; r++)
        CHECK(c, !wrong_in(data + (size_t)r * bytes, bytes, r));
}

int main(void)
{
    struct checks c = {0};
    struct group *pair = NULL;
    struct error err = {0};
    size_t bytes = ((size_t)1 << 31) + 1009;
    if (checks_start(&c))
        return 1;
    int rank = world_rank(c.world), size = world_size(c.world);
    double free_bytes = (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    uint8_t *data =
        rank < 2 && size == 2 && free_bytes > 4.0 * (double)bytes ? malloc(bytes) : NULL;
    double able = data != NULL;
    world_all_reduce(c.world, &able, 1, WORLD_MIN);
    int rc = group_create(&pair, c.world, NULL, size, "pair", &err);
    CHECK(&c, !world_agree(c.world, rc, &err));
    if (able > 0) {
        test_message(&c, pair, data, bytes);
        test_gather(&c, pair, data, bytes / 2);
    } else if (rank == 0) {
        printf("# skipped: %s\n", size == 2 ? "needs 8 GiB of free memory" : "is for 2 ranks");
    }
    free(data);
    group_destroy(pair);
    return checks_finish(&c);
}
