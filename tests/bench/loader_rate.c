/* loader_rate.c - how fast one thread reads samples of a token file: loader_rate [SEQ_LEN [ROUNDS]]
 *
 * Makes a file of 32 M tokens under TMPDIR, in documents of 16 to 4096 tokens, and reads one epoch
 * of it, shuffled, in batches of 8 sequences of SEQ_LEN (2048) tokens: inputs, targets and, where
 * documents are kept apart, places.  For each way to make sequences the fastest of ROUNDS (5)
 * rounds is printed.  The file is in the page cache.  Nothing here passes or fails. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/philox.h"
#include "io/h5.h"
#include "io/loader.h"

enum { TOKENS = 32 << 20, VOCAB = 50257, BATCH = 8, LONGEST = 4096 };

static int write_documents(struct tokens_writer *writer, struct error *err)
{
    float uniform[LONGEST];
    uint32_t ids[LONGEST];
    int64_t done = 0, length;
    for (uint64_t d = 0; done < TOKENS; d++, done += length) {
        philox_fill_uniform(uniform, d, 0, LONGEST, 0.5f);
        length = (int64_t)(16 * exp2((uniform[0] + 0.5) * 8));
        length = length > LONGEST ? LONGEST : length;
        for (int64_t i = 0; i < length; i++)
            ids[i] = (uint32_t)((uniform[i] + 0.5f) * (VOCAB - 1));
        if (tokens_append(writer, ids, length, err))
            return -1;
    }
    return tokens_finish(writer, err);
}

static int make_file(const char *path, struct error *err)
{
    struct tokens_writer *writer;
    return tokens_create(&writer, path, "none", VOCAB, "loader_rate", err) ||
                   write_documents(writer, err)
               ? -1
               : 0;
}

/* An epoch; its nanoseconds, or -1 with err set. */
static int64_t read_epoch(const struct loader *loader, int32_t *rows, struct error *err)
{
    int64_t seq = loader->options.seq_len, start = clock_ns();
    for (int64_t sample = 0; sample < loader->windows; sample++) {
        int32_t *at = rows + sample % BATCH * 4 * seq;
        if (loader_read(loader, sample, at, at + seq, err) ||
            (loader->packing && loader_positions(loader, sample, at + 2 * seq, at + 3 * seq, err)))
            return -1;
    }
    return clock_ns() - start;
}

static int measure(struct tokens *tokens, enum config_packing packing, const char *name,
                   int64_t seq_len, int rounds, struct error *err)
{
    struct loader loader;
    const struct loader_options options = {
        .seq_len = seq_len, .vocab = VOCAB, .seed = 1, .packing = packing};
    int32_t *rows = malloc((size_t)(BATCH * 4 * seq_len) * sizeof *rows);
    int64_t start = clock_ns(), best = INT64_MAX, ns = 0;
    if (!rows || loader_open(&loader, tokens, &options, err)) {
        free(rows);
        return -1;
    }
    double open_s = (double)(clock_ns() - start) / 1e9;
    for (int r = 0; r < rounds && (ns = read_epoch(&loader, rows, err)) >= 0; r++)
        best = ns < best ? ns : best;
    double seconds = (double)best / 1e9, read = (double)loader.windows * (double)seq_len;
    if (ns >= 0)
        printf(
            "  %-10s %8lld sequences, opened in %.3f s, %7.1f M tokens/s, %8.0f batches of %d/s\n",
            name, (long long)loader.windows, open_s, read / seconds / 1e6,
            (double)loader.windows / BATCH / seconds, BATCH);
    loader_close(&loader);
    free(rows);
    return ns < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    struct error err = {0};
    struct tokens tokens;
    const char *folder = getenv("TMPDIR");
    char path[512];
    int64_t seq_len = argc > 1 ? atoll(argv[1]) : 2048;
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    snprintf(path, sizeof path, "%s/trireme-loader-%d.h5", folder ? folder : "/tmp", getpid());
    h5_setup();
    int rc = make_file(path, &err) || tokens_open(&tokens, path, &err);
    if (!rc) {
        printf("%lld tokens, %lld documents, sequences of %lld, one thread, best of %d\n",
               (long long)tokens.count, (long long)tokens.documents, (long long)seq_len, rounds);
        rc = measure(&tokens, PACKING_STREAM, "stream", seq_len, rounds, &err) ||
             measure(&tokens, PACKING_DOCUMENTS, "documents", seq_len, rounds, &err) ||
             measure(&tokens, PACKING_PADDED, "padded", seq_len, rounds, &err);
        tokens_close(&tokens);
    }
    unlink(path);
    if (rc)
        fprintf(stderr, "loader_rate: %s\n", err.text);
    return rc != 0;
}
