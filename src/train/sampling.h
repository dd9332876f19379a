/* sampling.h - the next token of a text, drawn from its logits. */
#ifndef TRIREME_TRAIN_SAMPLING_H
#define TRIREME_TRAIN_SAMPLING_H

#include <stdint.h>

#include "config/config.h"

/* Memory for draws from one vocabulary, by one thread at a time. */
struct sampling;
struct sampling *sampling_create(int64_t vocab);
void sampling_destroy(struct sampling *sampling); /* NULL allowed */

/* Draw a token below vocab, by these steps in this order, as Hugging Face's processors of logits
 * do:
 *  - repetition_penalty: logits of tokens among ids, each once, are divided by it where they are
 *    positive, and multiplied where they are negative;
 *  - temperature 0: the likeliest token, of equal ones the first, and nothing below applies;
 *  - temperature: logits are divided by it;
 *  - top_k: tokens with a logit below the k-th largest are left out;
 *  - top_p: the fewest tokens, likeliest first, whose probabilities come to top_p are kept;
 *  - uniform, in [0, 1), is where the token lies in the sum of the probabilities, in order of ids.
 * logits [vocab] are changed; those of minus infinity are never drawn, and one is finite.  Returns
 * -1 where one is NaN. */
int64_t sampling_draw(struct sampling *sampling, const struct config_generate *how, float *logits,
                      const int32_t *ids, int64_t count, double uniform);

#endif
