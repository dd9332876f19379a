/* test_cuda_attention.c - attention on the GPU against the CPU's.
 *
 * The launchers of the own kernels are called directly, as the op leaves to them only what the
 * library cannot do; the op is tried too.
 */
#include "tests/unit/cuda_attention_check.h"

static const int64_t lengths[] = {1, 3, 7, 17, 63, 64, 65, 129, 200};
static const int64_t groups[][2] = {{1, 1}, {3, 1}, {4, 2}, {8, 8}};
static const int64_t dims[] = {2, 6, 16, 34, 64, 80, 96, 128, 256};
enum { LENGTHS = 9, GROUPS = 4, DIMS = 9 };

static int is_emulated(void)
{
    struct device_gpu gpu;
    return device_gpu_describe(0, &gpu, NULL) || strcmp(gpu.name, "emulated") == 0;
}

/* ---- tests ---- */

static void agrees_with_the_cpu(void **state)
{
    for (int i = 0; i < SHAPES; i++)
        for (int j = 0; j < TYPES; j++)
            check(*state, &shapes[i], types[j], OWN_KERNELS);
}

static void the_op_agrees_with_the_cpu(void **state)
{
    for (int i = 1; i < SHAPES; i += 5)
        for (int j = 0; j < TYPES; j++)
            check(*state, &shapes[i], types[j], OP);
}

/* A device may be closed while threads still make what was begun; what was not run was not met. */
static void what_is_begun_beside_agrees(void **state)
{
    struct device *d;
    struct error err = {0};
    struct device_attention met;
    struct attention a = {
        .dt = DTYPE_BF16, .batch = 1, .seq = 128, .heads = 4, .kv_heads = 2, .head_dim = 64};
    for (int runs = 0; runs < 2; runs++) {
        if (device_open(&d, &(struct device_request){.kind = DEVICE_CUDA}, &err))
            fail_msg("%s", err.text);
        device_attention_prepare(d, &a, DEVICE_FORWARD);
        device_attention_prepare(d, &a, DEVICE_BACKWARD);
        device_attention(d, &met);
        assert_int_equal(met.by_library + met.by_own, 0);
        if (runs) {
            struct rig *rig = *state, other = *rig;
            other.gpu = d;
            check(&other, &a, DTYPE_BF16, OP);
            device_attention(d, &met);
            assert_true(met.by_library + met.by_own > 0);
        }
        device_close(d);
    }
}

static void agrees_on_drawn_shapes(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 8; i++) {
        uint64_t draw = philox_u64(rig->seed + 1, (uint64_t)i);
        const int64_t *group = groups[draw / 100 % GROUPS];
        struct attention a = {.batch = 1 + (int64_t)(draw / 10000 % 2),
                              .seq = lengths[draw % LENGTHS],
                              .heads = group[0],
                              .kv_heads = group[1],
                              .head_dim = dims[draw / 1000 % DIMS]};
        check(rig, &a, types[draw / 100000 % TYPES], OWN_KERNELS);
    }
}

/* Own rows of sequences that ranks share, with every tile of the kernels; some keys nobody sees. */
static void parts_agree_with_the_cpu(void **state)
{
    static const struct {
        int shape, ranks, rank;
        int64_t chunk;
    } parts[] = {{1, 2, 0, 3},  {9, 2, 1, 65},  {11, 3, 1, 64}, {10, 3, 2, 33},
                 {8, 3, 1, 20}, {12, 2, 0, 17}, {5, 2, 1, 1}};
    for (size_t i = 0; i < TYPES * sizeof parts / sizeof parts[0]; i++) {
        struct attention a = shapes[parts[i / TYPES].shape];
        struct graph_group group = {.size = parts[i / TYPES].ranks, .rank = parts[i / TYPES].rank};
        a.seq = 2 * parts[i / TYPES].chunk;
        a.kv_seq = a.seq * group.size;
        a.forms = ATTENTION_SEPARATE | ATTENTION_PART;
        a.part = graph_sequence_part(a.seq, group);
        check(*state, &a, types[i % TYPES], OWN_KERNELS);
        check(*state, &a, types[i % TYPES], OP);
    }
}

/* More heads than a grid has rows, more keys than a cache holds, and long sequences. */
static void large_problems_agree_with_the_cpu(void **state)
{
    static const struct attention large[] = {
        {.batch = 9001, .seq = 5, .heads = 8, .kv_heads = 8, .head_dim = 64},
        {.batch = 2, .seq = 1021, .heads = 8, .kv_heads = 2, .head_dim = 128},
        {.batch = 16, .seq = 2048, .heads = 6, .kv_heads = 3, .head_dim = 96},
    };
    if (is_emulated()) {
        print_message("skipped: large problems need a real GPU\n");
        skip();
    }
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        for (int j = 0; j < TYPES; j++)
            check(*state, &large[i], types[j], OWN_KERNELS);
}

/* Every dimension of the tiles, and a head_dim between them. */
static void two_runs_are_alike(void **state)
{
    struct rig *rig = *state;
    for (int i = 3 * TYPES; i < 10 * TYPES; i++) {
        const enum dtype dt = types[i % TYPES];
        struct problem p = problem_make(rig, &shapes[i / TYPES], dt);
        problem_solve(rig, &p);
        struct result one = solve(rig, &p, OWN_KERNELS), two = solve(rig, &p, OWN_KERNELS);
        assert_memory_equal(one.o, two.o, p.out_bytes);
        assert_memory_equal(one.lse, two.lse, p.lse_bytes);
        assert_memory_equal(one.dqkv, two.dqkv, p.qkv_bytes);
        result_free(&one);
        result_free(&two);
        problem_free(&p);
    }
}

/* Scores of thousands of either sign: one key takes nearly all, and nothing overflows.  Scores
 * differ by 1e-6 of themselves from the CPU's, weights thus by a hundredth. */
static void large_scores_stay_finite(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < TYPES; i++) {
        const enum dtype dt = types[i];
        struct attention a = {
            .batch = 1, .seq = 129, .heads = 3, .kv_heads = 1, .head_dim = 128, .scale = 300};
        const struct tolerance loose = {2e-2, 5e-2}, exact = tolerances[DTYPE_F32];
        struct problem p = problem_make(rig, &a, dt);
        problem_solve(rig, &p);
        struct result r = solve(rig, &p, OWN_KERNELS);
        int64_t q = a.heads * a.head_dim, elems = (int64_t)(p.qkv_bytes / dtype_bytes(dt));
        assert_close("o", &p, dt, r.o, p.o, q, 0, q, loose);
        assert_close("lse", &p, DTYPE_F32, r.lse, p.lse, a.heads, 0, a.heads, exact);
        for (int64_t e = 0; e < elems; e++)
            assert_true(isfinite(value(dt, r.dqkv, e)));
        result_free(&r);
        problem_free(&p);
    }
}

/* Write 0 to element 0 of every query's and key's gradient, after checking that it is finite. */
static void forget_shifted(const struct problem *p, void *dqkv)
{
    const struct attention *a = &p->a;
    int64_t slots = a->heads + 2 * a->kv_heads;
    for (int64_t e = 0; e < a->batch * a->seq * slots; e++)
        if (e % slots < a->heads + a->kv_heads) {
            assert_true(isfinite(value(a->dt, dqkv, e * a->head_dim)));
            put(a->dt, dqkv, e * a->head_dim, 0);
        }
}

/* Element 0 of each key is 1, and of each query -120 / scale, so that all scores are near -120. */
static void shift_scores(struct problem *p)
{
    const struct attention *a = &p->a;
    int64_t slots = a->heads + 2 * a->kv_heads;
    for (int64_t e = 0; e < a->batch * a->seq * slots; e++)
        if (e % slots < a->heads + a->kv_heads)
            put(a->dt, p->qkv, e * a->head_dim, e % slots < a->heads ? -120 / a->scale : 1);
}

/* Scores far below 0, as some heads of trained models have them: a key behind the last one, were it
 * not masked, would have a weight of e^120.  In fp32 such scores are 2e-5 from the CPU's.  Elements
 * 0 of the gradients, whose terms are hundreds or cancel, would hide the others. */
static void low_scores_agree_with_the_cpu(void **state)
{
    struct rig *rig = *state;
    static const struct attention low[] = {
        {.batch = 1, .seq = 64, .heads = 4, .kv_heads = 2, .head_dim = 64},
        {.batch = 2, .seq = 192, .heads = 2, .kv_heads = 1, .head_dim = 128},
        {.batch = 1, .seq = 200, .heads = 2, .kv_heads = 2, .head_dim = 80},
        {.batch = 1, .seq = 97, .heads = 3, .kv_heads = 1, .head_dim = 256},
    };
    for (int i = 0; i < 4 * TYPES * 2; i++) {
        const enum dtype dt = types[i / 4 % TYPES];
        if (i >= 4 * TYPES && is_emulated()) /* whose op is the own kernels again */
            break;
        struct tolerance most = tolerances[dt];
        struct problem p = problem_make(rig, &low[i % 4], dt);
        int64_t q = p.a.heads * p.a.head_dim, row = q + 2 * p.a.kv_heads * p.a.head_dim;
        if (dt == DTYPE_F32)
            most = (struct tolerance){1e-4, 5e-4};
        shift_scores(&p);
        problem_solve(rig, &p);
        struct result r = solve(rig, &p, i / 4 / TYPES ? OP : OWN_KERNELS);
        forget_shifted(&p, p.dqkv);
        forget_shifted(&p, r.dqkv);
        assert_close("o", &p, dt, r.o, p.o, q, 0, q, most);
        assert_close("lse", &p, DTYPE_F32, r.lse, p.lse, p.a.heads, 0, p.a.heads,
                     tolerances[DTYPE_F32]);
        assert_close("dq", &p, dt, r.dqkv, p.dqkv, row, 0, q, most);
        assert_close("dk and dv", &p, dt, r.dqkv, p.dqkv, row, q, row, most);
        result_free(&r);
        problem_free(&p);
    }
}

/* Rows after `cut` change: nothing up to it may, not by one bit. */
static void the_future_is_not_seen(void **state)
{
    struct rig *rig = *state;
    const struct attention a = {.batch = 1, .seq = 129, .heads = 3, .kv_heads = 1, .head_dim = 64};
    for (int i = 0; i < TYPES; i++) {
        const enum dtype dt = types[i];
        struct problem p = problem_make(rig, &a, dt);
        int64_t row = (a.heads + 2 * a.kv_heads) * a.head_dim, cut = 70;
        struct result before, after;
        forward(rig, &p, OWN_KERNELS, &before);
        for (int64_t e = cut * row; e < a.seq * row; e++)
            put(dt, p.qkv, e, 30 * philox_normal(rig->seed, rig->drawn++));
        forward(rig, &p, OWN_KERNELS, &after);
        size_t kept = (size_t)(cut * a.heads * a.head_dim) * dtype_bytes(dt);
        assert_memory_equal(before.o, after.o, kept);
        assert_memory_not_equal((char *)before.o + kept, (char *)after.o + kept, 64);
        assert_memory_equal(before.lse, after.lse, (size_t)cut * sizeof(float));
        before.dqkv = after.dqkv = before.dkv = after.dkv = NULL;
        result_free(&before);
        result_free(&after);
        problem_free(&p);
    }
}

/* A diverged run must show: NaN in a query is NaN in its output, lse and gradient, and in no
 * other head's output. */
static void nan_is_not_hidden(void **state)
{
    struct rig *rig = *state;
    const struct attention a = {.batch = 1, .seq = 65, .heads = 2, .kv_heads = 1, .head_dim = 64};
    for (int i = 0; i < TYPES; i++) {
        const enum dtype dt = types[i];
        struct problem p = problem_make(rig, &a, dt);
        put(dt, p.qkv, (40 * 4 + 1) * 64 + 5, NAN); /* position 40, head 1 */
        problem_solve(rig, &p);
        struct result r = solve(rig, &p, OWN_KERNELS);
        assert_true(isnan(value(dt, r.o, (40 * 2 + 1) * 64)));
        assert_true(isnan(r.lse[a.seq + 40]));
        assert_true(isnan(value(dt, r.dqkv, (40 * 4 + 1) * 64)));
        assert_false(isnan(value(dt, r.o, 40 * 2 * 64)));
        assert_false(isnan(value(dt, r.o, (41 * 2 + 1) * 64)));
        result_free(&r);
        problem_free(&p);
    }
}

/* Scores to 1e9: the gradients of values, which one key of each query has, are still the CPU's
 * where weights are fp32; nothing overflows in any type but fp16's gradients of queries and keys,
 * rounding errors times a scale that is beyond its range: infinity, as ops.h says. */
static void huge_scores_stay_finite(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < TYPES; i++) {
        struct attention a = {.batch = 1, .seq = 97, .heads = 2, .kv_heads = 1, .head_dim = 64};
        const enum dtype dt = types[i];
        struct problem p = problem_make(rig, &a, dt);
        p.a.scale = 2e7f;
        problem_solve(rig, &p);
        struct result r;
        forward(rig, &p, OWN_KERNELS, &r);
        struct problem own_results = p; /* the CPU's scores differ by more than 1 */
        own_results.o = r.o;
        own_results.lse = r.lse;
        backward(rig, &own_results, OWN_KERNELS, &r);
        for (int64_t e = 0; e < a.seq * 2 * 64; e++)
            assert_true(isfinite(value(dt, r.o, e)));
        for (int64_t e = 0; e < a.seq * 4 * 64; e++)
            if (dt != DTYPE_F16 || e / 64 % 4 == 3)
                assert_true(isfinite(value(dt, r.dqkv, e)));
            else
                assert_false(isnan(value(dt, r.dqkv, e)));
        if (dt == DTYPE_F32)
            assert_close("o", &p, dt, r.o, p.o, 2, 0, 2, tolerances[dt]);
        result_free(&r);
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_cpu),
        cmocka_unit_test(the_op_agrees_with_the_cpu),
        cmocka_unit_test(what_is_begun_beside_agrees),
        cmocka_unit_test(agrees_on_drawn_shapes),
        cmocka_unit_test(parts_agree_with_the_cpu),
        cmocka_unit_test(large_problems_agree_with_the_cpu),
        cmocka_unit_test(two_runs_are_alike),
        cmocka_unit_test(large_scores_stay_finite),
        cmocka_unit_test(low_scores_agree_with_the_cpu),
        cmocka_unit_test(the_future_is_not_seen),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(huge_scores_stay_finite),
    };
    return cmocka_run_group_tests_name("CUDA attention", tests, cuda_attention_open,
                                       cuda_attention_close);
}
