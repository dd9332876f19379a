/* weights_node.c - see weights_node.h.
 *
 * Each rank lists the parts of tensors that it holds and asks the first rank of its node, the
 * reader, for them.  The reader finds the stored tensor of each, answers with its number and
 * format, and goes through the stored tensors in the order of the files, CHUNK_ELEMS elements at a
 * time.  Of a chunk it reads what anybody needs, once, and sends each rank its elements in the
 * order of the rank's list, which the rank knows too:
 *
 *   stored    . . a a a a b b b b . .     rank 0 has a, ranks 1 and 2 have b
 *   read          [-------------]         one range
 *   sent          to rank 1: b, to rank 2: b; rank 0 is the reader
 *
 * In front of each message goes a number: 0, or 1 where the reader has failed and nothing follows.
 * A rank that fails to keep what it was sent goes on receiving, so that nobody waits for it.
 */
#include "train/weights_node.h"

#include <stdlib.h>
#include <string.h>

#include "base/alive.h"
#include "base/array.h"
#include "base/round.h"

enum { CHUNK_ELEMS = 1 << 18, CHUNK_BYTES = CHUNK_ELEMS * 4, STRETCH = 4096 };

/* What a rank asks the reader for: a part of a logical tensor, within one stored tensor. */
struct request {
    char name[FLAT_NAME];
    int64_t matrix;       /* the stored tensor is that of this matrix; 0: or it is in one */
    struct box box;       /* of the matrix, or the tensor */
    int64_t start, count; /* elements of the box */
};

/* A part that a member of the node has asked for. */
struct wanted {
    struct request what;
    struct weights_stored stored; /* the stored tensor that it is in, */
    struct model_place place;     /* where in that, */
    struct hf_tensors_runs runs;  /* and its runs there */
    int member, index; /* the member that wants it, and its index in that member's list */
    int flat; /* where the part goes in this rank's state: flat, and element `at` of its shard */
    int64_t at;
    float *direct, *values; /* values: where the part is put together: in place (direct, not NULL),
                               or in memory from which it is written */
};

struct wants {
    struct wanted *list;
    int count, capacity;
};

/* A run of one of the wanted parts, within the chunk. */
struct piece {
    int wanted;
    struct hf_tensors_run run;
};

struct node {
    struct session *s;
    const struct weights_source *source;
    int *ranks, members, member;
    struct wants wants; /* what this rank wants; on the reader, what all members of the node want */
    float *values;      /* for the parts of one stored tensor that this rank has */
    char *chunk, *message; /* chunk: CHUNK_BYTES; message: message_bytes */
    size_t message_bytes;
    struct piece *piece; /* the runs of the chunk at hand that are wanted */
    int pieces, piece_capacity;
    struct hf_tensors_run *range; /* the ranges of the chunk that are read */
    int range_capacity;
    char *stopped; /* per member: 1: knows that the reader failed */
    int64_t read_bytes;
    int rc; /* of this rank so far */
};

int weights_node_reads(const struct session *s)
{
    return !s->world || !world_local_rank(s->world);
}

void weights_node_share(struct session *s, void *data, size_t bytes)
{
    struct world *world = s->world;
    int size = world_size(world), own = world_node(world), *node;
    if (size == 1)
        return;
    char *all = array_make((size_t)size, bytes);
    node = array_make((size_t)size, sizeof *node);
    world_all_gather(world, node, &own, sizeof own);
    world_all_gather(world, all, data, bytes);
    for (int r = size - 1; r >= 0; r--) /* the reader is the lowest of its node */
        if (node[r] == own)
            memcpy(data, all + (size_t)r * bytes, bytes);
    free(node);
    free(all);
}

/* ---- who needs what ---- */

/* The ranks of this node. */
static void find_members(struct node *n)
{
    struct world *world = n->s->world;
    int size = world_size(world), own = world_node(world);
    int *node = array_make((size_t)size, sizeof *node);
    n->ranks = array_make((size_t)size, sizeof *n->ranks);
    if (world)
        world_all_gather(world, node, &own, sizeof own);
    for (int r = 0; r < size; r++)
        if (node[r] == own) {
            n->member = r == world_rank(world) ? n->members : n->member;
            n->ranks[n->members++] = r;
        }
    n->stopped = array_make((size_t)n->members, 1);
    free(node);
}

/* The memory in which a part of a flat may be put together, if it is the flat's own and in fp32;
 * NULL: the part has to be written there. */
static float *direct_place(struct session *s, int f, int64_t at)
{
    struct weights_slot slots[WEIGHTS_SLOTS];
    float *memory = weights_slots(s, f, slots) && slots[0].dtype == DTYPE_F32
                        ? weights_numbers(s, &slots[0])
                        : NULL;
    return memory ? memory + at : NULL;
}

static struct wanted *add_wanted(struct wants *wants, int member, const struct request *what)
{
    wants->list = array_grow(wants->list, wants->count, &wants->capacity, sizeof *wants->list);
    struct wanted *w = &wants->list[wants->count];
    *w = (struct wanted){.what = *what, .member = member, .index = wants->count++};
    return w;
}

/* Add a part of a flat to what this rank wants: of each stored tensor that it is in what is there.
 */
static void want_part(struct node *n, int f, const struct flat_part *part,
                      const struct model_place *place)
{
    struct hf_tensors_stored stored = {0};
    while (hf_tensors_next_stored(place, &part->tensor->box, part->start, part->count, &stored)) {
        struct request what = {.matrix = stored.matrix,
                               .box = stored.box,
                               .start = stored.start,
                               .count = stored.count};
        memcpy(what.name, part->tensor->name, sizeof what.name);
        struct wanted *w = add_wanted(&n->wants, n->member, &what);
        w->flat = f;
        w->at = part->at + stored.at;
        w->direct = direct_place(n->s, f, w->at);
    }
}

/* Add a part of a flat to what this rank wants; one that is in no file is made here at once. */
static int add_part(struct node *n, int f, const struct flat_part *part, struct error *err)
{
    struct model_place place;
    if (!part->count)
        return 0;
    if (n->source->place(n->source->user, part->tensor->name, &place)) {
        want_part(n, f, part, &place);
        return 0;
    }
    float *values = malloc((size_t)part->count * sizeof *values);
    int rc = values ? n->source->fill(n->source->user, part, values, err)
                    : error_set(err, "out of memory: a part of %s", part->tensor->name);
    if (!rc)
        rc = weights_write(n->s, f, part->at, values, part->count, err);
    free(values);
    return rc;
}

/* Clear the state of these flats, make what is in no file, and list the rest. */
static int list_parts(struct node *n, const char *flats, struct error *err)
{
    struct session *s = n->s;
    struct weights_slot slots[WEIGHTS_SLOTS];
    struct flat_part part;
    for (int f = 0; f < s->units->flats; f++) {
        int64_t start = state_shard_start(s->state, f), end = start + s->units->flat[f].shard_elems;
        if ((flats && !flats[f]) || !weights_slots(s, f, slots))
            continue;
        if (weights_clear(s, f, err))
            return -1;
        for (int t = -1; (t = flat_next_part(&s->units->flat[f], start, end, t, &part)) >= 0;)
            if (add_part(n, f, &part, err))
                return -1;
    }
    return 0;
}

static int find_stored(struct node *n, struct wanted *w, struct error *err)
{
    const struct weights_source *source = n->source;
    if (!source->place(source->user, w->what.name, &w->place))
        return error_set(err, "tensor %s is in no file", w->what.name);
    return source->find(source->user, (struct hf_tensors_name){w->what.name, w->what.matrix},
                        &w->stored, err);
}

/* Take the requests of another rank of the node, and answer them. */
static int serve(struct node *n, int member, int count, struct error *err)
{
    struct world *world = n->s->world;
    struct request *requests = array_make((size_t)count + 1, sizeof *requests);
    struct weights_stored *answers = array_make((size_t)count + 1, sizeof *answers);
    size_t bytes = (size_t)count * sizeof *requests;
    int rc = 0;
    if (count)
        world_recv(world, requests, bytes, n->ranks[member]);
    for (int i = 0; i < count; i++) {
        struct wanted *w = add_wanted(&n->wants, member, &requests[i]);
        if (!rc)
            rc = find_stored(n, w, err);
        answers[i] = w->stored;
    }
    if (count)
        world_send(
            world,
            &(struct world_message){n->ranks[member], answers, (size_t)count * sizeof *answers}, 1);
    free(requests);
    free(answers);
    return rc;
}

/* Send this rank's requests to the reader, and take the answers. */
static void ask(struct node *n)
{
    struct world *world = n->s->world;
    size_t count = (size_t)n->wants.count;
    struct request *requests = array_make(count + 1, sizeof *requests);
    struct weights_stored *answers = array_make(count + 1, sizeof *answers);
    for (size_t i = 0; i < count; i++)
        requests[i] = n->wants.list[i].what;
    if (count) {
        world_send(world, &(struct world_message){n->ranks[0], requests, count * sizeof *requests},
                   1);
        world_recv(world, answers, count * sizeof *answers, n->ranks[0]);
    }
    for (size_t i = 0; i < count; i++) {
        struct wanted *w = &n->wants.list[i];
        w->stored = answers[i];
        n->source->place(n->source->user, w->what.name, &w->place);
    }
    free(requests);
    free(answers);
}

/* Let the reader of the node know what every member wants, and every member where that is stored.
 */
static int exchange_requests(struct node *n, struct error *err)
{
    struct world *world = n->s->world;
    int rc = 0, own = n->wants.count;
    int *counts = array_make((size_t)world_size(world), sizeof *counts);
    if (world)
        world_all_gather(world, counts, &own, sizeof own);
    if (n->member)
        ask(n);
    for (int i = 0; !n->member && !rc && i < own; i++)
        rc = find_stored(n, &n->wants.list[i], err);
    for (int m = 1; !n->member && m < n->members; m++) {
        struct error other = {0};
        if (serve(n, m, counts[n->ranks[m]], &other) && !rc) {
            *err = other;
            rc = -1;
        }
    }
    free(counts);
    return rc;
}

static int by_stored(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    if (x->stored.number != y->stored.number)
        return x->stored.number < y->stored.number ? -1 : 1;
    return x->index - y->index; /* the reader has the lists of its members one after the other */
}

/* Are the numbers of a part put together here, to be written? */
static int is_gathered(const struct node *n, const struct wanted *w)
{
    return w->member == n->member && !w->direct;
}

/* The end of the parts, from `first` on, of one stored tensor; *elems: elements of those that are
 * gathered. */
static int end_of_stored(const struct node *n, int first, int64_t *elems)
{
    const struct wanted *w = n->wants.list;
    int end = first;
    for (*elems = 0; end < n->wants.count && w[end].stored.number == w[first].stored.number; end++)
        *elems += is_gathered(n, &w[end]) ? w[end].what.count : 0;
    return end;
}

/* Sort what is wanted, and take the memory for it. */
static int prepare(struct node *n, struct error *err)
{
    int64_t most = 0, elems;
    if (n->wants.count)
        qsort(n->wants.list, (size_t)n->wants.count, sizeof *n->wants.list, by_stored);
    for (int i = 0; i < n->wants.count;) {
        i = end_of_stored(n, i, &elems);
        most = elems > most ? elems : most;
    }
    n->values = malloc((size_t)most * sizeof *n->values + 1);
    n->chunk = malloc(CHUNK_BYTES);
    n->message = malloc(n->message_bytes = CHUNK_BYTES);
    return n->values && n->chunk && n->message
               ? 0
               : error_set(err, "out of memory: %lld bytes for the largest tensor of this rank",
                           (long long)(most * (int64_t)sizeof *n->values));
}

/* ---- numbers ---- */

/* List the next runs of parts [first, end), up to stored element `limit`, as n->piece. */
static void find_pieces(struct node *n, int first, int end, int64_t limit)
{
    struct hf_tensors_run run;
    n->pieces = 0;
    for (int i = first; i < end; i++)
        while (hf_tensors_next_run(&n->wants.list[i].runs, limit, &run)) {
            n->piece = array_grow(n->piece, n->pieces, &n->piece_capacity, sizeof *n->piece);
            n->piece[n->pieces++] = (struct piece){i, run};
        }
}

static int by_place(const void *a, const void *b)
{
    const struct hf_tensors_run *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Read the elements of all pieces into n->chunk, each once. */
static int read_chunk(struct node *n, int64_t from, size_t width, struct error *err)
{
    int ranges = 0, last = 0;
    for (; ranges < n->pieces; ranges++) {
        n->range = array_grow(n->range, ranges, &n->range_capacity, sizeof *n->range);
        n->range[ranges] = n->piece[ranges].run;
    }
    qsort(n->range, (size_t)ranges, sizeof *n->range, by_place);
    for (int i = 1; i < ranges; i++) {
        struct hf_tensors_run *range = &n->range[last], *next = &n->range[i];
        if (next->at > range->at + range->count)
            n->range[++last] = *next;
        else if (next->at + next->count > range->at + range->count)
            range->count = next->at + next->count - range->at;
    }
    for (int i = 0; i <= last; i++)
        n->read_bytes += n->range[i].count * (int64_t)width;
    alive_note();
    const struct request *what = &n->wants.list[n->piece[0].wanted].what;
    return n->source->read(n->source->user, (struct hf_tensors_name){what->name, what->matrix},
                           n->range, last + 1, from, n->chunk, err);
}

/* Put the numbers of a run where they belong in a part of this rank. */
static void put(const struct wanted *w, const struct hf_tensors_run *run, const char *raw)
{
    float stretch[STRETCH], *to = w->values + run->to;
    size_t width = dtype_bytes(w->stored.dtype);
    if (run->step == 1) {
        dtype_widen(to, raw, w->stored.dtype, run->count);
        return;
    }
    for (int64_t done = 0, part; done < run->count; done += part) {
        part = min_i64(run->count - done, STRETCH);
        dtype_widen(stretch, raw + (size_t)done * width, w->stored.dtype, part);
        for (int64_t i = 0; i < part; i++)
            to[(done + i) * run->step] = stretch[i];
    }
}

/* Let a message of so many bytes fit: a rank that has the same elements in two flats gets them
 * twice. */
static void fit_message(struct node *n, size_t bytes)
{
    if (bytes <= n->message_bytes)
        return;
    n->message = array_need(realloc(n->message, bytes), bytes);
    n->message_bytes = bytes;
}

/* The messages of a chunk, of which those that are packed share n->message. */
struct outgoing {
    struct world_message *list; /* [2 * members] */
    int count;
    size_t packed;
};

static void send_all(struct node *n, struct outgoing *out)
{
    if (out->count)
        world_send(n->s->world, out->list, out->count);
    out->count = 0;
    out->packed = 0;
}

/* Append a message of pieces [first, end), those of one member, after the number that says whether
 * the reader has failed. */
static void add_message(struct node *n, struct outgoing *out, int first, int end, int64_t from,
                        size_t width)
{
    static const int64_t went[] = {0, 1};
    const struct piece *p = n->piece;
    int member = n->wants.list[p[first].wanted].member;
    const char *data = n->chunk + (size_t)(p[first].run.at - from) * width;
    size_t bytes = 0;
    for (int i = first; i < end; i++)
        bytes += (size_t)p[i].run.count * width;
    if (end > first + 1 && out->packed + bytes > n->message_bytes)
        send_all(n, out);
    fit_message(n, bytes);
    out->list[out->count++] =
        (struct world_message){n->ranks[member], &went[n->rc != 0], sizeof went[0]};
    n->stopped[member] = n->rc != 0;
    if (n->rc)
        return;
    if (end > first + 1) {
        char *to = n->message + out->packed;
        data = to;
        for (int i = first; i < end; to += (size_t)p[i++].run.count * width)
            memcpy(to, n->chunk + (size_t)(p[i].run.at - from) * width,
                   (size_t)p[i].run.count * width);
        out->packed += bytes;
    }
    out->list[out->count++] = (struct world_message){n->ranks[member], data, bytes};
}

/* On the reader: read a chunk of stored elements that begins with `from`, send the other members
 * theirs, and keep its own. */
static void give_chunk(struct node *n, int64_t from, size_t width, struct error *err)
{
    struct outgoing out = {.list = array_make(2 * (size_t)n->members, sizeof *out.list)};
    const struct wanted *w = n->wants.list;
    if (!n->rc)
        n->rc = read_chunk(n, from, width, err);
    for (int first = 0, end; first < n->pieces; first = end) {
        int member = w[n->piece[first].wanted].member;
        for (end = first + 1; end < n->pieces && w[n->piece[end].wanted].member == member;)
            end++;
        if (member && !n->stopped[member])
            add_message(n, &out, first, end, from, width);
        for (int i = first; !member && !n->rc && i < end; i++)
            put(&w[n->piece[i].wanted], &n->piece[i].run,
                n->chunk + (size_t)(n->piece[i].run.at - from) * width);
    }
    send_all(n, &out);
    free(out.list);
}

/* On another member: receive and keep its elements of a chunk.  Returns 0, or -1: the reader has
 * failed. */
static int take_chunk(struct node *n, size_t width)
{
    int64_t failed = 0;
    size_t bytes = 0;
    for (int i = 0; i < n->pieces; i++)
        bytes += (size_t)n->piece[i].run.count * width;
    world_recv(n->s->world, &failed, sizeof failed, n->ranks[0]);
    if (failed)
        return -1;
    fit_message(n, bytes);
    const char *raw = n->message;
    world_recv(n->s->world, n->message, bytes, n->ranks[0]);
    for (int i = 0; i < n->pieces; raw += (size_t)n->piece[i++].run.count * width)
        put(&n->wants.list[n->piece[i].wanted], &n->piece[i].run, raw);
    return 0;
}

/* Read, send and keep one stored tensor, of which parts [first, end) are wanted.  Returns 0, or -1:
 * the reader has failed. */
static int pass_stored(struct node *n, int first, int end, struct error *err)
{
    struct wanted *w = n->wants.list;
    struct box whole = box_whole(w[first].what.box.dims, w[first].what.box.whole);
    int64_t elems = box_elems(&whole) * w[first].place.stacked, done = 0;
    size_t width = dtype_bytes(w[first].stored.dtype);
    for (int i = first; i < end; i++) {
        w[i].runs = hf_tensors_runs(&w[i].place, &w[i].what.box, w[i].what.start, w[i].what.count);
        w[i].values = w[i].direct ? w[i].direct : n->values + done;
        done += is_gathered(n, &w[i]) ? w[i].what.count : 0;
    }
    for (int64_t from = 0; from < elems; from += CHUNK_ELEMS) {
        find_pieces(n, first, end, from + CHUNK_ELEMS);
        if (n->pieces && !n->member)
            give_chunk(n, from, width, err);
        else if (n->pieces && take_chunk(n, width))
            return -1;
    }
    for (int i = first; i < end; i++)
        if (!n->rc && is_gathered(n, &w[i]))
            n->rc = weights_write(n->s, w[i].flat, w[i].at, w[i].values, w[i].what.count, err);
    return 0;
}

static int refresh(struct node *n, const char *flats, struct error *err)
{
    for (int f = 0; f < n->s->units->flats; f++)
        if ((!flats || flats[f]) && n->s->state->has[f] && weights_refresh(n->s, f, err))
            return -1;
    return device_sync(n->s->device, err);
}

int weights_node_fill(struct session *s, const char *flats, const struct weights_source *source,
                      int64_t *read_bytes, struct error *err)
{
    struct node n = {.s = s, .source = source};
    int64_t elems;
    find_members(&n);
    int rc = world_agree(s->world, list_parts(&n, flats, err), err);
    if (!rc)
        rc = world_agree(s->world, exchange_requests(&n, err) || prepare(&n, err) ? -1 : 0, err);
    for (int i = 0, end; !rc && i < n.wants.count; i = end) {
        end = end_of_stored(&n, i, &elems);
        if (pass_stored(&n, i, end, err))
            break;
    }
    if (!rc)
        rc = n.rc || refresh(&n, flats, err) ? -1 : 0;
    *read_bytes = n.read_bytes;
    free(n.ranks);
    free(n.stopped);
    free(n.wants.list);
    free(n.values);
    free(n.chunk);
    free(n.message);
    free(n.piece);
    free(n.range);
    return rc;
}
