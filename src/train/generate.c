/* generate.c - see generate.h.
 *
 * Every token is a forward pass over the last seq_len tokens: simple, and the same segments as
 * training.  Nothing is cached from token to token.
 */
#include "train/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/philox.h"

struct text {
    int32_t *ids;
    int64_t count, seq;
};

static int load(void *user, const struct step_batch *batch, struct error *err)
{
    const struct text *text = user;
    int32_t *tokens = batch->tokens[0], *targets = batch->targets;
    int64_t first = text->count > text->seq ? text->count - text->seq : 0;
    int64_t shown = text->count - first;
    memset(tokens, 0, (size_t)text->seq * sizeof *tokens);
    memcpy(tokens, text->ids + first, (size_t)shown * sizeof *tokens);
    memset(targets, 0, (size_t)text->seq * sizeof *targets);
    targets[0] = (int32_t)(shown - 1); /* the row whose logits are computed */
    return 0;
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The lowest logit among the k most likely tokens. */
static float threshold(const float *logits, float *sorted, int64_t vocab, int64_t k)
{
    if (k <= 0 || k >= vocab)
        return -INFINITY;
    memcpy(sorted, logits, (size_t)vocab * sizeof *sorted);
    qsort(sorted, (size_t)vocab, sizeof *sorted, descending);
    return sorted[k - 1];
}

static int64_t likeliest(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static int64_t draw(const float *logits, float *scratch, int64_t vocab,
                    const struct generate_request *request, int64_t index)
{
    int64_t best = likeliest(logits, vocab);
    if (request->temperature <= 0)
        return best;
    float least = threshold(logits, scratch, vocab, request->top_k);
    double total = 0;
    for (int64_t i = 0; i < vocab; i++) {
        scratch[i] =
            logits[i] < least ? 0 : (float)exp((logits[i] - logits[best]) / request->temperature);
        total += scratch[i];
    }
    uint64_t key = philox_key(request->seed, "generate");
    double at = (double)(philox_u64(key, (uint64_t)index) >> 11) * 0x1p-53 * total;
    for (int64_t i = 0; i < vocab; i++)
        if ((at -= scratch[i]) < 0 && scratch[i] > 0)
            return i;
    return best;
}

static int start(struct text *text, const struct tokenizer *tokenizer,
                 const struct generate_request *request, struct error *err)
{
    uint32_t *ids;
    int64_t count;
    if (tokenizer_encode(tokenizer, request->prompt, strlen(request->prompt), 0, &ids, &count, err))
        return -1;
    if (!count && tokenizer->end_of_text < 0) {
        free(ids);
        return error_set(err,
                         "tokenizer %s has no token that ends texts, so that the prompt cannot "
                         "be empty",
                         tokenizer->name);
    }
    text->ids = array_make((size_t)(count + request->tokens + 1), sizeof *text->ids);
    if (!count) /* an empty prompt: a text begins after an end-of-text token */
        text->ids[text->count++] = (int32_t)tokenizer->end_of_text;
    for (int64_t i = 0; i < count; i++)
        text->ids[text->count++] = (int32_t)ids[i];
    free(ids);
    return 0;
}

static void put(FILE *out, const char *text, size_t bytes)
{
    if (!out)
        return;
    fwrite(text, 1, bytes, out);
    fflush(out);
}

int generate(struct session *s, const struct tokenizer *tokenizer,
             const struct generate_request *request, FILE *out, struct error *err)
{
    struct text text = {.seq = s->config.data.seq_len};
    struct step_input input = {.load = load, .user = &text};
    int64_t vocab = tokenizer->vocab;
    float *scratch = array_make((size_t)vocab, sizeof *scratch);
    float *logits = array_make((size_t)vocab, sizeof *logits);
    const void *at = executor_buffer(s->executor, &s->logits->buffer[s->logits->logits]);
    struct tokenizer_decoder *decoder;
    size_t bytes;
    int rc = start(&text, tokenizer, request, err);
    tokenizer_decoder_create(&decoder, tokenizer, TOKENIZER_CONTINUED);
    if (!rc)
        put(out, request->prompt, strlen(request->prompt));
    for (int64_t n = 0; !rc && n < request->tokens; n++) {
        rc = execute(s->executor, s->logits, &input, NULL, NULL, err) ||
             device_download(s->device, logits, at, (size_t)vocab * sizeof *logits, err);
        if (rc)
            break;
        int64_t id = draw(logits, scratch, vocab, request, n);
        if (tokenizer_is_stop(tokenizer, id))
            break;
        text.ids[text.count++] = (int32_t)id;
        const char *piece = tokenizer_decoder_add(decoder, (uint32_t)id, &bytes);
        put(out, piece, bytes);
    }
    const char *rest = tokenizer_decoder_finish(decoder, &bytes);
    put(out, rest, bytes);
    put(out, "\n", 1);
    tokenizer_decoder_destroy(decoder);
    free(scratch);
    free(logits);
    free(text.ids);
    return rc ? -1 : 0;
}
