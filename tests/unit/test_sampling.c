/* test_sampling.c - tokens drawn from logits: which may come, and how often. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "train/sampling.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_penalty_of_repeated_tokens),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
