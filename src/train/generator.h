/* generator.h - continue texts of tokens with a trained model.
 *
 * A generator has config.generate.batch slots, in each a text whose keys and values so far are
 * kept, so that a token costs one pass over the parameters for all of them.  The context of a token
 * is its text, of which data.seq_len tokens are kept at most: when these are full, the last half of
 * them is computed again as the beginning of a text, and that goes on from there.
 */
#ifndef TRIREME_TRAIN_GENERATOR_H
#define TRIREME_TRAIN_GENERATOR_H

#include "train/session.h"
#include "train/stop.h"

struct generator;

/* Make a generator for a session with programs of generation (SESSION_GENERATE, or one that trains
 * with generate.samples).  Not collective.  generator_destroy() frees it (NULL allowed), before the
 * session is closed. */
struct generator *generator_create(struct session *session);
void generator_destroy(struct generator *generator);

/* Forget the keys and values that slots keep.  To be called when parameters have changed. */
void generator_forget(struct generator *generator);

/* Return the rank that draws tokens, the root: the first of those that have the last unit.  The
 * functions of a generator_request are called there alone. */
int generator_root(const struct generator *generator);

struct generator_prompt {
    const int32_t *ids; /* at least one */
    int64_t count;
};

struct generator_request {
    struct config_generate how; /* its batch is the generator's */
    uint64_t seed;              /* the n-th random number of text t follows from (seed, t, n) */
    int64_t vocab;              /* ids below this are drawn, at most the model's vocabulary */
    /* Does a text end at this token, which is then not handed on? */
    int (*is_stop)(void *user, int64_t id);
    /* Take the next token of text number `text` among the prompts.  Returns 1: the text ends with
     * it; or 0. */
    int (*take)(void *user, int64_t text, int64_t id);
    /* Note that a text has ended, by either of these or after how.tokens; NULL allowed. */
    void (*ended)(void *user, int64_t text);
    void *user;              /* first argument of all three */
    const struct stop *stop; /* signals that end it early; NULL, on all ranks: none */
};

/* Continue count texts, as many at a time as there are slots.  The tokens of a text come in order,
 * those of different texts in any.  A prompt that begins as the text that a slot held last, such as
 * a conversation that goes on, is computed from where the two differ.  Collective over the
 * session's world; prompts and request are the same on all ranks, but for the functions.  Returns
 * 0; GENERATOR_STOPPED, on all ranks, when a rank was asked to stop, with some texts not ended; or
 * -1 with err set. */
enum { GENERATOR_STOPPED = 1 };
int generator_run(struct generator *generator, const struct generator_request *request,
                  const struct generator_prompt *prompts, int64_t count, struct error *err);

#endif
