/* tokenize_numbers.c - reading files of token ids and writing them; see tokenize.h.
 *
 * A document ends after each end-of-text id (E), or where the .idx beside Megatron's .bin says:
 *
 *     5 6 E 7 E 8          documents 5 6 E, 7 E, 8
 *     E 5 6 E 7            documents E 5 6 E, 7: an E alone belongs to the next document, as some
 *                          programs put it in front of documents
 *
 * A file with neither is one document, whose tail is for validation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "cli/tokenize.h"
#include "io/megatron.h"
#include "io/npy.h"

/* A file while it is read. */
struct reading {
    struct tokenize_job *job;
    struct npy npy;
    struct tokenize_output *output; /* of the document that has begun; NULL: none has */
    int64_t length;                 /* ids of this document so far */
    struct megatron_index *index;   /* of a .bin of Megatron's; else NULL */
    int64_t end;                    /* with index: ids of the file before the next end */
};

static int add(struct reading *r, const uint32_t *ids, int64_t count,
               struct tokenize_output *output, struct error *err)
{
    if (!r->output && tokenize_output_begin(output, err))
        return -1;
    r->output = output;
    r->length += count;
    return tokenize_output_add(output, ids, NULL, count, err);
}

/* Set r->end to the end of the document that has the file's id at `at`; count the empty documents
 * before it.  Without an index do nothing. */
static int find_end(struct reading *r, int64_t at, struct error *err)
{
    while (r->index && r->end <= at && at < r->npy.count) {
        int64_t end = megatron_next_end(r->index, err);
        if (end < 0)
            return -1;
        r->job->counts.empty += end == r->end;
        r->end = end;
    }
    return 0;
}

/* Write `count` ids, of which some may end documents; first: how many ids of the file come before.
 */
static int add_documents(struct reading *r, const uint32_t *ids, int64_t first, int64_t count,
                         struct error *err)
{
    struct tokenize_job *job = r->job;
    int64_t begin = 0;
    for (int64_t i = 0; i < count; i++) {
        int is_end = (r->index && first + i + 1 == r->end) ||
                     (ids[i] == job->cut_after && r->length + i - begin > 0);
        if (!is_end && i + 1 < count)
            continue;
        struct tokenize_output *output =
            r->output ? r->output : tokenize_output_choose(job, &job->others);
        if (add(r, ids + begin, i + 1 - begin, output, err))
            return -1;
        begin = i + 1;
        if (is_end) {
            r->output = NULL;
            r->length = 0;
        }
        if (find_end(r, first + begin, err))
            return -1;
    }
    return 0;
}

/* Write ids of a file without ends of documents, of which the ids from `tail` on are for
 * validation; first: how many ids of the file come before. */
static int add_divided(struct reading *r, const uint32_t *ids, int64_t first, int64_t count,
                       int64_t tail, struct error *err)
{
    int64_t head = max_i64(0, min_i64(count, tail - first));
    if (head && add(r, ids, head, &r->job->train, err))
        return -1;
    if (head == count)
        return 0;
    if (first + head == tail)
        r->output = NULL;
    return add(r, ids + head, count - head, &r->job->valid, err);
}

static int read_all(struct reading *r, uint32_t *ids, struct error *err)
{
    struct tokenize_job *job = r->job;
    double share = job->valid.path ? job->options.valid_fraction : 0;
    int64_t total = r->npy.count, tail = total - (int64_t)((double)total * share);
    if (find_end(r, 0, err))
        return -1;
    for (int64_t first = 0; first < total; first += NPY_MOST) {
        int64_t count = min_i64(NPY_MOST, total - first);
        if (npy_read(&r->npy, first, count, job->vocab, ids, err) ||
            (job->cut_after < 0 && !r->index ? add_divided(r, ids, first, count, tail, err)
                                             : add_documents(r, ids, first, count, err)))
            return -1;
    }
    int64_t left = r->index ? megatron_finish(r->index, err) : 0;
    job->counts.empty += max_i64(left, 0);
    return left < 0 ? -1 : 0;
}

/* Find the format of a file by its first bytes.  Without a known header it is numbers alone where
 * the input is INPUT_BIN, else unknown. */
static enum npy_format find_format(const struct inputs_file *input)
{
    char front[NPY_FRONT];
    FILE *file = fopen(input->path, "rb");
    size_t got = file ? fread(front, 1, sizeof front, file) : 0;
    if (file)
        fclose(file);
    enum npy_format format = npy_format(front, (int64_t)got);
    return format == NPY_NONE && input->format == INPUT_BIN ? NPY_RAW : format;
}

int tokenize_numbers(struct tokenize_job *job, const struct inputs_file *input, struct error *err)
{
    struct reading r = {.job = job};
    if (!strcmp(input->path, "-"))
        return error_set(err, "token ids are read from files, not from standard input");
    enum npy_format format = find_format(input);
    int type = -1;
    if (npy_open(&r.npy, input->path, format, err))
        return -1;
    uint32_t *ids = array_make(NPY_MOST, sizeof *ids);
    int rc = format == NPY_RAW ? megatron_type(input->path, &type, err) : 0;
    if (!rc && type >= 0)
        rc = megatron_open(&r.index, input->path, r.npy.count, r.npy.width, err);
    rc = rc ? rc : read_all(&r, ids, err);
    job->counts.empty += !r.npy.count && !r.index;
    megatron_close(r.index);
    npy_close(&r.npy);
    free(ids);
    return rc;
}
