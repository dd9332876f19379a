/* fuzz_tokens.c - a token file, changed in three ways that the first byte chooses.
 *
 * 0: bytes anywhere, as a disk or a transfer damages them.  The file is refused, when it is opened
 * or when the damage is read, or every value is the one that was written. 1: tokens, documents and
 * mask, sealed again: values that nobody wrote, behind good checksums. 2: the front, with a
 * checksum of its own: offsets and lengths that make no sense.
 *
 * HDF5's own structure is changed in the first way alone, and then it is never given to HDF5.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "io/disk.h"
#include "io/loader.h"
#include "io/seal.h"
#include "io/tokens.h"
#include "tests/fuzz/fuzz.h"

enum { TOKENS = 20000, VOCAB = 300, SEQ_LEN = 100, PARTS = 3, MOST = 1 << 20 };
enum { DAMAGED, SEALED_AGAIN, OTHER_FRONT, WAYS };

static struct {
    uint8_t *bytes;
    int64_t size, table;
    struct seal_range part[PARTS]; /* tokens, documents, mask */
    uint64_t sum;                  /* of what a reader sees */
    char path[160];
} whole;

static uint64_t mix(uint64_t sum, const void *data, size_t bytes)
{
    return hash_bytes_seeded(data, bytes, sum);
}

/* Read samples, and where their rows are, as one way of packing has them; 0 or -1. */
static int read_samples(uint64_t *sum, struct tokens *tokens, enum config_packing packing,
                        struct error *err)
{
    struct loader loader;
    int32_t row[4][SEQ_LEN]; /* inputs, targets, positions, documents */
    const struct loader_options options = {.seq_len = SEQ_LEN,
                                           .vocab = VOCAB,
                                           .seed = 1,
                                           .order = LOADER_SEQUENTIAL,
                                           .packing = packing};
    int rc = loader_open(&loader, tokens, &options, err);
    for (int64_t i = 0; !rc && i < loader.windows && i < MOST / SEQ_LEN; i++) {
        rc = loader_read(&loader, i, row[0], row[1], err) ||
             loader_positions(&loader, i, row[2], row[3], err);
        for (int k = 0; !rc && k < SEQ_LEN; k++)
            if (row[0][k] < 0 || row[0][k] >= VOCAB || row[1][k] < -1 || row[1][k] >= VOCAB ||
                row[2][k] < 0 || row[2][k] > k || row[3][k] != k - row[2][k])
                fuzz_fail("token %d, target %d of %d, position %d, document %d in row %d",
                          row[0][k], row[1][k], VOCAB, row[2][k], row[3][k], k);
        *sum = rc ? *sum : mix(*sum, row, sizeof row);
    }
    loader_close(&loader);
    return rc ? -1 : 0;
}

/* Read all there is as training and evaluation do; 0 and a sum of it, or -1. */
static int read_all(uint64_t *sum, const char *path, struct error *err)
{
    struct tokens tokens;
    if (tokens_open(&tokens, path, err))
        return -1;
    int rc = read_samples(sum, &tokens, PACKING_STREAM, err);
    if (!rc && tokens.documents < MOST &&
        read_samples(sum, &tokens, PACKING_DOCUMENTS, err) |
            read_samples(sum, &tokens, PACKING_PADDED, err))
        rc = err->code == EXIT_NODE ? -1 : 0; /* documents need not fit any packing */
    for (int64_t i = 0; !rc && i <= tokens.documents && i < MOST; i++) {
        uint64_t start;
        rc = tokens_starts(&tokens, i, 1, &start, err);
        *sum = mix(*sum, &start, sizeof start);
    }
    *sum = mix(*sum, tokens.tokenizer, strlen(tokens.tokenizer));
    tokens_close(&tokens);
    return rc;
}

static void write_once(void)
{
    uint32_t ids[TOKENS];
    uint8_t mask[TOKENS];
    struct error err = {0};
    struct tokens_writer *writer;
    struct tokens tokens;
    const char *path = fuzz_path("whole.h5");
    if (whole.bytes)
        return;
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (uint32_t)(i * 7 % VOCAB);
        mask[i] = i % 3 != 0;
    }
    if (tokens_create(&writer, path, "bytes", VOCAB, "fuzz", &err) ||
        tokens_append(writer, ids, TOKENS / 2, &err) ||
        tokens_append(writer, ids + TOKENS / 2, TOKENS - TOKENS / 2, &err) ||
        tokens_extend_mask(writer, mask, TOKENS, &err) || tokens_finish(writer, &err) ||
        tokens_open(&tokens, path, &err))
        fuzz_fail("%s", err.text);
    whole.table = tokens.seal.end;
    memcpy(whole.part, tokens.seal.large, sizeof whole.part);
    tokens_close(&tokens);
    int fd = open(path, O_RDONLY);
    whole.size = lseek(fd, 0, SEEK_END);
    whole.bytes = malloc((size_t)whole.size);
    if (!whole.bytes || pread(fd, whole.bytes, (size_t)whole.size, 0) != whole.size)
        fuzz_fail("cannot read %s", path);
    close(fd);
    snprintf(whole.path, sizeof whole.path, "%s", path);
    if (read_all(&whole.sum, path, &err))
        fuzz_fail("%s", err.text);
}

/* Overwrite 1, 2, 4 or 8 bytes in [offset, offset + bytes) of a file, again and again. */
static void change(uint8_t *file, int64_t offset, int64_t bytes, const uint8_t **data, size_t *left)
{
    int64_t at = offset + (int64_t)fuzz_take(data, left, 3) % bytes;
    int width = 1 << fuzz_take(data, left, 1) % 4;
    uint64_t number = fuzz_take(data, left, width);
    if (at + width <= offset + bytes)
        memcpy(file + at, &number, (size_t)width);
}

static void change_parts(uint8_t *file, const uint8_t *data, size_t left)
{
    while (left) {
        const struct seal_range *part = &whole.part[fuzz_take(&data, &left, 1) % PARTS];
        if (part->bytes)
            change(file, part->offset, part->bytes, &data, &left);
    }
}

static void change_front(uint8_t *file, const uint8_t *data, size_t left)
{
    const int64_t fields = SEAL_FRONT - (int64_t)sizeof(uint64_t);
    while (left)
        change(file, 0, left % 2 ? 128 : fields, &data, &left);
    uint64_t sum = hash_bytes(file, (size_t)fields);
    memcpy(file + fields, &sum, sizeof sum);
}

static void seal_again(const char *path)
{
    struct error err = {0};
    int fd = open(path, O_RDWR);
    if (fd < 0 || ftruncate(fd, whole.table) ||
        seal_write(fd, path, whole.table, whole.part, PARTS, &err))
        fuzz_fail("cannot seal %s: %s", path, err.text);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct error err = {0};
    write_once();
    uint8_t *file = malloc((size_t)whole.size);
    if (!file)
        return 0;
    memcpy(file, whole.bytes, (size_t)whole.size);
    int way = (int)(fuzz_take(&data, &bytes, 1) % WAYS);
    if (way == SEALED_AGAIN)
        change_parts(file, data, bytes);
    else if (way == OTHER_FRONT)
        change_front(file, data, bytes);
    while (way == DAMAGED && bytes)
        change(file, 0, whole.size, &data, &bytes);
    const char *path = fuzz_file("changed.h5", file, (size_t)whole.size);
    free(file);
    if (way == SEALED_AGAIN)
        seal_again(path);
    uint64_t sum = 0;
    if (read_all(&sum, path, &err))
        fuzz_check_error(&err);
    else if (way == DAMAGED && sum != whole.sum)
        fuzz_fail("other values than were written, and no error");
    return 0;
}
