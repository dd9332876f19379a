/* tokenizer_rate.c - how fast one thread encodes: tokenizer_rate TOKENIZER FILE DOCUMENT_BYTES
 * ROUNDS
 *
 * The file is encoded in documents of about DOCUMENT_BYTES, each cut behind a line.  Prints a line
 * for each round: megabytes per second, and the number of tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "io/tokenizer.h"

static char *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        return NULL;
    *bytes = (size_t)ftell(file);
    char *text = malloc(*bytes + 1);
    rewind(file);
    *bytes = text ? fread(text, 1, *bytes, file) : 0;
    fclose(file);
    return text;
}

static int encode_all(struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                      size_t document, int64_t *tokens, struct error *err)
{
    const uint32_t *ids;
    int64_t count;
    for (size_t at = 0, end; at < bytes; at = end) {
        end = at + document < bytes ? at + document : bytes;
        while (end < bytes && text[end - 1] != '\n')
            end++;
        if (tokenizer_encoder_run(encoder, text + at, end - at, 0, &ids, &count, err))
            return -1;
        *tokens += count;
    }
    return 0;
}

static int write_ids(struct tokenizer_encoder *encoder, const char *text, size_t bytes, int flags,
                     struct error *err)
{
    const uint32_t *ids;
    int64_t count;
    if (tokenizer_encoder_run(encoder, text, bytes, flags, &ids, &count, err))
        return -1;
    return fwrite(ids, sizeof *ids, (size_t)count, stdout) == (size_t)count
               ? 0
               : error_errno(err, "cannot write ids");
}

int main(int argc, char **argv)
{
    struct error err = {0};
    struct tokenizer *tokenizer;
    struct tokenizer_encoder *encoder;
    size_t bytes;
    char *text = argc == 4 || argc == 5 ? read_file(argv[2], &bytes) : NULL;
    if (!text) {
        fprintf(stderr, "tokenizer_rate TOKENIZER FILE DOCUMENT_BYTES ROUNDS\n");
        return 1;
    }
    if (tokenizer_open(&tokenizer, argv[1], &err) ||
        tokenizer_encoder_create(&encoder, tokenizer, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (argc == 4 && write_ids(encoder, text, bytes, atoi(argv[3]), &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (int i = 0; argc == 5 && i < atoi(argv[4]); i++) {
        int64_t tokens = 0;
        int64_t start = clock_ns();
        if (encode_all(encoder, text, bytes, strtoul(argv[3], NULL, 10), &tokens, &err)) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        printf("%.3f %lld\n", (double)bytes * 1e3 / (double)(clock_ns() - start),
               (long long)tokens);
    }
    tokenizer_encoder_destroy(encoder);
    tokenizer_close(tokenizer);
    free(text);
    return 0;
}
