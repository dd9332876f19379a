/* batches.c - see batches.h. */
#include "train/batches.h"

#include "base/round.h"

/* Warn once, not on each rank, of a file without checksums: damage in it is noticed only where a
 * token is outside the vocabulary. */
static void warn_unsealed(const struct session *s, const struct tokens *tokens)
{
    if (!tokens->has_checksums && s->world && !world_rank(s->world))
        log_warn(s->log,
                 "%s carries no checksums, so that damage would go unseen; add them with: trireme "
                 "tokenize --seal %s",
                 tokens->path, tokens->path);
}

int batches_open(struct batches *b, const struct session *s, const char *text,
                 enum loader_order order, struct error *err)
{
    *b = (struct batches){
        .micro_batch = order == LOADER_SEQUENTIAL ? s->layout.eval_batch : s->layout.micro_batch,
        .data_ranks = s->layout.data_ranks,
        .data_rank = s->data_rank,
        .batch = s->layout.global_batch,
    };
    if (s->model->sequences > 1)
        return error_set(err,
                         "model.family: %s reads %d sequences, and a token file has one; nothing "
                         "loads pairs of them yet",
                         s->model->family->name, s->model->sequences);
    const struct loader_options options = {.seq_len = s->config.data.seq_len,
                                           .vocab = s->config.model.vocab,
                                           .seed = (uint64_t)s->config.seed,
                                           .order = order,
                                           .packing = s->config.data.packing};
    if (dataset_open(&b->data, text, &options, err))
        return -1;
    for (int f = 0; f < b->data.files; f++)
        warn_unsealed(s, &b->data.file[f].tokens);
    const struct units_request *r = &s->units->request;
    struct sequence_part part = graph_sequence_part(r->seq[0], r->context);
    dataset_set_part(&b->data, part.chunk, part.first);
    return 0;
}

void batches_close(struct batches *b)
{
    dataset_close(&b->data);
}

void batches_warn_left(const struct batches *b, struct log *log)
{
    const int64_t most = 20; /* one in so many targets is not worth a word */
    int64_t left = dataset_left_rows(&b->data), seq_len = b->data.options.seq_len;
    if (left * most > b->data.tokens)
        log_warn(log,
                 "data.valid: the last %lld of its %lld tokens fill no sequence of "
                 "data.seq_len=%lld, and are not evaluated; data.packing=documents reads all, a "
                 "smaller data.seq_len more",
                 (long long)left, (long long)b->data.tokens, (long long)seq_len);
}

/* The number of samples that a micro-batch of this rank has, 0 after the end of the global batch;
 * *first: its first one, counted from the first of the global batch. */
static int64_t samples_of(const struct batches *b, int micro, int64_t *first)
{
    *first = (micro * b->data_ranks + b->data_rank) * b->micro_batch;
    return max_i64(min_i64(b->batch - *first, b->micro_batch), 0);
}

static int32_t *from_row(int32_t *rows, int64_t row)
{
    return rows ? rows + row : NULL;
}

int batches_load(void *user, const struct step_batch *batch, struct error *err)
{
    struct batches *b = user;
    const struct loader *loader = &b->data.file[0].loader;
    int64_t first, count = samples_of(b, batch->micro, &first), rows = loader_rows(loader);
    for (int64_t i = 0; i < count; i++)
        if (dataset_read(&b->data, b->sample + first + i, from_row(batch->tokens[0], i * rows),
                         from_row(batch->targets, i * rows), err))
            return -1;
    loader_fill(from_row(batch->tokens[0], count * rows), from_row(batch->targets, count * rows),
                (b->micro_batch - count) * rows);
    return 0;
}

/* Write each sample's number, low half first.  Samples beyond the global batch have numbers too,
 * and no targets. */
static void fill_samples(const struct batches *b, uint32_t *samples, int64_t first)
{
    for (int64_t i = 0; samples && i < b->micro_batch; i++) {
        uint64_t sample = (uint64_t)(b->sample + first + i);
        samples[2 * i] = (uint32_t)sample;
        samples[2 * i + 1] = (uint32_t)(sample >> 32);
    }
}

int batches_load_positions(void *user, const struct step_batch *batch, struct error *err)
{
    struct batches *b = user;
    const struct loader *loader = &b->data.file[0].loader;
    int64_t first, count = samples_of(b, batch->micro, &first), rows = loader_rows(loader);
    fill_samples(b, batch->samples[0], first);
    if (!batch->positions[0] && !batch->documents[0])
        return 0;
    for (int64_t i = 0; i < b->micro_batch; i++) {
        int32_t *positions = from_row(batch->positions[0], i * rows);
        int32_t *documents = from_row(batch->documents[0], i * rows);
        if (i >= count)
            loader_fill_positions(loader, positions, documents);
        else if (dataset_positions(&b->data, b->sample + first + i, positions, documents, err))
            return -1;
    }
    return 0;
}
