/* test_generate.c - texts continued on several ranks: the tokens of one rank that keeps nothing,
 * whatever the layout, in sessions that train too and in those that do not.
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/philox.h"
#include "tests/mpi/check.h"
#include "tests/unit/rig.h"
#include "train/generator.h"

enum { VOCAB = 59, TEXTS = 3, TOKENS = 12, LONGEST = 64 };

#define MODEL                                                                        \
    "model.layers=3 model.hidden=32 model.heads=4 model.ffn=48 model.vocab=59 "      \
    "model.max_seq_len=64 model.init_std=0.3 data.seq_len=48 train.global_batch=12 " \
    "train.micro_batch=1 " GENERATE_DEVICE                                           \
    " seed=5 data.valid=none.h5 generate.samples=1 generate.batch=2 "

static const char *const families[] = {
    "model.kv_heads=2 ",
    "model.family=gpt2 model.tie_embeddings=true ",
    "model.kv_heads=1 model.qk_norm=true model.sliding_window=7 ",
    "model.kv_heads=2 model.experts=3 model.experts_per_token=1 ",
};
enum { FAMILIES = sizeof families / sizeof families[0] };

static const struct {
    int ranks;
    const char *text;
} layouts[] = {
    {1, "parallel.strategy=NO_SHARD"},
    {1, "parallel.wrap=none recompute=full"},
    {2, "parallel.tensor=2"},
    {2, "parallel.pipeline=2"},
    {2, "parallel.strategy=FULL_SHARD"},
    {2, "parallel.strategy=SHARD_GRAD_OP parallel.wrap=layers parallel.layers_per_unit=2"},
    {2, "parallel.pipeline=2 parallel.schedule=zb_v"},
    {3, "parallel.tensor=3"},
    {3, "parallel.pipeline=3 parallel.schedule=gpipe"},
    {3, "parallel.strategy=FULL_SHARD"},
    {4, "parallel.tensor=2 parallel.pipeline=2"},
    {4, "parallel.tensor=4"},
    {4, "parallel.pipeline=2 parallel.shard=2 parallel.replicate=1"},
    {4, "parallel.tensor=2 parallel.strategy=HYBRID_SHARD parallel.shard=2 parallel.replicate=1"},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

struct heard {
    int32_t ids[TEXTS][LONGEST];
    int64_t count[TEXTS];
};

/* What one rank says, and by how much each token is above the next. */
struct reference {
    struct heard prompt, text;
    double margin[TEXTS][TOKENS];
};

struct generate_test {
    struct checks c;
    int compared;
};

static struct config config_of(const char *family, const char *layout)
{
    char text[1024];
    snprintf(text, sizeof text, MODEL "%s%s", family, layout);
    return rig_config(text);
}

static void make_prompts(struct heard *prompt)
{
    const int64_t lengths[TEXTS] = {1, 17, 30};
    for (int t = 0; t < TEXTS; t++) {
        prompt->count[t] = lengths[t];
        for (int64_t i = 0; i < lengths[t]; i++)
            prompt->ids[t][i] = (int32_t)(philox_u64(2, (uint64_t)(100 * t + i)) % VOCAB);
    }
}

/* Of one rank without a world, each token by a pass over all before it. */
static void find_reference(struct generate_test *t, const char *family, struct reference *r)
{
    char text[1024];
    snprintf(text, sizeof text, MODEL "%s parallel.strategy=NO_SHARD", family);
    struct config config = rig_config(text);
    config.device = CONFIG_DEVICE_CPU;
    struct session *s = rig_open(&t->c.mem, &config, NULL, 1);
    rig_init(s);
    rig_refresh(s);
    make_prompts(&r->prompt);
    r->text = r->prompt;
    for (int k = 0; k < TEXTS; k++)
        for (int n = 0; n < TOKENS; n++) {
            int64_t count = r->text.count[k];
            const float *logits = rig_logits(s, r->text.ids[k], count, count - 1);
            int best = 0, second = -1;
            for (int i = 1; i < VOCAB; i++)
                best = logits[i] > logits[best] ? i : best;
            for (int i = 0; i < VOCAB; i++)
                if (i != best && (second < 0 || logits[i] > logits[second]))
                    second = i;
            r->margin[k][n] = logits[best] - logits[second];
            r->text.ids[k][r->text.count[k]++] = best;
        }
    session_close(s);
}

static int is_stop(void *user, int64_t id)
{
    return 0;
}

static int take(void *user, int64_t text, int64_t id)
{
    struct heard *heard = user;
    heard->ids[text][heard->count[text]++] = (int32_t)id;
    return 0;
}

/* Token by token, until one that is hardly likelier than another. */
static void compare(struct generate_test *t, const struct reference *r, const struct heard *heard,
                    const char *family, const char *layout)
{
    for (int k = 0; k < TEXTS; k++) {
        CHECK(&t->c, heard->count[k] == TOKENS);
        for (int n = 0; n < TOKENS && r->margin[k][n] > 1e-3; n++) {
            int same = heard->ids[k][n] == r->text.ids[k][r->prompt.count[k] + n];
            if (!same)
                fprintf(stderr, "%s%s: token %d of text %d is another\n", family, layout, n, k);
            CHECK(&t->c, same);
            t->compared += same;
        }
    }
}

static void run(struct generate_test *t, const char *family, const char *layout,
                enum session_use use, const struct reference *r)
{
    struct error err = {0};
    struct log log = {.level = LOG_ERROR, .rank = world_rank(t->c.world)};
    struct config config = config_of(family, layout);
    struct session *s = NULL;
    struct heard heard = {{{0}}};
    struct generator_prompt prompts[TEXTS];
    if (use == SESSION_GENERATE) /* passes over prompts have the rows of these */
        config.generate.longest = r->prompt.count[TEXTS - 1];
    int rc = session_open(&s, t->c.world, &log, &t->c.mem, &config, use, NULL, &err);
    if (rc)
        fprintf(stderr, "%s%s: %s\n", family, layout, err.text);
    CHECK(&t->c, !rc);
    if (rc)
        return;
    rig_init(s);
    for (int k = 0; k < TEXTS; k++)
        prompts[k] = (struct generator_prompt){r->prompt.ids[k], r->prompt.count[k]};
    const struct generator_request request = {
        .how = {.tokens = TOKENS, .top_p = 1, .repetition_penalty = 1},
        .vocab = VOCAB,
        .is_stop = is_stop,
        .take = take,
        .user = &heard};
    struct generator *g = generator_create(s);
    CHECK(&t->c, !generator_run(g, &request, prompts, TEXTS, &err));
    if (world_rank(t->c.world) == generator_root(g))
        compare(t, r, &heard, family, layout);
    else
        CHECK(&t->c, !heard.count[0]);
    generator_destroy(g);
    session_close(s);
}

int main(void)
{
    struct generate_test t = {0};
    if (checks_start(&t.c))
        return 1;
    for (int f = 0; f < FAMILIES; f++) {
        struct reference r;
        find_reference(&t, families[f], &r);
        for (int i = 0; i < LAYOUTS; i++) {
            /* An emulated GPU does one of GENERATE_SHARE, unless all are asked for. */
            if (layouts[i].ranks != world_size(t.c.world) ||
                (rig_is_short() && (f + i) % GENERATE_SHARE))
                continue;
            run(&t, families[f], layouts[i].text, SESSION_TRAIN, &r);
            run(&t, families[f], layouts[i].text, SESSION_GENERATE, &r);
        }
    }
    double compared = t.compared;
    world_all_reduce(t.c.world, &compared, 1, WORLD_SUM);
    CHECK(&t.c, compared > 50);
    if (!world_rank(t.c.world))
        printf("# %d ranks: %.0f tokens as one rank has them\n", world_size(t.c.world), compared);
    return checks_finish(&t.c);
}
