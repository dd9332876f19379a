/* test_sampling.c - tokens drawn from logits: which may come, and how often. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/philox.h"
#include "train/sampling.h"
#include "train/sampling_private.h"

enum { VOCAB = 101, DRAWS = 40000 };

static const struct config_generate plain = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};

static double uniform(int n)
{
    return (double)(philox_u64(5, (uint64_t)n) >> 11) * 0x1p-53;
}

static void random_logits(float *logits, uint64_t seed)
{
    for (int i = 0; i < VOCAB; i++)
        logits[i] = 4 * (float)((double)(philox_u64(seed, (uint64_t)i) >> 11) * 0x1p-53) - 2;
}

/* Probabilities by definition: of a copy, sorted by selection. */
static void expected(double *p, const float *given, const struct config_generate *how,
                     const int32_t *ids, int count)
{
    double logit[VOCAB], total = 0;
    int order[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        int seen = 0;
        for (int k = 0; k < count; k++)
            seen |= ids[k] == i;
        logit[i] = given[i];
        if (seen)
            logit[i] *= logit[i] > 0 ? 1 / how->repetition_penalty : how->repetition_penalty;
        order[i] = i;
    }
    for (int i = 0; i < VOCAB; i++)
        for (int k = i + 1; k < VOCAB; k++)
            if (logit[order[k]] > logit[order[i]]) {
                int other = order[i];
                order[i] = order[k];
                order[k] = other;
            }
    int kept = how->top_k > 0 && how->top_k < VOCAB ? (int)how->top_k : VOCAB;
    memset(p, 0, VOCAB * sizeof *p);
    for (int i = 0; i < kept; i++)
        total += exp(logit[order[i]] / how->temperature);
    double sum = 0, left = 0;
    for (int i = 0; i < kept && sum < how->top_p; i++) {
        p[order[i]] = exp(logit[order[i]] / how->temperature) / total;
        sum += p[order[i]];
    }
    for (int i = 0; i < VOCAB; i++)
        left += p[i];
    for (int i = 0; i < VOCAB; i++)
        p[i] /= left;
}

/* Every token comes as often as its probability says, within five deviations, and those without one
 * never. */
static void check_shares(const struct config_generate *how, const int32_t *ids, int count)
{
    struct sampling *sampling = sampling_create(VOCAB);
    float logits[VOCAB], used[VOCAB];
    double p[VOCAB];
    int came[VOCAB] = {0};
    random_logits(logits, 11);
    expected(p, logits, how, ids, count);
    for (int n = 0; n < DRAWS; n++) {
        memcpy(used, logits, sizeof used);
        came[sampling_draw(sampling, how, used, ids, count, uniform(n))]++;
    }
    for (int i = 0; i < VOCAB; i++) {
        double mean = p[i] * DRAWS, deviation = sqrt(mean * (1 - p[i]));
        if (fabs(came[i] - mean) > 5 * deviation + 1e-9 * DRAWS)
            fail_msg("token %d came %d times, not %.1f +- %.1f", i, came[i], mean, deviation);
    }
    sampling_destroy(sampling);
}

static void test_shares(void **state)
{
    static const int32_t ids[] = {3, 17, 17, 99, 0, 3};
    struct config_generate how = plain;
    check_shares(&how, NULL, 0);
    how.temperature = 0.5;
    check_shares(&how, NULL, 0);
    how.top_k = 7;
    check_shares(&how, NULL, 0);
    how.top_k = 1000;
    how.top_p = 0.3;
    check_shares(&how, NULL, 0);
    how.top_k = 20;
    how.top_p = 0.9;
    how.repetition_penalty = 1.7;
    check_shares(&how, ids, 6);
    how = plain;
    how.top_p = 0;
    check_shares(&how, NULL, 0);
    how.top_p = 0.999;
    how.repetition_penalty = 0.6;
    check_shares(&how, ids, 6);
}

/* The likeliest, and of equal ones the first; what was said counts less. */
static void test_greedy(void **state)
{
    struct sampling *sampling = sampling_create(VOCAB);
    struct config_generate how = plain;
    float logits[VOCAB] = {0};
    const int32_t ids[] = {40};
    how.temperature = 0;
    logits[40] = 3;
    logits[60] = logits[50] = 2;
    assert_int_equal(sampling_draw(sampling, &how, logits, NULL, 0, 0.99), 40);
    how.repetition_penalty = 1.6;
    assert_int_equal(sampling_draw(sampling, &how, logits, ids, 1, 0.99), 50);
    logits[50] = -INFINITY;
    assert_int_equal(sampling_draw(sampling, &how, logits, NULL, 0, 0.99), 60);
    sampling_destroy(sampling);
}

/* However often a token is in the text, its logit is divided once. */
static void test_penalty_of_repeated_tokens(void **state)
{
    enum { OFTEN = 1000 };
    struct sampling *sampling = sampling_create(VOCAB);
    struct config_generate how = plain;
    int32_t ids[OFTEN];
    how.temperature = 0;
    how.repetition_penalty = 1.4;
    for (int count = 1; count <= OFTEN; count++) {
        float logits[VOCAB] = {[40] = 3, [50] = 2};
        ids[count - 1] = 40;
        assert_int_equal(sampling_draw(sampling, &how, logits, ids, count, 0.5), 40);
        assert_true(logits[40] == 3 / (float)how.repetition_penalty);
    }
    sampling_destroy(sampling);
}

/* At the ends of the interval, and with tokens that cannot come at either end. */
static void test_ends(void **state)
{
    struct sampling *sampling = sampling_create(VOCAB);
    float logits[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        logits[i] = i >= 5 && i <= 90 ? 0 : -INFINITY;
    assert_int_equal(sampling_draw(sampling, &plain, logits, NULL, 0, 0), 5);
    assert_int_equal(sampling_draw(sampling, &plain, logits, NULL, 0, 1 - 0x1p-53), 90);
    sampling_destroy(sampling);
}

/* ---- the same tokens as by sums in order ---- */

struct heavy {
    float weight;
    int id;
};

static int heavier_first(const void *a, const void *b)
{
    const struct heavy *x = a, *y = b;
    return x->weight != y->weight ? (x->weight < y->weight) - (x->weight > y->weight)
                                  : x->id - y->id;
}

/* Only the fewest that come to top_p stay, none of which is so light that all could be; returns
 * their sum. */
static double keep_sorted(float *weight, int n, double top_p, double total)
{
    struct heavy *heavy = array_make((size_t)n, sizeof *heavy);
    double sum = 0, limit = top_p * total, least = total * (1 - top_p) / n;
    for (int i = 0; i < n; i++)
        heavy[i] = (struct heavy){weight[i], i};
    qsort(heavy, (size_t)n, sizeof *heavy, heavier_first);
    memset(weight, 0, (size_t)n * sizeof *weight);
    for (int i = 0; i < n && heavy[i].weight > 0 && heavy[i].weight >= least; i++) {
        if (i > 0 && sum >= limit)
            break;
        weight[heavy[i].id] = heavy[i].weight;
        sum += heavy[i].weight;
    }
    free(heavy);
    return sum;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The token, with everything sorted and added up one by one. */
static int token_by_order(const struct config_generate *how, const float *logits, int n, double u)
{
    float *sorted = array_make((size_t)n, sizeof *sorted), *weight = array_make((size_t)n, 4);
    double total = 0;
    int last = 0, i = 0;
    memcpy(sorted, logits, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    float least = how->top_k > 0 && how->top_k < n ? sorted[how->top_k - 1] : -INFINITY;
    for (i = 0; i < n; i++) {
        if (logits[i] >= least)
            weight[i] = (float)exp((logits[i] - sorted[0]) / how->temperature);
        total += weight[i];
    }
    if (how->top_p < 1)
        total = keep_sorted(weight, n, how->top_p, total);
    double at = u * total;
    for (i = 0; i < n; i++) {
        if (weight[i] <= 0)
            continue;
        last = i;
        if ((at -= weight[i]) < 0)
            break;
    }
    free(sorted);
    free(weight);
    return last;
}

static float normal(uint64_t seed, int i)
{
    return philox_normal(seed, (uint64_t)i);
}

static float wide(uint64_t seed, int i)
{
    return 30 * philox_normal(seed, (uint64_t)i);
}

/* One number, or a few. */
static float equal(uint64_t seed, int i)
{
    return 1;
}

static float tied(uint64_t seed, int i)
{
    return (float)(philox_u64(seed, (uint64_t)i) % 5) / 3;
}

/* Some are never drawn. */
static float holes(uint64_t seed, int i)
{
    return philox_u64(seed + 1, (uint64_t)i) % 3 ? philox_normal(seed, (uint64_t)i) : -INFINITY;
}

/* A few are far above all others, as a trained model has it. */
static float peaked(uint64_t seed, int i)
{
    float low = 2 * philox_normal(seed, (uint64_t)i);
    return philox_u64(seed + 1, (uint64_t)i) % 200 ? low : low + 12;
}

/* In order, so that all the largest are in a few blocks; zeros of both signs; one alone. */
static float rising(uint64_t seed, int i)
{
    return (float)i / 100;
}

static float zeros(uint64_t seed, int i)
{
    return philox_u64(seed, (uint64_t)i) % 2 ? 0.0f : -0.0f;
}

static float lone(uint64_t seed, int i)
{
    return i == (int)(seed % 3) ? 3 : -INFINITY;
}

static float (*const shapes[])(uint64_t seed, int i) = {normal, wide,   equal, tied, holes,
                                                        peaked, rising, zeros, lone};

/* Temperatures at which all weights are alike, are denormal, are 0 but for one, and of which the
 * inverse is infinite. */
static const double temperatures[] = {0.8, 1, 100, 0.3, 0.05, 1e-3, 1e-30, 1e-310};
static const double shares[] = {1, 0.95, 0.5, 0.1, 0, 0.999, 0.999999999999, 0x1.fffffffffffffp-1};
static const int64_t most_likely[] = {0, 50, 1, 3, 700, 1000000};
static const double places[] = {0, 0x1p-53, 0.25, 0.5, 0.75, 1 - 0x1p-53};
#define COUNT(list) (int)(sizeof(list) / sizeof *(list))

static void check_token(const struct config_generate *how, const float *logits, int n, double u)
{
    struct sampling *sampling = sampling_create(n);
    float *used = array_make((size_t)n, sizeof *used);
    memcpy(used, logits, (size_t)n * sizeof *used);
    int want = token_by_order(how, logits, n, u);
    int64_t got = sampling_draw(sampling, how, used, NULL, 0, u);
    if (got != want)
        fail_msg("%d tokens, temperature %g, top_k %lld, top_p %.17g, at %.17g: %lld, not %d", n,
                 how->temperature, (long long)how->top_k, how->top_p, u, (long long)got, want);
    free(used);
    sampling_destroy(sampling);
}

/* Of every shape of logits, with all settings, at ends and at random places. */
static void test_same_token_as_in_order(void **state)
{
    static const int sizes[] = {1, 3, 127, 128, 129, 1000, 4099};
    int cases = 0;
    for (int n = 0; n < COUNT(sizes); n++)
        for (int shape = 0; shape < COUNT(shapes); shape++) {
            float *logits = array_make((size_t)sizes[n], sizeof *logits);
            for (int i = 0; i < sizes[n]; i++)
                logits[i] = shapes[shape]((uint64_t)(shape + 10 * n), i);
            for (int c = 0; c < COUNT(temperatures) * COUNT(shares) * COUNT(most_likely); c++) {
                struct config_generate how = plain;
                how.temperature = temperatures[c % COUNT(temperatures)];
                how.top_p = shares[c / COUNT(temperatures) % COUNT(shares)];
                how.top_k = most_likely[c / COUNT(temperatures) / COUNT(shares)];
                check_token(&how, logits, sizes[n],
                            c % 3 ? uniform(cases) : places[cases % COUNT(places)]);
                cases++;
            }
            free(logits);
        }
    print_message("%d draws\n", cases);
}

/* Without sorting, what is kept for top_p is what sorting finds, or it is not decided; returns
 * whether it was. */
static int check_kept(const float *logits, int n, double temperature, double top_p)
{
    struct sampling *sampling = sampling_create(n);
    float *weight = array_make((size_t)n, sizeof *weight);
    struct sampling_call call = {.logits = logits,
                                 .most = sampling_tops(sampling, logits),
                                 .least = -INFINITY,
                                 .temperature = temperature,
                                 .top_p = top_p};
    double total = 0, in_blocks = sampling_weigh(sampling, &call);
    for (int i = 0; i < n; i++)
        total += weight[i] = (float)exp((logits[i] - call.most) / temperature);
    double want = keep_sorted(weight, n, top_p, total);
    double sum = sampling_keep(sampling, &call, in_blocks, 0x1p-50 * n * in_blocks);
    for (int i = 0; i < n && sum >= 0; i++)
        assert_true(weight[i] == (sampling->sum[i / SAMPLING_BLOCK] > 0 ? sampling->weight[i] : 0));
    assert_true(sum < 0 || fabs(sum - want) < 1e-12 * total);
    free(weight);
    sampling_destroy(sampling);
    return sum >= 0;
}

static void test_what_top_p_keeps(void **state)
{
    enum { SIZE = 5003 };
    float logits[SIZE];
    for (int n = 0; n < 300; n++) {
        for (int i = 0; i < SIZE; i++)
            logits[i] = (n % 3 ? peaked : tied)((uint64_t)n, i);
        assert_true(check_kept(logits, SIZE, 0.1 + uniform(n), uniform(n + 1000)));
    }
}

/* Where top_p and the place are at an end of a token's weight, so that rounding decides.  The
 * smallest weights are far below what sums round to. */
static void test_same_token_where_rounding_decides(void **state)
{
    enum { SIZE = 700 };
    float logits[SIZE];
    struct heavy heaviest[SIZE];
    double weight[SIZE], total = 0;
    int undecided = 0;
    for (int i = 0; i < SIZE; i++)
        logits[i] = i % 7 ? 10 * normal(3, i) : -0.7f;
    logits[11] = 35; /* the largest */
    for (int i = 0; i < SIZE; i++) {
        heaviest[i] = (struct heavy){(float)exp(logits[i] - logits[11]), i};
        total += weight[i] = heaviest[i].weight;
    }
    qsort(heaviest, SIZE, sizeof *heaviest, heavier_first);
    for (int n = 0; n < 4000; n++) {
        struct config_generate how = plain;
        double behind = 0, before = 0;
        for (int i = 0; i < n % SIZE; i++) {
            behind += heaviest[i].weight;
            before += weight[i];
        }
        how.top_p = n % 2 ? behind / total : 1;
        check_token(&how, logits, SIZE, n % 2 ? uniform(n) : before / total);
        undecided += n % 2 && !check_kept(logits, SIZE, 1, how.top_p);
    }
    assert_true(undecided > 100);
}

/* Of a large vocabulary. */
static void test_large_vocabulary(void **state)
{
    enum { LARGE = 128256, PLACES = 4 };
    float *logits = array_make(LARGE, sizeof *logits);
    for (int shape = 0; shape < COUNT(shapes); shape++) {
        for (int i = 0; i < LARGE; i++)
            logits[i] = shapes[shape](77, i);
        for (int c = 0; c < 3 * PLACES; c++) {
            struct config_generate how = plain;
            how.temperature = 0.8;
            how.top_k = c % 3 == 1 ? 50 : 0;
            how.top_p = c % 3 == 2 ? 0.95 : 1;
            check_token(&how, logits, LARGE, uniform(1000 * shape + c));
        }
    }
    free(logits);
}

/* Every weight is that of exp(), to the bit. */
static void test_weights(void **state)
{
    enum { LARGE = 100003 };
    struct sampling *sampling = sampling_create(LARGE);
    float *logits = array_make(LARGE, sizeof *logits);
    for (int shape = 0; shape < COUNT(shapes); shape++) {
        for (int i = 0; i < LARGE; i++)
            logits[i] = shapes[shape](5, i);
        for (int t = 0; t < COUNT(temperatures); t++) {
            struct sampling_call call = {.logits = logits,
                                         .most = sampling_tops(sampling, logits),
                                         .least = shape % 2 ? -INFINITY : -1,
                                         .temperature = temperatures[t]};
            double sum = 0, total = sampling_weigh(sampling, &call);
            for (int i = 0; i < LARGE; i++) {
                float want = logits[i] < call.least
                                 ? 0
                                 : (float)exp((logits[i] - call.most) / call.temperature);
                float got = sampling->sum[i / SAMPLING_BLOCK] > 0 ? sampling->weight[i] : 0;
                if (want != got)
                    fail_msg("temperature %g, logit %.9g of at most %.9g: %.9g, not %.9g",
                             call.temperature, logits[i], call.most, got, want);
                sum += want;
            }
            assert_true(fabs(sum - total) <= 1e-10 * sum);
        }
    }
    free(logits);
    sampling_destroy(sampling);
}

/* NaN of either sign is noticed wherever it is, infinities are none. */
static void test_not_a_number(void **state)
{
    struct sampling *sampling = sampling_create(300);
    for (int at = 0; at < 300; at++)
        for (int way = 0; way < 4; way++) {
            float logits[300] = {0};
            logits[0] = -INFINITY;
            logits[7] = 1;
            logits[at] = way == 0 ? NAN : way == 1 ? -NAN : way == 2 ? INFINITY : -INFINITY;
            int64_t id = sampling_draw(sampling, &plain, logits, NULL, 0, 0.5);
            assert_true(way < 2 ? id == -1 : way == 2 ? id == at : id > 0 && id != at);
        }
    sampling_destroy(sampling);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_penalty_of_repeated_tokens),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_same_token_as_in_order),
        cmocka_unit_test(test_same_token_where_rounding_decides),
        cmocka_unit_test(test_what_top_p_keeps),
        cmocka_unit_test(test_large_vocabulary),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_not_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
