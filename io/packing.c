/* packing.c - packs documents into sequences; see packing.h.
 *
 * Pieces of seq_len rows of long documents are sequences of their own, the first ones.  The rest of
 * a long document, or a document that fits, is an item: at most one per document.  Items are put
 * into bins, which are the other sequences, by best-fit decreasing (Johnson 1974):
 *
 *   1. items are sorted by their rows, the longest first, those of equal lengths in a random order
 *   2. each goes into the bin with the least space that is enough for it, or begins a new bin
 *   3. items are listed bin by bin
 *
 *   seq_len 8, documents of 6 3 12 2 4 rows:  |8|  |6 2|  |4 4|  |3 .|
 *
 * Step 2 finds a bin by its space, the rows that are still free in it: there is a list of bins for
 * each space, and a set of the spaces whose lists are not empty (struct space_set).
 */
#include "io/packing.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "io/shuffle.h"

enum { READ = 4096 }; /* starts that are read at a time */

/* A document with pieces of seq_len rows; documents before it have `before` such pieces. */
struct long_document {
    int64_t document, before;
};

struct packing {
    enum packing_form form;
    int64_t seq_len;
    int64_t documents, items;
    int64_t cut;                 /* rows that PACK_SINGLY dropped */
    int64_t cut_documents;       /* documents of more than seq_len rows */
    int64_t pieces;              /* of seq_len rows: sequences [0, pieces) */
    int64_t bins;                /* sequences [pieces, pieces + bins) */
    uint32_t *item;              /* [items] the numbers of their documents, bin by bin */
    int64_t *first;              /* [bins + 1] the first item of each bin; NULL: one item per bin */
    struct long_document *longs; /* [long_count] in the order of the file */
    int long_count, long_capacity;
};

/* ---- the set of spaces ----
 *
 * A tree of 64-bit words.  Bit x of level 0 is set if x is in the set; bit i of a higher level is
 * set if word i of the level below it is not 0.  So the next member is found in a few steps. */

enum { LEVELS = 5 }; /* enough for 64^5 numbers */

struct space_set {
    int levels;             /* used */
    uint64_t *word[LEVELS]; /* [words[level]] */
    int64_t words[LEVELS];
};

static int set_create(struct space_set *set, int64_t size)
{
    *set = (struct space_set){0};
    do {
        size = ceil_div(size, 64);
        set->words[set->levels] = size;
        set->word[set->levels] = calloc((size_t)size, sizeof(uint64_t));
    } while (set->word[set->levels++] && size > 1 && set->levels < LEVELS);
    return set->word[set->levels - 1] ? 0 : -1;
}

static void set_destroy(struct space_set *set)
{
    for (int level = 0; level < set->levels; level++)
        free(set->word[level]);
}

static void set_add(struct space_set *set, int64_t x)
{
    for (int level = 0; level < set->levels; level++, x /= 64)
        set->word[level][x / 64] |= UINT64_C(1) << (x % 64);
}

static void set_remove(struct space_set *set, int64_t x)
{
    for (int level = 0; level < set->levels; level++, x /= 64) {
        set->word[level][x / 64] &= ~(UINT64_C(1) << (x % 64));
        if (set->word[level][x / 64])
            return;
    }
}

/* Returns the least member that is not below x, or -1.  Goes up the tree until a level has a member
 * at x or after it, then down to the least one. */
static int64_t set_next(const struct space_set *set, int64_t x)
{
    int level = 0;
    for (; level < set->levels && x / 64 < set->words[level]; level++, x = x / 64 + 1) {
        uint64_t above = set->word[level][x / 64] & (UINT64_MAX << (x % 64));
        if (!above)
            continue;
        x = x / 64 * 64 + __builtin_ctzll(above);
        while (level-- > 0)
            x = x * 64 + __builtin_ctzll(set->word[level][x]);
        return x;
    }
    return -1;
}

/* ---- items ---- */

/* Tables that are needed while a packing is made. */
struct work {
    uint32_t *rows;  /* [documents] of the document's item; 0: it has none */
    int64_t *place;  /* [seq_len + 1] by rows: how many items; then, place of the next in `order` */
    uint32_t *order; /* [items] the documents of the items, the longest item first */
    uint32_t *bin;   /* [items] the bin of each item in `order` */
    uint32_t *next;  /* [bins] the next bin in the list of the same space; NONE: none */
    uint32_t *head;  /* [seq_len + 1] by space: the first bin in its list; NONE: none */
    struct space_set spaces;
};
static const uint32_t NONE = UINT32_MAX;

static int out_of_memory(int64_t documents, struct error *err)
{
    return error_set(err, "out of memory: packing %lld documents", (long long)documents);
}

/* Add a document of `tokens` tokens: its pieces, its item, the rows that are dropped. */
static void add_document(struct packing *p, struct work *w, int64_t document, int64_t tokens)
{
    int64_t rows = max_i64(tokens - 1, 0), pieces = rows / p->seq_len;
    p->cut_documents += rows > p->seq_len;
    if (p->form == PACK_SINGLY) {
        p->cut += max_i64(rows - p->seq_len, 0);
        rows = min_i64(rows, p->seq_len);
    } else if (pieces) {
        p->longs = array_grow(p->longs, p->long_count, &p->long_capacity, sizeof *p->longs);
        p->longs[p->long_count++] = (struct long_document){document, p->pieces};
        p->pieces += pieces;
        rows %= p->seq_len;
    }
    w->rows[document] = (uint32_t)rows;
    p->items += rows > 0;
}

static int find_items(struct packing *p, struct work *w, struct tokens *tokens, struct error *err)
{
    uint64_t starts[READ + 1];
    for (int64_t d = 0, n; d < p->documents; d += n) {
        n = min_i64(READ, p->documents - d);
        if (tokens_starts(tokens, d, n + 1, starts, err))
            return -1;
        for (int64_t i = 0; i < n; i++)
            add_document(p, w, d + i, (int64_t)(starts[i + 1] - starts[i]));
    }
    if (p->items || p->pieces)
        return 0;
    return error_set(err,
                     "%s: none of its %lld documents has two tokens, and the last of each is "
                     "only a target",
                     tokens->path, (long long)p->documents);
}

/* Fill `order` by counting sort.  Documents are visited in a random order (shuffle_index()), so
 * items of equal lengths are in a random order. */
static void sort_items(const struct packing *p, struct work *w, uint64_t key)
{
    int64_t at = 0;
    for (int64_t d = 0; d < p->documents; d++)
        w->place[w->rows[d]]++;
    for (int64_t rows = p->seq_len; rows > 0; rows--) {
        int64_t count = w->place[rows];
        w->place[rows] = at;
        at += count;
    }
    for (int64_t i = 0; i < p->documents; i++) {
        int64_t d = shuffle_index(i, p->documents, key);
        if (w->rows[d])
            w->order[w->place[w->rows[d]]++] = (uint32_t)d;
    }
}

/* ---- bins ---- */

/* Take the bin with the least space of `rows` or more off its list, or begin a new bin.  Returns
 * the bin; *space becomes its space. */
static uint32_t take_bin(struct packing *p, struct work *w, int64_t rows, int64_t *space)
{
    *space = set_next(&w->spaces, rows);
    if (*space < 0) {
        *space = p->seq_len;
        return (uint32_t)p->bins++;
    }
    uint32_t bin = w->head[*space];
    w->head[*space] = w->next[bin];
    if (w->head[*space] == NONE)
        set_remove(&w->spaces, *space);
    return bin;
}

/* Put a bin on the list of its space; a full bin is on no list. */
static void put_bin(struct work *w, uint32_t bin, int64_t space)
{
    if (!space)
        return;
    w->next[bin] = w->head[space];
    w->head[space] = bin;
    set_add(&w->spaces, space);
}

static void fill_bins(struct packing *p, struct work *w)
{
    memset(w->head, 0xff, (size_t)(p->seq_len + 1) * sizeof *w->head); /* NONE */
    for (int64_t i = 0; i < p->items; i++) {
        int64_t rows = w->rows[w->order[i]], space;
        uint32_t bin = take_bin(p, w, rows, &space);
        w->bin[i] = bin;
        put_bin(w, bin, space - rows);
    }
}

/* Fill p->item and p->first: items bin by bin, those of a bin in the order in which they were
 * packed.  first[b + 2] counts the items of bin b, the sums make first[b + 1] the place of its next
 * item, and once all items are placed, first[b] is its first item. */
static int list_items(struct packing *p, const struct work *w, struct error *err)
{
    p->first = calloc((size_t)p->bins + 2, sizeof *p->first);
    p->item = malloc((size_t)p->items * sizeof *p->item + 1);
    if (!p->first || !p->item)
        return out_of_memory(p->documents, err);
    for (int64_t i = 0; i < p->items; i++)
        p->first[w->bin[i] + 2]++;
    for (int64_t b = 0; b < p->bins; b++)
        p->first[b + 2] += p->first[b + 1];
    for (int64_t i = 0; i < p->items; i++)
        p->item[p->first[w->bin[i] + 1]++] = w->order[i];
    return 0;
}

/* Fill p->item for PACK_SINGLY: a bin for each document that has rows, in the order of the file. */
static int list_documents(struct packing *p, const struct work *w, struct error *err)
{
    p->bins = p->items;
    p->item = malloc((size_t)p->items * sizeof *p->item + 1);
    if (!p->item)
        return out_of_memory(p->documents, err);
    for (int64_t d = 0, at = 0; d < p->documents; d++)
        if (w->rows[d])
            p->item[at++] = (uint32_t)d;
    return 0;
}

static int pack(struct packing *p, struct work *w, uint64_t key, struct error *err)
{
    size_t lengths = (size_t)p->seq_len + 1, items = (size_t)p->items + 1;
    w->place = calloc(lengths, sizeof *w->place);
    w->head = malloc(lengths * sizeof *w->head);
    w->order = malloc(items * sizeof *w->order);
    w->bin = malloc(items * sizeof *w->bin);
    w->next = malloc(items * sizeof *w->next);
    if (!w->place || !w->head || !w->order || !w->bin || !w->next ||
        set_create(&w->spaces, p->seq_len + 1))
        return out_of_memory(p->documents, err);
    sort_items(p, w, key);
    fill_bins(p, w);
    return list_items(p, w, err);
}

static void free_work(struct work *w)
{
    free(w->rows);
    free(w->place);
    free(w->order);
    free(w->bin);
    free(w->next);
    free(w->head);
    set_destroy(&w->spaces);
}

int packing_create(struct packing **out, struct tokens *tokens, enum packing_form form,
                   int64_t seq_len, int64_t documents, uint64_t key, struct error *err)
{
    struct packing *p = array_make(1, sizeof *p);
    struct work w = {0};
    int rc = 0;
    p->form = form;
    p->seq_len = seq_len;
    p->documents = documents ? min_i64(documents, tokens->documents) : tokens->documents;
    if (p->documents >= NONE)
        rc = error_set(err, "%s: %lld documents are too many to pack; at most %u can be",
                       tokens->path, (long long)p->documents, NONE - 1);
    w.rows = rc ? NULL : calloc((size_t)p->documents + 1, sizeof *w.rows);
    if (!rc && !w.rows)
        rc = out_of_memory(p->documents, err);
    if (!rc)
        rc = find_items(p, &w, tokens, err);
    if (!rc)
        rc = form == PACK_SINGLY ? list_documents(p, &w, err) : pack(p, &w, key, err);
    free_work(&w);
    if (rc) {
        packing_destroy(p);
        return -1;
    }
    *out = p;
    return 0;
}

void packing_destroy(struct packing *p)
{
    if (!p)
        return;
    free(p->item);
    free(p->first);
    free(p->longs);
    free(p);
}

int64_t packing_sequences(const struct packing *p)
{
    return p->pieces + p->bins;
}

int64_t packing_cut_rows(const struct packing *p)
{
    return p->cut;
}

int64_t packing_cut_documents(const struct packing *p)
{
    return p->cut_documents;
}

/* ---- reading ---- */

/* Returns the long document that piece number `piece` is of: the last one with `before` <= piece.
 */
static const struct long_document *long_of(const struct packing *p, int64_t piece)
{
    int from = 0, to = p->long_count - 1;
    while (from < to) {
        int middle = (from + to + 1) / 2;
        if (p->longs[middle].before <= piece)
            from = middle;
        else
            to = middle - 1;
    }
    return &p->longs[from];
}

/* Returns the document whose item is part k of a bin; -1: the bin has no more than k items. */
static int64_t document_of(const struct packing *p, int64_t bin, int64_t k)
{
    int64_t at = p->form == PACK_SINGLY ? bin : p->first[bin];
    int64_t end = p->form == PACK_SINGLY ? bin + 1 : p->first[bin + 1];
    return at + k < end ? (int64_t)p->item[at + k] : -1;
}

int packing_part(const struct packing *p, struct tokens *tokens, int64_t sequence, int64_t k,
                 struct packing_part *part, struct error *err)
{
    const struct long_document *whole = sequence < p->pieces ? long_of(p, sequence) : NULL;
    int64_t document = whole ? whole->document : document_of(p, sequence - p->pieces, k);
    uint64_t starts[2];
    if ((whole && k) || document < 0)
        return 0;
    if (tokens_starts(tokens, document, 2, starts, err))
        return -1;
    int64_t rows = (int64_t)(starts[1] - starts[0]) - 1, done = 0;
    if (whole)
        done = (sequence - whole->before) * p->seq_len;
    else if (p->form == PACK_TOGETHER)
        done = rows / p->seq_len * p->seq_len;
    *part = (struct packing_part){(int64_t)starts[0] + done, min_i64(rows - done, p->seq_len)};
    if (part->rows > 0)
        return 1;
    return error_set(err, "%s: document %lld has changed since it was packed", tokens->path,
                     (long long)document);
}
