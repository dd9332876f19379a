/* tokenize_work.c - making tokens of texts and JSON lines by several threads; see tokenize.h.
 *
 *     caller    give_input()    reads a block of an input; a text is cut where its tokenizer allows
 *                               it, JSON lines after a line
 *     threads   thread_work()   make the tokens of a block
 *     caller    take()          writes the tokens in the order of the blocks (io/ordered.h), so
 *                               that files are the same with any number of threads
 *
 * A document's number decides to which output it belongs: that of a text when its blocks are read,
 * that of a line when its tokens are written, as only then the lines before it are counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "cli/tokenize.h"
#include "io/blocks.h"
#include "io/ordered.h"

/* A block of an input, and its tokens. */
struct work {
    const struct inputs_file *input;
    struct blocks_buffer block;
    int is_first, is_last; /* 1: first, last block of the input, or of its part for output */
    int is_start;          /* 1: first block of the input */
    struct tokenize_output *output; /* of a text; NULL: of JSON lines */
    struct token_list list;         /* tokens of the block */
    int64_t *ends;                  /* [documents] of JSON lines: end of each document in list */
    int documents, capacity;        /* capacity: of ends */
    int64_t lines;                  /* of the block */
    int64_t bad_line; /* first line of the block, from 1, that cannot be used; 0: none */
    struct tokenize_counts counts;
    struct error err; /* of bad_line, or why the block failed */
    int failed;       /* 1: no tokens could be made of the text */
    int is_json;      /* 1: the text begins with a line of JSON */
};

/* Threads: tokens of blocks */

struct thread {
    const struct tokenize_job *job;
    struct tokenizer_encoder *encoder;
    struct tokenize_record record;
};

static int thread_begin(void **state, void *user, struct error *err)
{
    const struct tokenize_job *job = user;
    struct thread *thread = array_make(1, sizeof *thread);
    if (tokenizer_encoder_create(&thread->encoder, job->tokenizer, err)) {
        free(thread);
        return -1;
    }
    thread->job = job;
    thread->record = (struct tokenize_record){.job = job, .encoder = thread->encoder};
    thread->record.chat =
        (struct chat_encoder){.encoder = thread->encoder, .specials = job->specials};
    *state = thread;
    return 0;
}

static void thread_end(void *state)
{
    struct thread *thread = state;
    tokenize_record_free(&thread->record);
    tokenizer_encoder_destroy(thread->encoder);
    free(thread);
}

static void encode_text(struct thread *thread, struct work *work)
{
    const uint32_t *ids;
    int64_t count;
    int flags = (work->is_first ? 0 : TOKENIZER_CONTINUED) |
                (thread->job->options.specials ? TOKENIZER_SPECIALS : 0);
    const char *text = work->block.text;
    size_t bytes = work->block.bytes, bom = work->is_start ? text_bom_bytes(text, bytes) : 0;
    work->is_json = work->is_first && jsonl_is_first(text + bom, bytes - bom);
    work->failed = tokenizer_encoder_run(thread->encoder, text + bom, bytes - bom, flags, &ids,
                                         &count, &work->err) ||
                   token_list_add(&work->list, ids, count, 1, &work->err);
    work->counts.broken = (int64_t)tokenizer_encoder_broken(thread->encoder);
    for (size_t i = 0; i < work->block.bytes; i++)
        work->counts.zeros += !work->block.text[i];
}

/* Make tokens of a line, the work->lines-th of the block.  Note the first line that cannot be used.
 */
static void encode_line(struct thread *thread, struct work *work, const char *line, size_t bytes)
{
    struct error err = {0};
    int kept = tokenize_record_add(&thread->record, line, bytes, &work->list, &work->counts, &err);
    if (kept > 0) {
        work->ends = array_grow(work->ends, work->documents, &work->capacity, sizeof *work->ends);
        work->ends[work->documents++] = work->list.count;
    }
    if (kept >= 0)
        return;
    work->counts.bad++;
    if (!work->bad_line) {
        work->bad_line = work->lines;
        work->err = err;
    }
}

static void encode_lines(struct thread *thread, struct work *work)
{
    const char *at = work->block.text, *end = at + work->block.bytes;
    if (work->is_start)
        at += text_bom_bytes(at, work->block.bytes);
    while (at < end && (!work->bad_line || thread->job->options.skips_bad)) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *next = newline ? newline + 1 : end;
        work->lines++;
        if (!jsonl_is_blank(at, (size_t)(next - at)))
            encode_line(thread, work, at, (size_t)(next - at));
        at = next;
    }
}

static void thread_work(void *state, void *item)
{
    struct thread *thread = state;
    struct work *work = item;
    work->list.count = 0;
    work->documents = 0;
    work->lines = work->bad_line = 0;
    work->failed = 0;
    work->counts = (struct tokenize_counts){0};
    if (work->input->format == INPUT_JSONL)
        encode_lines(thread, work);
    else
        encode_text(thread, work);
}

static void free_work(void *item)
{
    struct work *work = item;
    blocks_buffer_free(&work->block);
    token_list_free(&work->list);
    free(work->ends);
}

/* The caller: results in order */

static void add_counts(struct tokenize_counts *sum, const struct tokenize_counts *more)
{
    for (int i = 0; i < JSONL_KINDS; i++)
        sum->records[i] += more->records[i];
    sum->empty += more->empty;
    sum->bad += more->bad;
    sum->cut += more->cut;
    sum->dropped += more->dropped;
    sum->untrained += more->untrained;
    sum->broken += more->broken;
    sum->zeros += more->zeros;
}

static int take_text(struct tokenize_job *job, struct work *work, struct error *err)
{
    struct tokenize_output *output = work->output;
    const struct tokenizer_wrap *wrap = &job->wrap;
    uint32_t end = (uint32_t)job->end_of_text;
    if (work->is_first &&
        (tokenize_output_begin(output, err) ||
         tokenize_output_add(output, wrap->before, NULL, wrap->before_count, err)))
        return -1;
    if (tokenize_output_add(output, work->list.ids, NULL, work->list.count, err))
        return -1;
    if (work->counts.broken && !job->counts.broken)
        job->first_broken = work->input->path;
    if (work->counts.zeros && !job->counts.zeros)
        job->first_zero = work->input->path;
    if (work->is_json && !job->first_json)
        job->first_json = work->input->path;
    add_counts(&job->counts, &work->counts);
    if (!work->is_last)
        return 0;
    return tokenize_output_add(output, wrap->after, NULL, wrap->after_count, err) ||
                   tokenize_output_add(output, &end, NULL, job->end_of_text >= 0, err)
               ? -1
               : 0;
}

static int take_lines(struct tokenize_job *job, struct work *work, struct error *err)
{
    int64_t start = 0;
    if (work->is_first)
        job->line = 0;
    if (work->bad_line) {
        error_prefix(&work->err, "%s:%lld", work->input->path,
                     (long long)(job->line + work->bad_line));
        if (!job->options.skips_bad)
            return error_set(err, "%s", work->err.text);
        if (!job->counts.bad)
            job->first_bad = work->err;
    }
    for (int i = 0; i < work->documents; start = work->ends[i++]) {
        struct tokenize_output *output = tokenize_output_choose(job, &job->others);
        if (tokenize_output_begin(output, err) ||
            tokenize_output_add(output, work->list.ids + start, work->list.mask + start,
                                work->ends[i] - start, err))
            return -1;
    }
    job->line += work->lines;
    add_counts(&job->counts, &work->counts);
    return 0;
}

static int take(void *user, void *item, struct error *err)
{
    struct tokenize_job *job = user;
    struct work *work = item;
    if (work->failed)
        return error_set(err, "%s: %s", work->input->path, work->err.text);
    return work->input->format == INPUT_JSONL ? take_lines(job, work, err)
                                              : take_text(job, work, err);
}

static const struct ordered_job ordered_job = {
    .item_bytes = sizeof(struct work),
    .begin = thread_begin,
    .end = thread_end,
    .work = thread_work,
    .take = take,
    .free_item = free_work,
};

/* The caller: inputs in blocks */

static size_t cut_text(const void *arg, const char *text, size_t bytes)
{
    return tokenizer_cut(arg, text, bytes);
}

/* Refuse bytes that are compressed, and that nothing unpacks: those of standard input, or of a file
 * that was compressed twice. */
static int refuse_packed(const struct inputs_file *input, const struct blocks_buffer *block,
                         struct error *err)
{
    const char *packer = unpack_program(block->text, block->bytes);
    if (!packer)
        return 0;
    if (strcmp(input->path, "-") != 0)
        return error_set(err, "%s is compressed twice; unpack it once", input->path);
    return error_set(
        err, "standard input is compressed; unpack it: %s -dc FILE | trireme tokenize - ...",
        packer);
}

/* Is the first block of a text nothing but U+FEFF? */
static int is_bom_alone(const struct work *work)
{
    return text_bom_bytes(work->block.text, work->block.bytes) == work->block.bytes;
}

/* Read up to `left` bytes (negative: all) of an input in blocks and give them to the threads.  Of a
 * text these bytes are one document for `output`. */
static int give_part(struct tokenize_job *job, struct ordered *ordered,
                     const struct inputs_file *input, int fd, int64_t left,
                     struct tokenize_output *output, struct error *err)
{
    int is_lines = input->format == INPUT_JSONL, got = 1;
    int is_start = lseek(fd, 0, SEEK_CUR) <= 0; /* or a pipe */
    struct blocks blocks = {.fd = fd,
                            .path = input->path,
                            .cut = is_lines ? blocks_cut_line : cut_text,
                            .arg = job->tokenizer,
                            .left = left};
    for (int is_first = 1; got > 0 && !(blocks_is_last(&blocks)); is_first = 0) {
        struct work *work = ordered_item(ordered, err);
        got = work ? blocks_next(&blocks, &work->block, err) : -1;
        if (got > 0 && is_first && refuse_packed(input, &work->block, err))
            got = -1;
        if (got > 0 && is_first && is_start && !is_lines && is_bom_alone(work))
            got = 0;
        if (!got && is_first && !is_lines)
            job->counts.empty++;
        if (got <= 0)
            break;
        work->input = input;
        work->output = output;
        work->is_first = is_first;
        work->is_start = is_first && is_start;
        work->is_last = blocks_is_last(&blocks);
        ordered_give(ordered);
    }
    blocks_free(&blocks);
    return got < 0 ? -1 : 0;
}

/* Return the offset of the first byte of the UTF-8 character that has the byte at `place`; `place`
 * where the text is not UTF-8 there. */
static int64_t character_start(int fd, int64_t place)
{
    unsigned char bytes[4];
    int64_t from = place > 3 ? place - 3 : 0;
    ssize_t got = pread(fd, bytes, (size_t)(place - from) + 1, from);
    if (got != place - from + 1)
        return place;
    for (int64_t at = place; at >= from; at--)
        if ((bytes[at - from] & 0xc0) != 0x80)
            return bytes[at - from] >= 0xc0 ? at : place;
    return place;
}

/* Give a text in two parts: its end is for validation.  For inputs with so few texts that none
 * would be chosen for validation. */
static int give_split(struct tokenize_job *job, struct ordered *ordered,
                      const struct inputs_file *input, int fd, struct error *err)
{
    struct stat info;
    if (fstat(fd, &info) || !S_ISREG(info.st_mode))
        return error_set(err, "%s %s, so that its tail cannot be split off for validation; %s",
                         input->path, input->packer ? "is compressed" : "has no size",
                         input->packer ? "unpack it first" : "save it to a file first");
    int64_t tail = (int64_t)((double)info.st_size * job->options.valid_fraction);
    int64_t head = character_start(fd, info.st_size - tail);
    return give_part(job, ordered, input, fd, head, &job->train, err) ||
                   give_part(job, ordered, input, fd, -1, &job->valid, err)
               ? -1
               : 0;
}

static int give_input(struct tokenize_job *job, struct ordered *ordered,
                      const struct inputs_file *input, struct error *err)
{
    int texts = inputs_of(&job->inputs, INPUT_TEXT);
    struct inputs_stream stream;
    int rc;
    if (inputs_open(&stream, input, err))
        return -1;
    if (input->format == INPUT_JSONL)
        rc = give_part(job, ordered, input, stream.fd, -1, NULL, err);
    else if (job->valid.path && texts * job->options.valid_fraction < 1)
        rc = give_split(job, ordered, input, stream.fd, err);
    else
        rc = give_part(job, ordered, input, stream.fd, -1, tokenize_output_choose(job, &job->texts),
                       err);
    return inputs_close(&stream, !rc, err) || rc ? -1 : 0;
}

int tokenize_work(struct tokenize_job *job, struct error *err)
{
    struct ordered *ordered = NULL;
    int rc = 0;
    if (job->tokenizer && ordered_create(&ordered, &ordered_job, job, job->options.threads, err))
        return -1;
    for (int i = 0; !rc && i < job->inputs.count; i++) {
        const struct inputs_file *input = &job->inputs.list[i];
        if (input->format == INPUT_TEXT || input->format == INPUT_JSONL)
            rc = give_input(job, ordered, input, err);
        else if (input->format == INPUT_TOKENS)
            rc = tokenize_join(job, input, err);
        else
            rc = (ordered && ordered_finish(ordered, err)) || tokenize_numbers(job, input, err);
    }
    rc = rc || (ordered && ordered_finish(ordered, err));
    ordered_destroy(ordered);
    return rc ? -1 : 0;
}
