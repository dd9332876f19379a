/* batches.c - see batches.h. */
#include "train/batches.h"

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

int batches_open(struct batches *b, const struct session *s, const char *path,
                 enum loader_order order, struct error *err)
{
    *b = (struct batches){
        .micro_batch = s->layout.micro_batch,
        .data_ranks = s->layout.data_ranks,
        .data_rank = s->data_rank,
        .batch = s->layout.global_batch,
    };
    if (s->model->sequences > 1)
        return error_set(err,
                         "model.family: %s reads %d sequences, and a token file has one; nothing "
                         "loads pairs of them yet",
                         s->model->family->name, s->model->sequences);
    if (tokens_open(&b->tokens, path, err))
        return -1;
    warn_unsealed(s, &b->tokens);
    if (loader_init(&b->loader, &b->tokens, s->config.data.seq_len, s->config.model.vocab,
                    (uint64_t)s->config.seed, order, err))
        return -1;
    const struct units_request *r = &s->units->request;
    struct sequence_part part = graph_sequence_part(r->seq[0], r->context);
    loader_set_part(&b->loader, part.chunk, part.first);
    return 0;
}

void batches_close(struct batches *b)
{
    tokens_close(&b->tokens);
}

static void mask(struct batches *b, int64_t from, const struct step_batch *batch)
{
    int64_t rows = loader_rows(&b->loader), first = from * rows;
    loader_fill(batch->tokens[0] ? batch->tokens[0] + first : NULL,
                batch->targets ? batch->targets + first : NULL, b->micro_batch * rows - first);
}

int batches_load(void *user, const struct step_batch *batch, struct error *err)
{
    struct batches *b = user;
    int64_t first = (batch->micro * b->data_ranks + b->data_rank) * b->micro_batch;
    int64_t left = b->batch - first, count = left < b->micro_batch ? left : b->micro_batch;
    count = count > 0 ? count : 0;
    if (count &&
        loader_read(&b->loader, b->sample + first, count, batch->tokens[0], batch->targets, err))
        return -1;
    mask(b, count, batch);
    return 0;
}
