/* test_packed_step.c - a step over packed documents is a step over its documents one by one: the
 * same loss and the same gradients, by whole models; built for the CPU, and for the emulated GPU
 * with PACKED_DEVICE="cuda". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "tests/unit/rig.h"
#include "train/batches.h"

#ifndef PACKED_DEVICE
#define PACKED_DEVICE "cpu"
#endif

enum { VOCAB = 53, DOCUMENTS = 9, SEQ = 33 };

#define MODEL                                                                             \
    "device=" PACKED_DEVICE " model.layers=2 model.hidden=32 model.heads=4 model.ffn=40 " \
    "model.vocab=53 model.max_seq_len=33 data.seq_len=33 model.init_std=0.2 train.clip=0 "

static const struct {
    const char *text;
    double tolerance;
} models[] = {
    {MODEL "model.family=llama model.kv_heads=2", 1e-6},
    {MODEL "model.family=gpt2 model.kv_heads=4 model.tie_embeddings=true", 1e-6},
    {MODEL "model.family=llama model.kv_heads=1 recompute=full train.micro_batch=1", 1e-6},
    {MODEL "model.family=llama model.kv_heads=4 precision=bf16 recompute=selective", 1e-3},
};
enum { MODELS = sizeof models / sizeof models[0] };

static char path[64];

/* Documents of 1 to 29 tokens; one of them is masked in part. */
static int make_file(void **state)
{
    static const int64_t lengths[DOCUMENTS] = {12, 5, 29, 1, 2, 17, 22, 9, 13};
    struct error err = {0};
    struct tokens_writer *writer;
    snprintf(path, sizeof path, "/tmp/trireme-packed-%ld.h5", (long)getpid());
    int rc = tokens_create(&writer, path, "bytes", VOCAB, "", &err);
    for (uint64_t d = 0; d < DOCUMENTS && !rc; d++) {
        uint32_t ids[SEQ];
        uint8_t mask[SEQ];
        for (uint64_t i = 0; i < SEQ; i++) {
            ids[i] = (uint32_t)(philox_u64(d, i) % VOCAB);
            mask[i] = d != 5 || i % 3 != 0;
        }
        rc = tokens_append(writer, ids, lengths[d], &err) ||
             tokens_extend_mask(writer, mask, lengths[d], &err);
    }
    return rc || tokens_finish(writer, &err) ? -1 : 0;
}

static int drop_file(void **state)
{
    return unlink(path);
}

struct outcome {
    struct step_output output;
    int64_t sequences;
    int flats;
    int64_t elems[64];
    float *grad[64]; /* of each flat, of the sum over targets */
};

/* A step over all documents of the file. */
static struct outcome take_step(const char *text, const char *packing)
{
    struct mem mem = {0};
    struct error err = {0};
    struct outcome outcome = {0};
    struct batches batches;
    char all[1024];
    int64_t windows = 1;
    for (int pass = 0; pass < 2; pass++) { /* the first counts sequences */
        snprintf(all, sizeof all, "%s data.packing=%s train.global_batch=%lld", text, packing,
                 (long long)windows);
        struct config config = rig_config(all);
        struct session *s = rig_open(&mem, &config, NULL, 0);
        rig_init(s);
        if (batches_open(&batches, s, path, LOADER_SHUFFLED, &err))
            fail_msg("%s", err.text);
        windows = batches.data.windows;
        struct step_input input = rig_input(s, 1);
        input.load = batches_load;
        input.load_positions = batches_load_positions;
        input.user = &batches;
        if (pass && executor_run_step(s->executor, s->train, &input, &outcome.output, NULL, &err))
            fail_msg("%s", err.text);
        outcome.sequences = windows;
        outcome.flats = s->units->flats;
        for (int f = 0; pass && f < s->units->flats; f++) {
            outcome.elems[f] = s->units->flat[f].shard_elems;
            outcome.grad[f] = rig_download(s, s->train->state->flat[f].grad);
        }
        batches_close(&batches);
        session_close(s);
    }
    assert_int_equal(mem.blocks, 0);
    return outcome;
}

static void outcome_free(struct outcome *o)
{
    for (int f = 0; f < o->flats; f++)
        free(o->grad[f]);
}

/* The largest difference of gradients, as a part of the largest of their flat; gradients are means
 * over what the batch could hold. */
static double distance(const struct outcome *a, const struct outcome *b)
{
    double worst = 0;
    for (int f = 0; f < a->flats; f++) {
        double size = 0, off = 0;
        for (int64_t i = 0; i < a->elems[f]; i++) {
            double x = (double)a->grad[f][i] * (double)a->sequences;
            double y = (double)b->grad[f][i] * (double)b->sequences;
            size = fmax(size, fabs(y));
            off = fmax(off, fabs(x - y));
        }
        assert_true(size > 0 && isfinite(size));
        worst = fmax(worst, off / size);
    }
    return worst;
}

static void packed_is_one_by_one(void **state)
{
    for (int m = 0; m < MODELS; m++) {
        struct outcome packed = take_step(models[m].text, "documents");
        struct outcome alone = take_step(models[m].text, "padded");
        assert_int_equal(packed.sequences, 4); /* 101 rows of 33 */
        assert_int_equal(alone.sequences, 8);
        assert_true(packed.output.targets == alone.output.targets);
        double loss = fabs(packed.output.loss / alone.output.loss - 1);
        double norm = fabs(packed.output.grad_norm / alone.output.grad_norm - 1);
        double off = distance(&packed, &alone);
        print_message("model %d: loss differs by %.1e, gradients by %.1e\n", m, loss, off);
        assert_true(packed.output.loss > 1);
        assert_true(loss <= models[m].tolerance && norm <= models[m].tolerance);
        assert_true(off <= 3 * models[m].tolerance);
        struct outcome stream = take_step(models[m].text, "stream");
        assert_true(fabs(stream.output.loss / alone.output.loss - 1) > 1e-4);
        outcome_free(&packed);
        outcome_free(&alone);
        outcome_free(&stream);
    }
}

int main(void)
{
    char why[128];
    if (!strcmp(PACKED_DEVICE, "cuda") && !device_gpu_count(why)) {
        printf("skipped: no GPU: %s\n", why);
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(packed_is_one_by_one)};
    return cmocka_run_group_tests_name("packed step on " PACKED_DEVICE, tests, make_file,
                                       drop_file);
}
