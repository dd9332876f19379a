/* training.c - see training.h. */
#include "tests/mpi/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "train/evaluate.h"
#include "train/lr_schedule.h"
#include "train/pending_update.h"
#include "train/run_checkpoint.h"
#include "train/weights.h"

/* Words that follow from the one before more often than not, so that there is something to learn.
 */
static int make_tokens(const char *path, int64_t vocab, struct error *err)
{
    enum { COUNT = 20011 };
    struct tokens_writer *writer;
    uint32_t *text = malloc(COUNT * sizeof *text);
    uint32_t word = 1;
    for (int i = 0; i < COUNT; i++) {
        uint64_t random = philox_u64(7, (uint64_t)i);
        word = (uint32_t)(random % 4 ? (word * 5 + 3) % vocab : random / 4 % (uint64_t)vocab);
        text[i] = word;
    }
    int rc = tokens_create(&writer, path, "bytes", vocab, "a test", err);
    if (!rc)
        rc = tokens_append(writer, text, COUNT, err) || tokens_finish(writer, err) ? -1 : 0;
    free(text);
    return rc;
}

void training_data(struct checks *c, char *dir, int64_t vocab)
{
    struct error err = {0};
    char path[96];
    int rc = 0;
    strcpy(dir, "/tmp/trireme-training-XXXXXX");
    if (!world_rank(c->world)) {
        rc = mkdtemp(dir) ? 0 : error_errno(&err, "no directory %s", dir);
        snprintf(path, sizeof path, "%s/tokens.h5", dir);
        rc = rc ? rc : make_tokens(path, vocab, &err);
    }
    if (world_agree(c->world, rc, &err))
        fprintf(stderr, "%s\n", err.text);
    world_broadcast(c->world, dir, 64, 0);
}

/* Samples 0, 3, 6, ... keep a fifth of their targets, 1, 4, ... all, the others one half. */
static int dropped(int64_t sample, int64_t at)
{
    static const uint64_t fifths[] = {4, 0, 2};
    return philox_u64((uint64_t)sample, (uint64_t)at) % 5 < fifths[sample % 3];
}

static int load_masked(void *user, const struct step_batch *batch, struct error *err)
{
    struct batches *b = user;
    const struct loader *loader = &b->data.file[0].loader;
    int64_t seq = loader_rows(loader);
    const struct sequence_part part = {.chunk = loader->chunk,
                                       .first = {loader->first[0], loader->first[1]}};
    int64_t first = b->sample + (batch->micro * b->data_ranks + b->data_rank) * b->micro_batch;
    if (batches_load(user, batch, err))
        return -1;
    for (int64_t i = 0; batch->targets && i < b->micro_batch * seq; i++)
        batch->targets[i] =
            dropped(first + i / seq, sequence_position(&part, i % seq)) ? -1 : batch->targets[i];
    return 0;
}

/* In the middle and at the end, over the whole file. */
static int maybe_evaluate(struct session *s, const struct training *how, int step,
                          struct trained *trained, struct error *err)
{
    struct batches valid;
    if (!s->evaluate || (step != how->to && step != how->to / 2))
        return 0;
    int rc = batches_open(&valid, s, s->config.data.valid, LOADER_SEQUENTIAL, err);
    if (!rc)
        rc = evaluate(s, &valid, 0, NULL, &trained->valid_loss, &trained->valid_targets, err);
    batches_close(&valid);
    return rc;
}

/* Steps of an opened session in its state. */
static int steps(struct session *s, const struct training *how, struct scaler *scaler,
                 struct trained *trained, struct error *err)
{
    struct batches batches;
    struct pending_update pending = {0};
    if (batches_open(&batches, s, how->tokens, LOADER_SHUFFLED, err))
        return -1;
    int rc = 0;
    for (int step = how->from + 1; !rc && step <= how->to; step++) {
        struct step_input input = rig_input(s, step);
        struct step_output output;
        input.load = how->masked ? load_masked : batches_load;
        input.load_positions = batches_load_positions;
        input.user = &batches;
        input.loss_scale = scaler->scale;
        input.rule = lr_schedule_rule(&s->config.train, step - scaler->skipped);
        batches.sample = (step - 1) * s->layout.global_batch;
        rc = pending_update_pass(&pending, s, &input, err) ||
             executor_run_step(s->executor, s->train, &input, &output, NULL, err);
        pending_update_started(&pending, s, rc);
        trained->loss[step - 1] = output.loss;
        trained->norm[step - 1] = output.grad_norm;
        trained->targets = output.targets;
        trained->scale[step - 1] = scaler->scale;
        scaler_update(scaler, output.skipped);
        if (!rc && (step == how->to || step == how->to / 2))
            rc = pending_update_make(&pending, s, err);
        rc = rc ? rc : maybe_evaluate(s, how, step, trained, err);
    }
    batches_close(&batches);
    trained->skipped = scaler->skipped;
    trained->hash = rig_hash(s);
    return rc;
}

int training_load(struct session *s, const char *path, struct run_position *position,
                  struct error *err)
{
    struct checkpoint *checkpoint;
    if (run_checkpoint_open(&checkpoint, s->world, path, s->log, err))
        return -1;
    int rc = run_checkpoint_load(s, checkpoint, position, err);
    checkpoint_close(checkpoint);
    return rc;
}

static int begin(struct session *s, const struct training *how, struct scaler *scaler,
                 struct error *err)
{
    struct run_position position = {.scaler = scaler_begin(&s->config)};
    *scaler = position.scaler;
    if (!how->from) {
        rig_init(s);
        return 0;
    }
    if (training_load(s, how->checkpoints, &position, err))
        return -1;
    if (position.step != how->from || position.samples != how->from * s->layout.global_batch)
        return error_set(err, "no checkpoint of step %d", how->from);
    *scaler = position.scaler;
    return 0;
}

void training_run(struct checks *c, const struct config *config, const struct training *how,
                  struct trained *trained)
{
    struct error err = {0};
    struct log log = {.level = LOG_ERROR, .rank = world_rank(c->world)};
    struct session *s = NULL;
    struct scaler scaler;
    int rc = session_open(&s, c->world, &log, &c->mem, config, SESSION_TRAIN, NULL, &err);
    if (!rc)
        rc = begin(s, how, &scaler, &err) || steps(s, how, &scaler, trained, &err) ? -1 : 0;
    if (!rc && how->checkpoints && how->to < TRAINING_STEPS) {
        struct run_position position = {
            .step = how->to, .samples = how->to * s->layout.global_batch, .scaler = scaler};
        struct run_origin none = {0};
        rc = run_checkpoint_write(s, how->checkpoints, position, &none, &err);
    }
    CHECK(c, !rc);
    if (rc)
        fprintf(stderr, "rank %d: %s\n", world_rank(c->world), err.text);
    session_close(s);
}

void training_reference(struct checks *c, const struct config *config, const struct training *how,
                        struct trained *trained)
{
    struct error err = {0};
    if (!world_rank(c->world)) {
        struct mem mem = {0};
        struct session *s = rig_open(&mem, config, NULL, 0);
        struct scaler scaler = scaler_begin(config);
        rig_init(s);
        CHECK(c, !steps(s, how, &scaler, trained, &err));
        session_close(s);
        CHECK(c, !mem.blocks);
    }
    world_broadcast(c->world, trained, sizeof *trained, 0);
}

static void check_bytes(struct checks *c, const char *what, int64_t planned, int64_t counted)
{
    if (counted != planned)
        fprintf(stderr, "rank %d: %s: planned %lld bytes, counted %lld\n", world_rank(c->world),
                what, (long long)planned, (long long)counted);
    CHECK(c, counted == planned);
}

void training_check_volume(struct checks *c, const struct session *s,
                           const struct report_rank *plan)
{
    check_bytes(c, "sent", plan->sent_bytes, executor_sent_bytes(s->executor));
    for (int stream = 0; stream < STREAMS; stream++)
        check_bytes(c, program_stream_name(stream), plan->moved_bytes[stream],
                    executor_moved_bytes(s->executor, stream));
}

int training_takes(const struct checks *c, int cell, int share)
{
    return !rig_is_short() || (cell + world_size(c->world)) % share == 0;
}

double training_distance(const struct trained *a, const struct trained *b)
{
    double most = 0;
    for (int i = 0; i < TRAINING_STEPS; i++) {
        double off = fabs(a->loss[i] / b->loss[i] - 1);
        most = off <= most ? most : off; /* NaN stays */
    }
    return most;
}
