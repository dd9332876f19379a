/* test_packing.c - packed documents on several ranks: the numbers of one rank whatever the layout;
 * what a document's tokens are changes nothing for the others, to the bit.
 *
 * With CHECK_SHORT=1 the losses of a layout are compared for one of the two families; for both by
 * `make check-whole`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "io/disk.h"
#include "tests/mpi/training.h"

enum { SEQ = 24, VOCAB = 101, DOCUMENTS = 400 };

struct packing_test {
    struct checks c;
    char dir[64], tokens[96];
    double worst;
};

#define MODEL                                                                               \
    "model.layers=2 model.hidden=24 model.heads=4 model.ffn=40 model.vocab=101 "            \
    "model.max_seq_len=24 data.seq_len=24 data.packing=documents device=cpu run.threads=1 " \
    "train.lr=3e-3 train.steps=50 train.warmup_steps=5 train.global_batch=6 "

static const char *const families[] = {
    "model.family=llama model.kv_heads=2 ",
    "model.family=gpt2 model.kv_heads=4 model.tie_embeddings=true ",
};

/* Of 1, 2, 3 and 4 ranks; "": all share one copy. */
static const struct {
    int ranks;
    const char *text;
} layouts[] = {
    {1, "recompute=full train.micro_batch=1"},
    {2, ""},
    {2, "parallel.tensor=2"},
    {2, "parallel.context=2 recompute=selective"},
    {2, "parallel.pipeline=2 train.micro_batch=2"},
    {2, "parallel.strategy=NO_SHARD train.micro_batch=2"},
    {3, ""},
    {3, "parallel.context=3"},
    {3, "parallel.tensor=3"},
    {4, "parallel.tensor=2 parallel.context=2"},
    {4, "parallel.context=2 parallel.pipeline=2 train.micro_batch=3"},
    {4, "parallel.tensor=2 parallel.pipeline=2 train.micro_batch=3 parallel.schedule=zb_h1"},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

/* Documents of 1 to 40 tokens: some are cut, some have no target. */
static int make_tokens(const char *path, struct error *err)
{
    struct tokens_writer *writer;
    uint32_t ids[40], word = 1;
    int rc = tokens_create(&writer, path, "bytes", VOCAB, "a test", err);
    for (int d = 0; d < DOCUMENTS && !rc; d++) {
        int64_t length = 1 + (int64_t)(philox_u64(3, (uint64_t)d) % 40);
        for (int64_t i = 0; i < length; i++) {
            uint64_t random = philox_u64((uint64_t)d, (uint64_t)i);
            word = (uint32_t)(random % 4 ? (word * 5 + 3) % VOCAB : random / 4 % VOCAB);
            ids[i] = word;
        }
        rc = tokens_append(writer, ids, length, err);
    }
    return rc || tokens_finish(writer, err) ? -1 : 0;
}

static struct config config_of(const char *family, const char *layout)
{
    char text[1024];
    snprintf(text, sizeof text, MODEL "%s%s", family, layout);
    return rig_config(text);
}

static void test_layouts(struct packing_test *t)
{
    for (int f = 0; f < 2; f++) {
        struct trained reference = {0};
        struct training how = {.tokens = t->tokens, .to = TRAINING_STEPS};
        struct config one = config_of(families[f], "");
        snprintf(one.data.valid, sizeof one.data.valid, "%s", t->tokens);
        training_reference(&t->c, &one, &how, &reference);
        for (int i = 0; i < LAYOUTS; i++) {
            struct trained trained = {0}, again = {0};
            if (layouts[i].ranks != world_size(t->c.world) || !training_takes(&t->c, i + f, 2))
                continue;
            struct config config = config_of(families[f], layouts[i].text);
            snprintf(config.data.valid, sizeof config.data.valid, "%s", t->tokens);
            config.train.eval_micro_batch = 1 + i % 3;
            training_run(&t->c, &config, &how, &trained);
            training_run(&t->c, &config, &how, &again);
            double off = training_distance(&trained, &reference);
            double valid = fabs(trained.valid_loss / reference.valid_loss - 1);
            if (!(off <= 1e-5 && valid <= 1e-5))
                fprintf(stderr, "%s%s: losses differ by %g, of evaluation by %g\n", families[f],
                        layouts[i].text, off, valid);
            CHECK(&t->c, off <= 1e-5 && valid <= 1e-5);
            CHECK(&t->c, trained.targets == reference.targets);
            CHECK(&t->c, trained.valid_targets == reference.valid_targets);
            CHECK(&t->c, !memcmp(&trained, &again, sizeof trained));
            t->worst = fmax(t->worst, fmax(off, valid));
        }
    }
}

/* ---- documents do not see each other ---- */

/* Of each sequence the documents that begin at row CUT or behind it are targets; then these have
 * other tokens, or those that begin before it. */
enum { CUT = 11 };
enum spoils { NOTHING, EARLY, LATE };

struct spoilt {
    struct batches batches;
    enum spoils spoils;
};

/* Rows of a rank's sequence, in the order of the whole. */
static int64_t position_of(const struct batches *b, int64_t row)
{
    const struct loader *loader = &b->data.file[0].loader;
    const struct sequence_part part = {.chunk = loader->chunk,
                                       .first = {loader->first[0], loader->first[1]}};
    return sequence_position(&part, row);
}

/* In which document of its sequence does a row lie: one that begins before CUT? */
static int is_early(int32_t document)
{
    return document < CUT;
}

static int load_spoilt(void *user, const struct step_batch *batch, struct error *err)
{
    struct spoilt *s = user;
    struct batches *b = &s->batches;
    int64_t rows = loader_rows(&b->data.file[0].loader);
    int32_t *documents = malloc((size_t)(b->micro_batch * rows) * sizeof *documents);
    struct step_batch places = {.micro = batch->micro, .documents = {documents}};
    int rc = batches_load(b, batch, err) || batches_load_positions(b, &places, err) ? -1 : 0;
    for (int64_t i = 0; i < b->micro_batch * rows && !rc; i++) {
        enum spoils here = is_early(documents[i]) ? EARLY : LATE;
        if (batch->targets && here == EARLY)
            batch->targets[i] = -1;
        if (batch->tokens[0] && s->spoils == here)
            batch->tokens[0][i] =
                (int32_t)((batch->tokens[0][i] + 1 + position_of(b, i % rows)) % VOCAB);
    }
    free(documents);
    return rc;
}

static int load_positions(void *user, const struct step_batch *batch, struct error *err)
{
    struct spoilt *s = user;
    return batches_load_positions(&s->batches, batch, err);
}

/* A step in a new session; its loss, norm, and the state behind it. */
static void spoilt_step(struct packing_test *t, const struct config *config, enum spoils spoils,
                        double outcome[2], uint64_t *hash)
{
    struct error err = {0};
    struct log log = {.level = LOG_ERROR, .rank = world_rank(t->c.world)};
    struct session *s = NULL;
    struct spoilt data = {.spoils = spoils};
    struct step_output output = {0};
    int rc = session_open(&s, t->c.world, &log, &t->c.mem, config, SESSION_TRAIN, NULL, &err);
    CHECK(&t->c, !rc);
    if (rc)
        return;
    rig_init(s);
    CHECK(&t->c, !batches_open(&data.batches, s, t->tokens, LOADER_SHUFFLED, &err));
    struct step_input input = rig_input(s, 1);
    input.load = load_spoilt;
    input.load_positions = load_positions;
    input.user = &data;
    input.decay_all = 0;
    CHECK(&t->c, !executor_run_step(s->executor, s->train, &input, &output, NULL, &err));
    outcome[0] = output.loss;
    outcome[1] = output.grad_norm;
    *hash = rig_hash(s);
    batches_close(&data.batches);
    session_close(s);
}

static void test_isolation(struct packing_test *t)
{
    for (int i = 0; i < LAYOUTS; i++)
        for (int f = 0; f < 2; f++) {
            double one[2] = {0}, other[2] = {0}, seen[2] = {0};
            uint64_t hash[3] = {0};
            if (layouts[i].ranks != world_size(t->c.world))
                continue;
            struct config config = config_of(families[f], layouts[i].text);
            spoilt_step(t, &config, NOTHING, one, &hash[0]);
            spoilt_step(t, &config, EARLY, other, &hash[1]);
            CHECK(&t->c, one[0] > 1 && one[1] > 0);
            CHECK(&t->c, !memcmp(one, other, sizeof one) && hash[0] == hash[1]);
            spoilt_step(t, &config, LATE, seen, &hash[2]); /* the test can see a change */
            CHECK(&t->c, one[0] != seen[0] && one[1] != seen[1]);
        }
}

int main(void)
{
    struct packing_test t = {0};
    struct error err = {0};
    if (checks_start(&t.c))
        return 1;
    training_data(&t.c, t.dir, VOCAB);
    snprintf(t.tokens, sizeof t.tokens, "%s/documents.h5", t.dir);
    CHECK(&t.c, world_rank(t.c.world) || !make_tokens(t.tokens, &err));
    world_barrier(t.c.world);
    test_layouts(&t);
    test_isolation(&t);
    world_barrier(t.c.world);
    if (!world_rank(t.c.world)) {
        printf("# %d ranks: losses of packed documents within %.2g of one rank's\n",
               world_size(t.c.world), t.worst);
        CHECK(&t.c, !disk_remove(t.dir, NULL));
    }
    return checks_finish(&t.c);
}
