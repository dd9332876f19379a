/* tokenizer_split.c - text to words: the steps of a pre-tokenizer, one inside the other.
 *
 * A step cuts its piece where it finds matches, and what becomes of a match is its behavior:
 *
 *     "a-b--c" at '-'         removed           a | b | c
 *                             isolated          a | - | b | - | - | c
 *                             merged with the previous   a- | b- | - | c
 *                             merged with the next       a | -b | - | -c
 *                             contiguous        a | - | b | -- | c
 *
 * Every piece goes through the next step before the next piece is found, so that no list of pieces
 * is made; a match or piece that may still grow is held back.
 */
#include <string.h>

#include "io/tokenizer_private.h"

/* A step at work on a piece.  Ranges are bytes of text. */
struct cut {
    struct tokenizer_encoder *encoder;
    const struct tokenizer_step *step;
    int next;                   /* number of the next step */
    const char *text;           /* the piece */
    enum tokenizer_place place; /* of the piece */
    int has_held;               /* 1: the range [start, end) is held back */
    int was_match;              /* 1: the last range was a match */
    size_t start, end;
};

/* Give a range to the next step.  Returns 0, or -1 with err set, as do all functions below. */
static int hand_on(struct cut *cut, size_t start, size_t end, struct error *err)
{
    if (start == end)
        return 0;
    enum tokenizer_place place = start ? TOKENIZER_INSIDE : cut->place;
    return tokenizer_split(cut->encoder, cut->next, cut->text + start, end - start, place, err);
}

/* Give the range that is held back, if there is one, to the next step. */
static int hand_on_held(struct cut *cut, struct error *err)
{
    int rc = cut->has_held ? hand_on(cut, cut->start, cut->end, err) : 0;
    cut->has_held = 0;
    return rc;
}

/* Hold a range back.  If grows is 1, it is appended to the range that is held; else that one is
 * handed on first. */
static int hold(struct cut *cut, int grows, size_t start, size_t end, struct error *err)
{
    if (grows && cut->has_held) {
        cut->end = end;
        return 0;
    }
    int rc = hand_on_held(cut, err);
    cut->has_held = 1;
    cut->start = start;
    cut->end = end;
    return rc;
}

/* Take the next range of the text: a match (is_match is 1), or the text between two matches. */
static int add_range(struct cut *cut, size_t start, size_t end, int is_match, struct error *err)
{
    int was_match = cut->was_match, rc = 0;
    is_match ^= cut->step->invert;
    cut->was_match = is_match;
    switch (cut->step->behavior) {
    case TOKENIZER_REMOVED: return is_match ? 0 : hand_on(cut, start, end, err);
    case TOKENIZER_ISOLATED: return hand_on(cut, start, end, err);
    case TOKENIZER_CONTIGUOUS: return hold(cut, is_match == was_match, start, end, err);
    case TOKENIZER_MERGED_WITH_PREVIOUS: return hold(cut, is_match && !was_match, start, end, err);
    case TOKENIZER_MERGED_WITH_NEXT:
        rc = hold(cut, !is_match && was_match, start, end, err);
        return rc || is_match ? rc : hand_on_held(cut, err);
    }
    return rc;
}

/* Returns where to look for the next match after an empty one at byte at: after the character
 * there. */
static size_t after_empty(const char *text, size_t bytes, size_t at)
{
    size_t length = 1;
    if (at < bytes)
        tokenizer_code(text + at, &length);
    return at + length;
}

/* Cut the piece by step->find. */
static int cut_at_matches(struct cut *cut, size_t bytes, struct error *err)
{
    size_t done = 0, from = 0, start, end;
    int found = 0;
    while (from <= bytes && (found = cut->step->find(cut->step, cut->encoder, cut->text, bytes,
                                                     from, &start, &end, err)) > 0) {
        int is_empty = start == end;
        if (is_empty && start == done && from) { /* right after another match it does not count */
            from = after_empty(cut->text, bytes, start);
            continue;
        }
        if ((start > done && add_range(cut, done, start, 0, err)) ||
            add_range(cut, start, end, 1, err))
            return -1;
        done = end;
        from = is_empty ? after_empty(cut->text, bytes, end) : end;
    }
    if (found < 0 || (done < bytes && add_range(cut, done, bytes, 0, err)))
        return -1;
    return hand_on_held(cut, err);
}

/* Cut the piece by step->scan, whose matches lie end to end. */
static int cut_by_scan(struct cut *cut, size_t bytes, struct error *err)
{
    const uint16_t *classes = cut->encoder->data->classes;
    for (size_t at = 0, length; at < bytes; at += length) {
        length = cut->step->scan(classes, cut->text + at, bytes - at);
        if (add_range(cut, at, at + length, 1, err))
            return -1;
    }
    return hand_on_held(cut, err);
}

/* Returns the text as step i changes it, with a prefix and with other characters for its spaces, in
 * the encoder's buffer for this step; or text itself, unchanged.  *bytes becomes its length. */
static const char *change(struct tokenizer_encoder *encoder, int i, const char *text, size_t *bytes,
                          enum tokenizer_place place)
{
    const struct tokenizer_step *step = &encoder->data->steps[i];
    struct tokenizer_buffer *out = &encoder->step[i];
    const char *prefix = step->prefix;
    size_t prefix_bytes = prefix ? strlen(prefix) : 0, done = 0;
    int begins = *bytes >= prefix_bytes && prefix && !memcmp(text, prefix, prefix_bytes);
    begins |= step->space && *text == ' ';
    out->bytes = 0;
    if (prefix && !begins && place != TOKENIZER_GOES_ON &&
        (place == TOKENIZER_FIRST || !step->first_only))
        tokenizer_buffer_add(out, prefix, prefix_bytes);
    else if (!step->space)
        return text;
    for (size_t at = 0; step->space && at < *bytes; at++)
        if (text[at] == ' ') {
            tokenizer_buffer_add(out, text + done, at - done);
            tokenizer_buffer_add(out, step->space, strlen(step->space));
            done = at + 1;
        }
    tokenizer_buffer_add(out, text + done, *bytes - done);
    *bytes = out->bytes;
    return out->text;
}

int tokenizer_split(struct tokenizer_encoder *encoder, int i, const char *text, size_t bytes,
                    enum tokenizer_place place, struct error *err)
{
    const struct tokenizer_step *step = &encoder->data->steps[i];
    if (i == encoder->data->step_count)
        return tokenizer_cache_encode(encoder, text, bytes, err);
    if (step->prefix || step->space)
        text = change(encoder, i, text, &bytes, place);
    if (!step->find && !step->scan)
        return tokenizer_split(encoder, i + 1, text, bytes, place, err);
    struct cut cut = {
        .encoder = encoder, .step = step, .next = i + 1, .text = text, .place = place};
    return step->scan ? cut_by_scan(&cut, bytes, err) : cut_at_matches(&cut, bytes, err);
}
