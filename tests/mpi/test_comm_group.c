/* test_comm_group.c - collectives against serial references, in every dtype, at odd counts,
 * around the sizes at which pieces begin; in place; beside one another. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/group.h"
#include "tests/mpi/check.h"

/* One element of staging slots of 512 KiB more and less, for 2 ranks in fp32 (131072). */
static const int64_t counts[] = {0, 1, 3, 7, 1009, 4096, 131071, 131072, 131073, 300007};
enum { COUNTS = sizeof counts / sizeof counts[0] };

/* Values whose sums depend on the order: magnitudes from 2^-12 to 2^12, both signs.  Made bit by
 * bit, as most of the time of this test is spent here: sign, exponent of fp32, 16 bits of the
 * mantissa. */
static inline float value(int rank, int64_t i)
{
    uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)(rank + 1) * 40503u;
    float out;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    x = (x & 0x80000000u) | (127 - 12 + (x >> 16 & 31) % 25) << 23 | (x & 0xffff) << 7;
    memcpy(&out, &x, sizeof out);
    return out;
}

static void put(void *data, int64_t at, enum dtype dtype, float x)
{
    if (dtype == DTYPE_BF16)
        ((bf16 *)data)[at] = f32_to_bf16(x);
    else if (dtype == DTYPE_F16)
        ((f16 *)data)[at] = f32_to_f16(x);
    else if (dtype == DTYPE_F64)
        ((double *)data)[at] = x;
    else
        ((float *)data)[at] = x;
}

static void fill(void *data, int64_t elems, enum dtype dtype, int rank)
{
    for (int64_t i = 0; i < elems; i++)
        put(data, i, dtype, value(rank, i));
}

static float rounded(float x, enum dtype dtype)
{
    return dtype == DTYPE_BF16  ? bf16_to_f32(f32_to_bf16(x))
           : dtype == DTYPE_F16 ? f16_to_f32(f32_to_f16(x))
                                : x;
}

static float as_sent(int rank, int64_t i, enum dtype dtype)
{
    return rounded(value(rank, i), dtype);
}

/* The documented sum: rank order, in fp32. */
static float sum_at(int ranks, int64_t i, enum dtype dtype)
{
    float sum = as_sent(0, i, dtype);
    for (int r = 1; r < ranks; r++)
        sum += as_sent(r, i, dtype);
    return sum;
}

static double sum64_at(int ranks, int64_t i)
{
    double sum = value(0, i);
    for (int r = 1; r < ranks; r++)
        sum += value(r, i);
    return sum;
}

static void *room(int64_t elems, enum dtype dtype)
{
    void *p = malloc((size_t)elems * dtype_bytes(dtype) + 8);
    if (!p)
        abort();
    memset(p, 0x5a, (size_t)elems * dtype_bytes(dtype) + 8);
    return p;
}

static void done(struct checks *c, struct comm_op *op)
{
    struct error err = {0};
    CHECK(c, !comm_wait(op, &err));
    CHECK(c, op->submit_ns <= op->start_ns && op->start_ns <= op->end_ns);
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
}

static void test_all_gather(struct checks *c, struct group *g, int64_t n, enum dtype dtype,
                            int in_place)
{
    int size = group_size(g), rank = group_rank(g), wrong = 0;
    size_t bytes = dtype_bytes(dtype);
    char *all = room(n * size, dtype), *expect = room(n * size, dtype), *mine = room(n, dtype);
    char *send = in_place ? all + (size_t)(n * rank) * bytes : mine;
    struct comm_op op;
    for (int r = 0; r < size; r++)
        fill(expect + (size_t)(n * r) * bytes, n, dtype, r);
    fill(send, n, dtype, rank);
    group_all_gather(g, COMM_GATHER, &op, all, send, n, dtype);
    done(c, &op);
    wrong = memcmp(all, expect, (size_t)(n * size) * bytes + 8);
    CHECK(c, !wrong);
    CHECK(c, op.sent_bytes == (size - 1) * n * (int64_t)bytes);
    free(all);
    free(expect);
    free(mine);
}

enum how { FRESH, IN_PLACE, ACCUMULATE };

static void test_reduce_scatter(struct checks *c, struct group *g, int64_t n, enum dtype dtype,
                                enum how how)
{
    int size = group_size(g), rank = group_rank(g), wrong = 0;
    char *send = room(n * size, dtype);
    float *own = room(n, DTYPE_F32), *recv = how == IN_PLACE ? (float *)send + rank * n : own;
    struct comm_op op;
    fill(send, n * size, dtype, rank);
    if (how == ACCUMULATE)
        fill(recv, n, DTYPE_F32, 100 + rank);
    group_reduce_scatter(g, COMM_REDUCE, &op, recv, DTYPE_F32, send, n, dtype, how == ACCUMULATE);
    done(c, &op);
    for (int64_t i = 0; i < n; i++) {
        float expect = sum_at(size, rank * n + i, dtype);
        if (how == ACCUMULATE)
            expect = value(100 + rank, i) + expect;
        wrong += memcmp(&recv[i], &expect, sizeof expect) != 0;
    }
    for (int64_t i = 0; i < n * size; i++) /* the rest of send is as it was */
        if (how != IN_PLACE || i / n != rank) {
            float x = 0;
            put(&x, 0, dtype, value(rank, i));
            size_t bytes = dtype_bytes(dtype);
            wrong += memcmp((char *)send + (size_t)i * bytes, &x, bytes) != 0;
        }
    CHECK(c, !wrong);
    CHECK(c, op.sent_bytes == (size - 1) * n * (int64_t)dtype_bytes(dtype));
    free(send);
    free(own);
}

static void test_all_reduce(struct checks *c, struct group *g, int64_t n, enum dtype dtype)
{
    int size = group_size(g), wrong = 0;
    void *data = room(n, dtype), *expect = room(n, dtype);
    struct comm_op op;
    fill(data, n, dtype, group_rank(g));
    for (int64_t i = 0; i < n; i++)
        if (dtype == DTYPE_F64)
            ((double *)expect)[i] = sum64_at(size, i);
        else
            put(expect, i, dtype, sum_at(size, i, dtype));
    group_all_reduce(g, COMM_REDUCE, &op, data, n, dtype, GROUP_SUM);
    done(c, &op);
    wrong = memcmp(data, expect, (size_t)n * dtype_bytes(dtype) + 8);
    CHECK(c, !wrong);
    free(data);
    free(expect);
}

static void test_rounded(struct checks *c, struct group *g, int64_t n, enum dtype dtype)
{
    int size = group_size(g), rank = group_rank(g);
    char *send = room(n * size, dtype), *recv = room(n, dtype), *expect = room(n, dtype);
    struct comm_op op;
    fill(send, n * size, dtype, rank);
    for (int64_t i = 0; i < n; i++)
        put(expect, i, dtype, sum_at(size, rank * n + i, dtype));
    group_reduce_scatter(g, COMM_REDUCE, &op, recv, dtype, send, n, dtype, 0);
    done(c, &op);
    CHECK(c, !memcmp(recv, expect, (size_t)n * dtype_bytes(dtype) + 8));
    CHECK(c, op.sent_bytes == (size - 1) * n * (int64_t)dtype_bytes(dtype));
    free(send);
    free(recv);
    free(expect);
}

/* Of element i the maximum over members; where i % 11 is a member's number, that has a NaN there,
 * and elsewhere some are equal. */
static float tried(int rank, int64_t i)
{
    return i % 11 == rank ? NAN : i % 5 ? value(rank, i) : -7;
}

static float max_at(int ranks, int64_t i, enum dtype dtype)
{
    float max = -INFINITY;
    for (int r = 0; r < ranks; r++)
        max = fmaxf(max, rounded(tried(r, i), dtype));
    return i % 11 < ranks ? NAN : max;
}

static float get(const void *data, int64_t at, enum dtype dtype)
{
    return dtype == DTYPE_BF16  ? bf16_to_f32(((const bf16 *)data)[at])
           : dtype == DTYPE_F16 ? f16_to_f32(((const f16 *)data)[at])
           : dtype == DTYPE_F64 ? (float)((const double *)data)[at]
                                : ((const float *)data)[at];
}

static void test_maximum(struct checks *c, struct group *g, int64_t n, enum dtype dtype)
{
    int size = group_size(g), wrong = 0;
    void *data = room(n, dtype);
    struct comm_op op;
    for (int64_t i = 0; i < n; i++)
        put(data, i, dtype, tried(group_rank(g), i));
    group_all_reduce(g, COMM_REDUCE, &op, data, n, dtype, GROUP_MAX);
    done(c, &op);
    for (int64_t i = 0; i < n; i++) {
        float got = get(data, i, dtype), expect = max_at(size, i, dtype);
        wrong += isnan(expect) ? !isnan(got) : got != expect;
    }
    CHECK(c, !wrong);
    CHECK(c, op.sent_bytes == group_all_reduce_sent(size, group_rank(g), n, dtype));
    free(data);
}

static void test_broadcast(struct checks *c, int64_t n, int root)
{
    float *data = room(n, DTYPE_F32);
    int wrong = 0;
    if (world_rank(c->world) == root)
        fill(data, n, DTYPE_F32, 50 + root);
    world_broadcast(c->world, data, (size_t)n * sizeof *data, root);
    for (int64_t i = 0; i < n; i++)
        wrong += data[i] != value(50 + root, i);
    CHECK(c, !wrong);
    free(data);
}

/* Elements member `from` sends to member `to`: none, a few or many, as asymmetric as can be. */
static int64_t part_elems(int from, int to, int64_t n)
{
    return (from + 2 * to) % 3 == 0 ? 0 : n / (1 + (2 * from + to) % 4);
}

/* Parts lie in recv in the order of the members, in send in reverse order; gaps of 1 between them.
 */
static void make_parts(struct comm_part *part, int size, int rank, int64_t n)
{
    int64_t send = 1, recv = 1;
    for (int m = 0; m < size; m++) {
        int back = size - 1 - m;
        part[m].recv_from = recv;
        part[m].recv_elems = part_elems(m, rank, n);
        recv += part[m].recv_elems + 1;
        part[back].send_from = send;
        part[back].send_elems = part_elems(rank, back, n);
        send += part[back].send_elems + 1;
    }
}

static void test_all_to_all(struct checks *c, struct group *g, int64_t n, enum dtype dtype)
{
    enum { MEMBERS = 8 };
    int size = group_size(g), rank = group_rank(g);
    int64_t space = size * (n + 1) + 1, bytes = (int64_t)dtype_bytes(dtype), sent = 0;
    char *send = room(space, dtype), *recv = room(space, dtype), *expect = room(space, dtype);
    struct comm_part part[MEMBERS], theirs[MEMBERS];
    struct comm_op op;
    fill(send, space, dtype, rank);
    make_parts(part, size, rank, n);
    for (int m = 0; m < size; m++) {
        make_parts(theirs, size, m, n);
        for (int64_t i = 0; i < part[m].recv_elems; i++)
            put(expect, part[m].recv_from + i, dtype, value(m, theirs[rank].send_from + i));
        sent += m == rank ? 0 : part[m].send_elems * bytes;
    }
    group_all_to_all(g, COMM_REDUCE, &op, recv, send, part, dtype);
    done(c, &op);
    CHECK(c, !memcmp(recv, expect, (size_t)(space * bytes) + 8)); /* nothing between parts */
    CHECK(c, op.sent_bytes == sent);
    free(send);
    free(recv);
    free(expect);
}

/* Everybody sends to the next first and receives from the one before after: messages too
 * large to be buffered must not wait for one another. */
static void test_ring(struct checks *c, struct group *g, int64_t n)
{
    int size = group_size(g), rank = group_rank(g), wrong = 0;
    float *out = room(n, DTYPE_F32), *in = room(n, DTYPE_F32);
    struct comm_op ops[4];
    if (size > 1) {
        int64_t half = n / 2;
        int to = (rank + 1) % size, from = (rank + size - 1) % size;
        fill(out, n, DTYPE_F32, rank);
        group_send(g, COMM_POINT, &ops[0], out, half, DTYPE_F32, to);
        group_send(g, COMM_POINT, &ops[1], out + half, n - half, DTYPE_F32, to);
        group_recv(g, COMM_POINT, &ops[2], in, half, DTYPE_F32, from);
        group_recv(g, COMM_POINT, &ops[3], in + half, n - half, DTYPE_F32, from);
        for (int i = 3; i >= 0; i--)
            done(c, &ops[i]);
        for (int64_t i = 0; i < n; i++)
            wrong += in[i] != value(from, i);
        CHECK(c, ops[0].sent_bytes + ops[1].sent_bytes == n * (int64_t)sizeof *out);
    }
    CHECK(c, !wrong);
    free(out);
    free(in);
}

/* As many messages as may be sent before one is received, none of which is buffered. */
static void test_many_sends(struct checks *c, struct group *g)
{
    enum { MOST = GROUP_MESSAGES / 2, N = 1 << 18 };
    int size = group_size(g), rank = group_rank(g), wrong = 0;
    float *out = room(MOST * N, DTYPE_F32), *in = room(MOST * N, DTYPE_F32);
    struct comm_op send[MOST], recv[MOST];
    fill(out, MOST * N, DTYPE_F32, rank);
    for (int i = 0; size > 1 && i < MOST; i++)
        group_send(g, COMM_POINT, &send[i], out + i * N, N, DTYPE_F32, (rank + 1) % size);
    for (int i = 0; size > 1 && i < MOST; i++)
        group_recv(g, COMM_POINT, &recv[i], in + i * N, N, DTYPE_F32, (rank + size - 1) % size);
    for (int i = 0; size > 1 && i < MOST; i++) {
        done(c, &send[i]);
        done(c, &recv[i]);
    }
    for (int i = 0; size > 1 && i < MOST * N; i++)
        wrong += in[i] != value((rank + size - 1) % size, i);
    CHECK(c, !wrong);
    free(out);
    free(in);
}

static void test_broadcasts(struct checks *c)
{
    for (int i = 0; i < COUNTS; i++)
        for (int root = 0; root < world_size(c->world); root++)
            test_broadcast(c, counts[i], root);
    test_broadcast(c, 1300007, 0); /* five pieces down the tree */
}

static void test_counts(struct checks *c, struct group *g)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F64};
    for (int i = 0; i < COUNTS; i++) {
        for (int d = 0; d < 4; d++) {
            test_all_gather(c, g, counts[i], dtypes[d], 0);
            test_all_gather(c, g, counts[i], dtypes[d], 1);
            test_all_reduce(c, g, counts[i], dtypes[d]);
            test_maximum(c, g, counts[i], dtypes[d]);
            test_all_to_all(c, g, counts[i], dtypes[d]);
        }
        for (int d = 0; d < 3; d++) {
            test_reduce_scatter(c, g, counts[i], dtypes[d], FRESH);
            test_reduce_scatter(c, g, counts[i], dtypes[d], ACCUMULATE);
            test_rounded(c, g, counts[i], dtypes[d]);
        }
        test_reduce_scatter(c, g, counts[i], DTYPE_F32, IN_PLACE);
        test_ring(c, g, counts[i]);
    }
    test_many_sends(c, g);
    test_all_gather(c, g, 2500001, DTYPE_F32, 0); /* beyond one piece of 4 MiB */
    test_all_to_all(c, g, 2500001, DTYPE_F32);    /* one part in several pieces */
}

/* Several operations on each stream at once, waited for in another order. */
static void test_together(struct checks *c, struct group *g)
{
    enum { N = 70001, OPS = 5 };
    int size = group_size(g), rank = group_rank(g), wrong = 0;
    float *all[OPS], *sums[OPS], *shard[OPS], *send = room(N * size, DTYPE_F32);
    struct comm_op gather[OPS], reduce[OPS], point[OPS];
    fill(send, N * size, DTYPE_F32, rank);
    for (int i = 0; i < OPS; i++) {
        all[i] = room(N * size, DTYPE_F32);
        sums[i] = room(N, DTYPE_F32);
        shard[i] = room(N, DTYPE_F32);
        fill(sums[i], N, DTYPE_F32, rank);
        group_all_gather(g, COMM_GATHER, &gather[i], all[i], send, N - i, DTYPE_F32);
        group_reduce_scatter(g, COMM_REDUCE, &reduce[i], shard[i], DTYPE_F32, send, N, DTYPE_F32,
                             0);
        group_all_reduce(g, COMM_POINT, &point[i], sums[i], N - i, DTYPE_F32, GROUP_SUM);
    }
    for (int i = OPS - 1; i >= 0; i--) {
        done(c, &point[i]);
        done(c, &gather[i]);
        done(c, &reduce[i]);
    }
    for (int i = 0; i < OPS; i++) {
        for (int64_t k = 0; k < N - i; k++) {
            wrong += sums[i][k] != sum_at(size, k, DTYPE_F32);
            wrong += all[i][(size - 1) * (N - i) + k] != value(size - 1, k);
            wrong += shard[i][k] != sum_at(size, (int64_t)rank * N + k, DTYPE_F32);
        }
        free(all[i]);
        free(sums[i]);
        free(shard[i]);
    }
    CHECK(c, !wrong);
    free(send);
}

/* The operation completes though nobody calls into comm/ but to ask. */
static void test_overlap(struct checks *c, struct group *g)
{
    enum { N = 500003 };
    float *all = room(N * group_size(g), DTYPE_F32), *mine = room(N, DTYPE_F32);
    struct comm_op op;
    int asked = 0;
    fill(mine, N, DTYPE_F32, group_rank(g));
    group_all_gather(g, COMM_GATHER, &op, all, mine, N, DTYPE_F32);
    while (!comm_test(&op) && asked++ < 10000)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    CHECK(c, comm_test(&op));
    done(c, &op);
    CHECK(c, comm_test(&op));
    free(all);
    free(mine);
}

static void test_wrong_use(struct checks *c, struct group *g)
{
    struct comm_op op;
    struct error err = {0};
    int data[1] = {0};
    group_send(g, COMM_POINT, &op, data, 1, DTYPE_I32, group_rank(g));
    CHECK(c, comm_wait(&op, &err) == -1 && strstr(err.text, group_name(g)));
    group_all_reduce(g, COMM_POINT, &op, data, 1, DTYPE_I32, GROUP_SUM);
    CHECK(c, comm_wait(&op, &err) == -1 && strstr(err.text, "i32"));
    group_reduce_scatter(g, COMM_REDUCE, &op, data, DTYPE_F16, data, 1, DTYPE_BF16, 0);
    CHECK(c, comm_wait(&op, &err) == -1 && strstr(err.text, "bf16 in fp16"));
    group_reduce_scatter(g, COMM_REDUCE, &op, data, DTYPE_BF16, data, 1, DTYPE_BF16, 1);
    CHECK(c, comm_wait(&op, &err) == -1 && strstr(err.text, "bf16 added to bf16"));
    struct comm_part negative[8] = {{.send_elems = -1}};
    group_all_to_all(g, COMM_REDUCE, &op, data, data, negative, DTYPE_I32);
    CHECK(c, comm_wait(&op, &err) == -1 && strstr(err.text, "all-to-all"));
}

static void must_create(struct checks *c, struct group **group, const int *ranks, int size,
                        const char *name)
{
    struct error err = {0};
    int rc = group_create(group, c->world, ranks, size, name, &err);
    CHECK(c, !world_agree(c->world, rc, &err));
}

/* The last of three or more ranks is not among those it asks for. */
static void test_foreign(struct checks *c, int size)
{
    struct group *g = NULL;
    struct error err = {0};
    char text[64];
    int last = world_rank(c->world) == size - 1;
    int rc = group_create(&g, c->world, NULL, size - last, "foreign", &err);
    snprintf(text, sizeof text, "rank %d is not in group foreign", size - 1);
    CHECK(c, rc == -last && (last ? !g : g != NULL));
    CHECK(c, world_agree(c->world, rc, &err) == -1 && strstr(err.text, text));
    group_destroy(g);
}

int main(void)
{
    struct checks c = {0};
    struct group *all = NULL, *part = NULL, *self = NULL, *lone = NULL;
    if (checks_start(&c))
        return 1;
    int rank = world_rank(c.world), size = world_size(c.world);
    must_create(&c, &all, NULL, size, "all");
    CHECK(&c, group_size(all) == size && group_rank(all) == rank);
    CHECK(&c, c.mem.now_bytes[POOL_COMM] == group_staging_bytes(size));
    int low = rank / 2 * 2, alone = low == size - 1;
    const int reversed[] = {alone ? low : low + 1, low};
    must_create(&c, &part, reversed, alone ? 1 : 2, "part");
    CHECK(&c, group_rank(part) == (rank % 2 || rank == size - 1 ? 0 : 1));
    if (size > 2)
        test_foreign(&c, size);
    self = group_self(c.world, "self");
    lone = group_self(NULL, "lone");
    test_counts(&c, all);
    test_counts(&c, part);
    test_counts(&c, self);
    test_counts(&c, lone);
    test_broadcasts(&c);
    test_together(&c, all);
    test_together(&c, self);
    test_overlap(&c, all);
    test_wrong_use(&c, all);
    test_wrong_use(&c, lone);
    group_destroy(all);
    group_destroy(part);
    group_destroy(self);
    group_destroy(lone);
    group_destroy(NULL);
    return checks_finish(&c);
}
