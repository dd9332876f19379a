/* test_generate.c - texts continued with keys and values kept: the same tokens as without, for
 * every family, whatever else is generated beside them and however full the context is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "rig.h"
#include "train/generator.h"

enum { VOCAB = 61, TEXTS = 5, LONGEST = 200, STOP = 7 };

/* Large weights: texts that follow from every token before. */
#define SIZES                                                                            \
    "model.layers=2 model.hidden=32 model.heads=4 model.ffn=48 model.vocab=61 "          \
    "model.max_seq_len=160 model.init_std=0.3 train.global_batch=1 train.micro_batch=1 " \
    "parallel.strategy=NO_SHARD seed=3 "

static const char *const models[] = {
    SIZES "data.seq_len=64 model.kv_heads=2",
    SIZES "data.seq_len=150 model.kv_heads=1 model.tie_embeddings=true",
    SIZES "data.seq_len=37 model.kv_heads=2 model.qkv_bias=true model.qk_norm=true",
    SIZES "data.seq_len=50 model.kv_heads=2 model.sliding_window=9",
    SIZES "data.seq_len=64 model.family=gpt2",
    SIZES "data.seq_len=160 model.family=gpt2 model.tie_embeddings=true",
    SIZES "data.seq_len=48 model.kv_heads=2 parallel.wrap=none",
    SIZES "data.seq_len=40 model.kv_heads=1 model.experts=4 model.experts_per_token=3 "
          "model.norm_topk_prob=false",
};
enum { MODELS = sizeof models / sizeof models[0] };

struct text {
    int32_t ids[LONGEST];
    int64_t count;
};

struct heard {
    struct text text[TEXTS];
    int ends_at; /* a token that ends a text, handed on; -1: none */
    int ended[TEXTS];
};

static int is_stop(void *user, int64_t id)
{
    return id == STOP;
}

static int take(void *user, int64_t text, int64_t id)
{
    struct heard *heard = user;
    struct text *t = &heard->text[text];
    assert_false(heard->ended[text]);
    t->ids[t->count++] = (int32_t)id;
    return id == heard->ends_at;
}

static void ended(void *user, int64_t text)
{
    struct heard *heard = user;
    assert_false(heard->ended[text]++);
}

static struct session *open_model(struct mem *mem, const char *settings, int slots)
{
    struct config config = rig_config(settings);
    struct session *s = rig_open(mem, &config, NULL, slots);
    rig_init(s);
    rig_refresh(s);
    return s;
}

/* Prompts of all lengths, one longer than a chunk of a prompt and any context. */
static void make_prompts(struct text *prompts, int64_t seq)
{
    const int64_t lengths[TEXTS] = {1, 12, 3, seq - 1, 30};
    for (int t = 0; t < TEXTS; t++) {
        prompts[t].count = lengths[t];
        for (int64_t i = 0; i < lengths[t]; i++)
            prompts[t].ids[i] = (int32_t)(philox_u64(9, (uint64_t)(t * 1000 + i)) % VOCAB);
    }
}

static void run(struct generator *g, const struct config_generate *how, const struct text *prompts,
                int count, struct heard *heard)
{
    struct error err = {0};
    struct generator_prompt list[TEXTS];
    for (int t = 0; t < count; t++)
        list[t] = (struct generator_prompt){prompts[t].ids, prompts[t].count};
    const struct generator_request request = {.how = *how,
                                              .seed = 4,
                                              .vocab = VOCAB,
                                              .is_stop = is_stop,
                                              .take = take,
                                              .ended = ended,
                                              .user = heard};
    if (generator_run(g, &request, list, count, &err))
        fail_msg("%s", err.text);
    for (int t = 0; t < count; t++)
        assert_int_equal(heard->ended[t], 1);
}

static const struct config_generate greedy = {.tokens = 25, .top_p = 1, .repetition_penalty = 1};

/* The likeliest token behind a text, by a pass over all of it. */
static int32_t next_token(const struct session *s, const struct text *text, double *margin)
{
    const float *logits = rig_logits(s, text->ids, text->count, text->count - 1);
    int32_t best = 0;
    float second = -INFINITY;
    for (int32_t i = 1; i < VOCAB; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int32_t i = 0; i < VOCAB; i++)
        second = i != best && logits[i] > second ? logits[i] : second;
    *margin = logits[best] - second;
    return best;
}

/* Token by token what a pass over the whole text says, as long as it fits the context. */
static void check_text(const struct session *s, const struct text *prompt, const struct text *heard,
                       int *compared)
{
    struct text text = *prompt;
    double margin;
    for (int64_t i = 0; i <= heard->count && text.count <= s->config.data.seq_len; i++) {
        int32_t want = next_token(s, &text, &margin);
        if (margin < 1e-4) /* either will do, and what follows is another text */
            return;
        if (i == heard->count) {
            assert_true(i == greedy.tokens || want == STOP);
            return;
        }
        assert_int_equal(heard->ids[i], want);
        text.ids[text.count++] = want;
        ++*compared;
    }
}

static void test_same_as_without_cache(void **state)
{
    for (int m = 0; m < MODELS; m++) {
        struct mem mem = {0};
        struct text prompts[TEXTS];
        struct heard heard = {.ends_at = -1};
        int compared = 0;
        struct session *s = open_model(&mem, models[m], 1);
        struct generator *g = generator_create(s);
        make_prompts(prompts, s->config.data.seq_len);
        run(g, &greedy, prompts, TEXTS, &heard);
        for (int t = 0; t < TEXTS; t++)
            check_text(s, &prompts[t], &heard.text[t], &compared);
        print_message("%d tokens of %s\n", compared, models[m] + strlen(SIZES));
        assert_true(compared > 30);
        generator_destroy(g);
        session_close(s);
        assert_int_equal(mem.blocks, 0);
    }
}

static void assert_alike(const struct text *a, const struct text *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ids, b->ids, (size_t)a->count * sizeof *a->ids);
}

/* Drawn with everything on, so that the random numbers of a text must be its own; until the context
 * was full several times. */
static void test_same_beside_others(void **state)
{
    const struct config_generate how = {.tokens = 120,
                                        .min_tokens = 30,
                                        .temperature = 0.9,
                                        .top_k = 40,
                                        .top_p = 0.95,
                                        .repetition_penalty = 1.1};
    for (int m = 0; m < MODELS; m++) {
        struct mem mem = {0};
        struct text prompts[TEXTS];
        struct heard alone = {.ends_at = -1}, beside;
        struct session *s = open_model(&mem, models[m], 1);
        struct generator *g = generator_create(s);
        make_prompts(prompts, s->config.data.seq_len);
        run(g, &how, prompts, TEXTS, &alone);
        generator_destroy(g);
        session_close(s);
        for (int t = 0; t < TEXTS; t++)
            assert_true(alone.text[t].count >= 30);
        for (int slots = 2; slots <= 5; slots += 3) {
            beside = (struct heard){.ends_at = -1};
            s = open_model(&mem, models[m], slots);
            g = generator_create(s);
            run(g, &how, prompts, TEXTS, &beside);
            for (int t = 0; t < TEXTS; t++)
                assert_alike(&alone.text[t], &beside.text[t]);
            generator_destroy(g);
            session_close(s);
        }
    }
}

/* However many threads draw: one, fewer and more than there are texts. */
static void test_same_with_any_threads(void **state)
{
    const struct config_generate how = {.tokens = 60,
                                        .min_tokens = 20,
                                        .temperature = 0.9,
                                        .top_p = 0.9,
                                        .repetition_penalty = 1.1};
    struct mem mem = {0};
    struct text prompts[TEXTS];
    struct heard one = {.ends_at = -1};
    setenv("OMP_DYNAMIC", "false", 1); /* all threads, also while others compute */
    for (int threads = 1; threads <= TEXTS + 2; threads++) {
        struct heard heard = {.ends_at = -1};
        char settings[1024];
        snprintf(settings, sizeof settings, "%s run.threads=%d", models[0], threads);
        struct session *s = open_model(&mem, settings, TEXTS);
        struct generator *g = generator_create(s);
        assert_int_equal(device_threads(s->device), threads);
        make_prompts(prompts, s->config.data.seq_len);
        run(g, &how, prompts, TEXTS, threads == 1 ? &one : &heard);
        for (int t = 0; t < TEXTS && threads > 1; t++)
            assert_alike(&one.text[t], &heard.text[t]);
        generator_destroy(g);
        session_close(s);
    }
    unsetenv("OMP_DYNAMIC");
    assert_int_equal(mem.blocks, 0);
}

/* A text that goes on, as a conversation does, and one that begins like the last but differs. */
static void test_what_is_kept_is_used_again(void **state)
{
    for (int m = 0; m < MODELS; m++) {
        struct mem mem = {0};
        struct session *s = open_model(&mem, models[m], 1);
        struct text prompts[TEXTS], next;
        struct generator *g = generator_create(s);
        make_prompts(prompts, 32);
        for (int differs = 0; differs < 3; differs++) {
            struct heard first = {.ends_at = -1}, again = {.ends_at = -1}, fresh = {.ends_at = -1};
            run(g, &greedy, &prompts[1], 1, &first);
            next = prompts[1];
            memcpy(next.ids + next.count, first.text[0].ids, sizeof(int32_t) * 6);
            next.count += first.text[0].count < 6 ? first.text[0].count : 6;
            next.ids[next.count++] = 5;
            if (differs == 1)
                next.ids[4] = (next.ids[4] + 1) % VOCAB;
            if (differs == 2)
                next.count = 9;
            run(g, &greedy, &next, 1, &again);
            struct generator *other = generator_create(s);
            run(other, &greedy, &next, 1, &fresh);
            assert_alike(&fresh.text[0], &again.text[0]);
            generator_destroy(other);
        }
        generator_destroy(g);
        session_close(s);
    }
}

/* By the receiver's wish, a stop token, the number of tokens. */
static void test_ends(void **state)
{
    struct mem mem = {0};
    struct text prompts[TEXTS];
    struct heard all = {.ends_at = -1}, some = {0};
    struct session *s = open_model(&mem, models[0], 2);
    struct generator *g = generator_create(s);
    struct config_generate how = greedy;
    how.temperature = 1;
    make_prompts(prompts, 40);
    run(g, &how, prompts, TEXTS, &all);
    some.ends_at = all.text[1].ids[2];
    run(g, &how, prompts, TEXTS, &some);
    for (int t = 0; t < TEXTS; t++) {
        int64_t n = some.text[t].count;
        assert_true(n <= how.tokens);
        assert_memory_equal(some.text[t].ids, all.text[t].ids, (size_t)n * sizeof(int32_t));
        for (int64_t i = 0; i < n; i++) {
            assert_int_not_equal(some.text[t].ids[i], STOP);
            assert_true(i == n - 1 || some.text[t].ids[i] != some.ends_at);
        }
    }
    assert_true(some.text[1].count <= 3);
    generator_destroy(g);
    session_close(s);
    assert_int_equal(mem.blocks, 0);
}

/* A pass over prompts has no more rows than the longest prompt asks for, where that is known. */
static void test_rows_of_prompts(void **state)
{
    static const struct {
        int64_t context, texts, longest, prompt;
    } rows[] = {
        {.context = 200, .texts = 1, .longest = 0, .prompt = 128},
        {.context = 200, .texts = 1, .longest = 1, .prompt = 16},
        {.context = 200, .texts = 1, .longest = 64, .prompt = 64},
        {.context = 200, .texts = 1, .longest = 65, .prompt = 80},
        {.context = 200, .texts = 1, .longest = 190, .prompt = 192},
        {.context = 200, .texts = 8, .longest = 190, .prompt = 64},
        {.context = 2000, .texts = 1, .longest = 1030, .prompt = 528},
        {.context = 4200, .texts = 1, .longest = 4000, .prompt = 1008},
        {.context = 1024, .texts = 1, .longest = 2050, .prompt = 1024},
        {.context = 4200, .texts = 3, .longest = 4000, .prompt = 128},
        {.context = 4200, .texts = 64, .longest = 4000, .prompt = 16},
        {.context = 4200, .texts = 8, .longest = 0, .prompt = 64},
        {.context = 200, .texts = 8, .longest = 20, .prompt = 32},
        {.context = 13, .texts = 1, .longest = 13, .prompt = 14},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct config config = rig_config(SIZES "data.seq_len=8 generate.batch=64");
        config.data.seq_len = rows[i].context;
        config.generate.longest = rows[i].longest;
        struct units_generate sizes = layout_generate(&config, rows[i].texts);
        assert_int_equal(sizes.batch, rows[i].texts);
        assert_int_equal(sizes.prompt, rows[i].prompt);
        assert_int_equal(sizes.cache, rows[i].context + rows[i].prompt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_prompts),
        cmocka_unit_test(test_same_as_without_cache),
        cmocka_unit_test(test_same_beside_others),
        cmocka_unit_test(test_same_with_any_threads),
        cmocka_unit_test(test_what_is_kept_is_used_again),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
