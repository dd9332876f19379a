/* ops_attention.h - what ops of attention and dropout work on: parts of sequences, masks, shapes.
 *
 * Part of ops.h, whose conventions hold here.
 */
#ifndef TRIREME_DEVICE_OPS_ATTENTION_H
#define TRIREME_DEVICE_OPS_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

/* The part of a sequence that a rank has: two chunks of its rows, one after the other. */
struct sequence_part {
    int64_t chunk;    /* rows of each chunk; 0: the rank has the whole sequence */
    int64_t first[2]; /* positions in the sequence at which the chunks begin, in ascending order */
};

/* The position, in the whole sequence, of the rank's row number `row` of it. */
static inline int64_t sequence_position(const struct sequence_part *p, int64_t row)
{
    return !p->chunk ? row : row < p->chunk ? p->first[0] + row : p->first[1] + row - p->chunk;
}

/* Which numbers dropout sets to zero: a function of a key and of a number's place in training
 * alone, the same on every layout and whenever it is asked.  Of sample s, counted from the start of
 * training, row r of its sequence and column c, word c % 4 of Philox4x32-10 (base/philox.h) of
 *   counter { c / 4, r, lower half of s, s >> 32 | plane << 16 }
 * under the key: the number is dropped where that is below `limit`.  plane: 0, or of attention the
 * head.  s is below 2^48, plane below 2^16. */
struct dropout_mask {
    uint64_t key;
    uint32_t limit;          /* of 2^32 words so many are dropped; 0: none */
    float factor;            /* of those kept: 2^32 / (2^32 - limit) */
    const uint32_t *samples; /* where ops work, [sequences, 2]: s of each, its lower half first */
};

/* A mask that drops a share of all numbers, from 0 to below 1; the caller sets key and samples. */
static inline struct dropout_mask dropout_mask_of(double share)
{
    const double words = 4294967296.0;
    uint32_t limit = (uint32_t)(share * words + 0.5);
    struct dropout_mask mask = {0, limit, (float)(words / (words - limit)), NULL};
    return mask; /* C++ reads this too */
}

/* Dropout of a tensor x.  Its rows are those of `batch` sequences of `seq` rows, seq being the
 * rank's part of each; or, where `ranks` ranks share these rows, the own rows of rank `rank`, in
 * `row_chunks` chunks (graph/op_collective.c).  Padding rows after the last one have any mask. */
struct dropout {
    enum dtype dt;
    int64_t rows, cols; /* of x */
    int64_t first;      /* number of x's column 0 in the whole tensor */
    int64_t batch, seq;
    struct sequence_part part;
    int64_t ranks, rank, row_chunks; /* ranks and row_chunks at least 1 */
    struct dropout_mask mask;
};

/* The number of x's row r among the rows of all ranks that share them, batch * seq in number. */
static inline int64_t dropout_row(const struct dropout *d, int64_t r)
{
    int64_t each = d->rows / d->row_chunks, last = d->batch * d->seq - 1;
    int64_t row = (r / each * d->ranks + d->rank) * each + r % each;
    return row < last ? row : last;
}

/* What attention may do beside its plain form; one bit each.  attention_forms of a device's struct
 * device_ops has the bits of those that it offers. */
enum attention_form {
    ATTENTION_FULL = 1,      /* every query sees all keys of its sequence: no causal mask */
    ATTENTION_SEPARATE = 2,  /* keys and values are an input of their own, kv, with its own rows */
    ATTENTION_DOCUMENTS = 4, /* a query sees no key before the first row of its document */
    ATTENTION_PART = 8,      /* separate, causal, and queries are a part of the keys' sequence */
    ATTENTION_WINDOW = 16,   /* causal, and a query sees its own key and the window - 1 before it */
    ATTENTION_DROPOUT = 32,  /* the weights of some pairs of query and key are set to 0 */
};

/* Attention with grouped queries: query head h reads key/value head h / (heads / kv_heads).
 *   plain (forms 0)  causal, over packed projections: qkv [batch, seq, (heads + 2*kv_heads) *
 *                    head_dim], in each row all query heads, then all key heads, then all value
 *                    heads
 *   separate         the argument qkv is q [batch, seq, heads * head_dim], and the member kv is
 *                    [batch, kv_seq, 2*kv_heads * head_dim], key heads first; causal only where
 *                    kv_seq is seq, or with ATTENTION_PART
 *   part             the query in row r of its sequence sees the keys up to and including position
 *                    sequence_position(&part, r) */
struct attention {
    enum dtype dt;
    int64_t batch, seq;
    int64_t heads, kv_heads, head_dim; /* head_dim even */
    float scale;                       /* of the scores, positive; 1/sqrt(head_dim) usually */
    unsigned forms;                    /* bits of enum attention_form */
    int64_t kv_seq;                    /* separate: keys of a sequence, at least 1 */
    const void *kv;                    /* separate: keys and values */
    void *dkv;                         /* separate, backward: their gradient, written */
    const int32_t *documents;  /* [batch, seq]: for each query the position, in its sequence, of the
                                  first key of its document: from 0 to the query's own, never
                                  falling from one query to the next; not with ATTENTION_FULL */
    struct sequence_part part; /* seq is 2 * part.chunk; only with ATTENTION_PART */
    int64_t window;            /* at least 1; only with ATTENTION_WINDOW */
    /* Only with ATTENTION_DROPOUT: the mask of the weights that the softmax gives.  Its rows are
     * the positions of queries, its columns those of keys, its planes first_head + the head's
     * number, first_head being the number of the model's heads before the rank's own. */
    struct dropout_mask dropout;
    int64_t first_head;
    int any_order;        /* backward and its scratch: struct device's any_order */
    size_t scratch_bytes; /* backward and its scratch: struct device's attention_bytes */
};

/* How many keys a sequence has. */
static inline int64_t attention_keys(const struct attention *a)
{
    return a->forms & ATTENTION_SEPARATE ? a->kv_seq : a->seq;
}

/* The first key that the query at a position sees by the window; its document may begin later. */
static inline int64_t attention_window_start(const struct attention *a, int64_t position)
{
    int64_t start = a->forms & ATTENTION_WINDOW ? position - a->window + 1 : 0;
    return start > 0 ? start : 0;
}

/* Attention of rows that continue sequences, in generation.  A cache [batch, capacity, 2*kv_heads *
 * head_dim] holds the keys and values of earlier positions, a row for each, key heads first.  The
 * new rows, qkv [batch, seq, (heads + 2*kv_heads) * head_dim] as in struct attention, have
 * consecutive positions in their sequence. */
struct attention_cached {
    enum dtype dt;                     /* of rows and cache */
    int64_t batch, seq, capacity;      /* seq is 1 or even, and at most capacity */
    int64_t heads, kv_heads, head_dim; /* head_dim even */
    float scale;                       /* as in struct attention */
    int64_t window; /* keys that a query sees, its own and those before it; 0: all before */
};

/* Count the pairs of query and key that causal attention looks at, for the `rows` queries from
 * position `first` on: each query with its own key and those before it, within the window. */
static inline double attention_causal_pairs_of(const struct attention *a, int64_t first,
                                               int64_t rows)
{
    double n = (double)rows, pairs = n * (double)first + 0.5 * n * (n + 1);
    double hidden = (double)attention_window_start(a, first + rows - 1);
    double queries = hidden < n ? hidden : n; /* that do not see some of the keys before them */
    return pairs - queries * (hidden - 0.5 * (queries - 1));
}

/* Count them for all queries that the rank has of a sequence. */
static inline double attention_causal_pairs(const struct attention *a)
{
    const struct sequence_part *p = &a->part;
    return !p->chunk ? attention_causal_pairs_of(a, 0, a->seq)
                     : attention_causal_pairs_of(a, p->first[0], p->chunk) +
                           attention_causal_pairs_of(a, p->first[1], p->chunk);
}

#endif
