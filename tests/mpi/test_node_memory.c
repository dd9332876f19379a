/* test_node_memory.c - collectives whose members read one another's memory, against serial
 * references: in all formats, where only some members can read, and where memory changes as soon
 * as an operation has ended. */
#include <stdlib.h>
#include <string.h>

#include "comm/mesh.h"
#include "comm/node_memory.h"
#include "comm/transport.h"
#include "tests/mpi/check.h"

enum { MANY = 300007, ROUNDS = 12, BLOCK_BYTES = 16 << 20 };

/* One element of staging slots of 512 KiB more and less, for 2 ranks in fp32 (131072); around the
 * 4 KiB from which members read. */
static const int64_t counts[] = {0, 1, 1023, 1024, 1025, 2049, 131071, 131073, MANY};
enum { COUNTS = sizeof counts / sizeof counts[0] };

/* Memory of this rank that others can read, and whether tests use it. */
struct test {
    struct checks c;
    struct group *group;
    char *shared;
    int uses_shared;
};

/* Small integers, so that sums are exact in all formats and orders. */
static float value(int rank, int64_t i, int round)
{
    return (float)((i * 7 + rank * 3 + round) % 11 - 5);
}

static void put(void *data, int64_t at, enum dtype dtype, float x)
{
    if (dtype == DTYPE_BF16)
        ((bf16 *)data)[at] = f32_to_bf16(x);
    else if (dtype == DTYPE_F16)
        ((f16 *)data)[at] = f32_to_f16(x);
    else
        ((float *)data)[at] = x;
}

static float get(const void *data, int64_t at, enum dtype dtype)
{
    return dtype == DTYPE_BF16  ? bf16_to_f32(((const bf16 *)data)[at])
           : dtype == DTYPE_F16 ? f16_to_f32(((const f16 *)data)[at])
                                : ((const float *)data)[at];
}

static void done(struct test *t, struct comm_op *op)
{
    struct error err = {0};
    CHECK(&t->c, !comm_wait(op, &err));
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
}

/* Memory that this rank gives to others from; from element 3 on, so that addresses are odd. */
static char *given(struct test *t, size_t bytes)
{
    static char *own;
    own = realloc(own, bytes + 64);
    return (t->uses_shared ? t->shared : own) + 12;
}

static void test_gather(struct test *t, int64_t n, enum dtype dtype, int in_place, int round)
{
    int size = group_size(t->group), rank = group_rank(t->group), wrong = 0;
    int64_t bytes = (int64_t)dtype_bytes(dtype);
    char *send = given(t, (size_t)(n * size * bytes)), *all = send;
    struct comm_op op;
    if (in_place)
        send += n * rank * bytes;
    else
        all = malloc((size_t)(n * size * bytes) + 8);
    for (int64_t i = 0; i < n; i++)
        put(send, i, dtype, value(rank, i, round));
    group_all_gather(t->group, COMM_GATHER, &op, all, send, n, dtype);
    done(t, &op);
    if (!in_place)
        memset(send, 0x7f, (size_t)(n * bytes)); /* NaN: nobody may read it any more */
    for (int m = 0; m < size; m++)
        for (int64_t i = 0; i < n; i++)
            wrong += get(all, m * n + i, dtype) != value(m, i, round);
    CHECK(&t->c, !wrong);
    CHECK(&t->c, op.sent_bytes == (size - 1) * n * bytes);
    if (!in_place)
        free(all);
}

static void test_reduce(struct test *t, int64_t n, enum dtype dtype, int accumulate, int round)
{
    int size = group_size(t->group), rank = group_rank(t->group), wrong = 0;
    int64_t bytes = (int64_t)dtype_bytes(dtype);
    char *send = given(t, (size_t)(n * size * bytes));
    float *recv = calloc((size_t)n + 1, sizeof *recv);
    struct comm_op op;
    for (int64_t i = 0; i < n * size; i++)
        put(send, i, dtype, value(rank, i, round));
    for (int64_t i = 0; i < n && accumulate; i++)
        recv[i] = (float)rank;
    group_reduce_scatter(t->group, COMM_REDUCE, &op, recv, DTYPE_F32, send, n, dtype, accumulate);
    done(t, &op);
    memset(send, 0x7f, (size_t)(n * size * bytes));
    for (int64_t i = 0; i < n; i++) {
        float sum = accumulate ? (float)rank : 0;
        for (int m = 0; m < size; m++)
            sum += value(m, rank * n + i, round);
        wrong += recv[i] != sum;
    }
    CHECK(&t->c, !wrong);
    CHECK(&t->c, op.sent_bytes == (size - 1) * n * bytes);
    free(recv);
}

static void test_all(struct test *t)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int i = 0; i < COUNTS; i++)
        for (int d = 0; d < 3; d++) {
            test_gather(t, counts[i], dtypes[d], 0, d);
            test_gather(t, counts[i], dtypes[d], 1, d);
            test_reduce(t, counts[i], dtypes[d], 0, d);
            test_reduce(t, counts[i], dtypes[d], 1, d);
        }
    for (int round = 0; round < ROUNDS; round++) {
        test_gather(t, MANY, DTYPE_F32, 0, round);
        test_reduce(t, MANY, DTYPE_F32, 0, round);
    }
}

/* Start a gather and a reduce-scatter at once, several times, and end them in another order. */
static void test_together(struct test *t)
{
    enum { OPS = 4, N = 70001 };
    int size = group_size(t->group), rank = group_rank(t->group), wrong = 0;
    float *all = malloc(sizeof *all * OPS * N * (size_t)size), *sum = calloc(OPS * N, sizeof *sum);
    float *send = (float *)given(t, sizeof *send * N * (size_t)size);
    struct comm_op gather[OPS], reduce[OPS];
    for (int64_t i = 0; i < N * size; i++)
        send[i] = value(rank, i, 1);
    for (int i = 0; i < OPS; i++) {
        group_all_gather(t->group, COMM_GATHER, &gather[i], all + (size_t)i * N * (size_t)size,
                         send + i, N - i, DTYPE_F32);
        group_reduce_scatter(t->group, COMM_REDUCE, &reduce[i], sum + i * N, DTYPE_F32, send, N,
                             DTYPE_F32, 0);
    }
    for (int i = OPS - 1; i >= 0; i--) {
        done(t, &reduce[i]);
        done(t, &gather[i]);
    }
    for (int i = 0; i < OPS; i++)
        for (int64_t k = 0; k < N - i; k++) {
            float expect = 0;
            for (int m = 0; m < size; m++) {
                wrong += all[((size_t)i * N + 0) * (size_t)size + (size_t)(m * (N - i) + k)] !=
                         value(m, i + k, 1);
                expect += value(m, rank * N + k, 1);
            }
            wrong += sum[i * N + k] != expect;
        }
    CHECK(&t->c, !wrong);
    free(all);
    free(sum);
}

/* Of private memory nothing is shared, on any rank, and all goes by messages. */
static void test_refused(struct test *t)
{
    int rank = world_rank(t->c.world);
    CHECK(&t->c, !node_memory_share(t->c.world, rank ? t->shared : (char *)&rank, t));
    CHECK(&t->c, !world_mapped_bytes(t->c.world));
    CHECK(&t->c, !node_memory_is_shared(t->c.world));
}

/* Ranks keep what they map, though its owner has freed it, and what is unmapped is not counted. */
static void test_mapped(struct test *t)
{
    struct world *world = t->c.world;
    size_t before = world_mapped_bytes(world), resident = mem_resident_bytes();
    char *more = node_memory_alloc(world, BLOCK_BYTES);
    CHECK(&t->c, more);
    memset(more, world_rank(world) + 1, BLOCK_BYTES);
    CHECK(&t->c, node_memory_share(world, more, t));
    size_t mapped = world_mapped_bytes(world) - before;
    CHECK(&t->c, mapped == (size_t)(world_local_size(world) - 1) * BLOCK_BYTES);
    CHECK(&t->c, mem_resident_bytes() - resident >= mapped + BLOCK_BYTES);
    world_barrier(world);
    CHECK(&t->c, node_memory_free(world, more));
    CHECK(&t->c, !node_memory_free(world, more) && !node_memory_free(world, NULL));
    CHECK(&t->c, world_mapped_bytes(world) == before);
    CHECK(&t->c, node_memory_address(world, t->shared, BLOCK_BYTES));
    CHECK(&t->c, !node_memory_address(world, t->shared, BLOCK_BYTES + 1));
    CHECK(&t->c, !node_memory_address(world, t->shared - 1, 1));
}

/* As if every two ranks were a node of their own: messages and reads in one operation. */
static void test_nodes_of_two(struct test *t)
{
    struct world *world = t->c.world;
    int node = world->node;
    char *again = node_memory_alloc(world, BLOCK_BYTES), *one = t->shared;
    node_memory_unshare(world, t->shared, t);
    world->node = world->rank / 2;
    CHECK(&t->c, again && node_memory_share(world, again, t));
    for (int rank = 0; rank < world->size; rank++)
        CHECK(&t->c, node_memory_is_near(world, rank) == (rank == (world->rank ^ 1)));
    t->shared = again;
    test_all(t);
    t->shared = one;
    world_barrier(world);
    CHECK(&t->c, node_memory_free(world, again));
    world->node = node;
}

/* Where no rank has a block nothing is shared, no notices are sent, and no place is taken. */
static void test_no_blocks(struct test *t)
{
    for (int i = 0; i < 2 * MESH_REGISTERED; i++)
        CHECK(&t->c, node_memory_share(t->c.world, NULL, t));
    CHECK(&t->c, !node_memory_is_shared(t->c.world));
}

/* Share a block of every rank but one, which reads the others'; these free them. */
static void share_without(struct test *t, int rank_without, int round)
{
    struct world *world = t->c.world;
    char *block = world_rank(world) == rank_without ? NULL : node_memory_alloc(world, BLOCK_BYTES);
    char *own = t->shared;
    CHECK(&t->c, node_memory_share(world, block, t));
    t->uses_shared = block != NULL;
    t->shared = block;
    for (int i = 0; i < COUNTS; i++)
        test_gather(t, counts[i], DTYPE_F32, 0, round);
    t->shared = own;
    t->uses_shared = 1;
    world_barrier(world);
    CHECK(&t->c, node_memory_free(world, block) == (block != NULL));
}

/* A rank without a block keeps what it maps until it ends its shares.  A block that its owner makes
 * later has the addresses of one that was freed: what is read are the new one's bytes. */
static void test_a_rank_without(struct test *t)
{
    struct world *world = t->c.world;
    size_t before = world_mapped_bytes(world);
    int without = world_size(world) - 1, is_without = world_rank(world) == without;
    size_t all = (size_t)without * BLOCK_BYTES;
    for (int round = 0; round < 3; round++)
        share_without(t, without, round);
    CHECK(&t->c, world_mapped_bytes(world) >= before + (is_without ? all : 0));
    node_memory_unshare(world, NULL, &t->group); /* another's: nothing */
    CHECK(&t->c, world_mapped_bytes(world) >= before + (is_without ? all : 0));
    for (int round = 0; round < MESH_REGISTERED; round++) {
        node_memory_unshare(world, NULL, t);
        CHECK(&t->c, world_mapped_bytes(world) == before);
        share_without(t, without, round);
    }
    node_memory_unshare(world, NULL, t);
    CHECK(&t->c, world_mapped_bytes(world) == before);
}

static void run(struct test *t)
{
    int rank = world_rank(t->c.world);
    test_no_blocks(t);
    test_refused(t);
    test_all(t);
    int is_shared = node_memory_share(t->c.world, t->shared, t);
    CHECK(&t->c, is_shared);
    for (int some = 0; some < 3; some++) { /* all ranks, the odd ones, all but the odd ones */
        t->uses_shared = !some || rank % 2 == some - 1;
        test_all(t);
        test_together(t);
    }
    t->uses_shared = 1;
    test_mapped(t);
    test_a_rank_without(t);
    test_nodes_of_two(t);
    t->uses_shared = 0;
    test_all(t);
}

/* Returns why nothing can be tested, or NULL. */
static const char *why_not(const struct test *t)
{
    if (world_size(t->c.world) < 2)
        return "one rank has no other whose memory it could read";
    return t->shared ? NULL : "no huge pages of shared memory here (MADV_COLLAPSE, Linux 6.1)";
}

int main(void)
{
    struct test t = {0};
    struct error err = {0};
    if (checks_start(&t.c))
        return 1;
    CHECK(&t.c, !group_create(&t.group, t.c.world, NULL, world_size(t.c.world), "all", &err));
    t.shared = node_memory_alloc(t.c.world, BLOCK_BYTES);
    if (!why_not(&t))
        run(&t);
    else if (!world_rank(t.c.world))
        printf("# skipped: %s\n", why_not(&t));
    group_destroy(t.group);
    world_barrier(t.c.world);
    node_memory_free(t.c.world, t.shared);
    return checks_finish(&t.c);
}
