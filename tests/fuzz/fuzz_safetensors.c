/* fuzz_safetensors.c - bytes as a safetensors file.  The first byte chooses: 0 the file as it is; 1
 * a header, with its right length put in front and as many zeros behind as the second byte says; 2
 * an index beside a file.  What is taken has tensors whose every element can be read, and no byte
 * outside of the file is.
 */
#include <stdlib.h>
#include <string.h>

#include "io/safetensors.h"
#include "tests/fuzz/fuzz.h"

enum { AS_IT_IS, HEADER, INDEX, WAYS };
enum { BLOCK = 1000 };

static void read_all(const struct safetensors *st)
{
    float block[BLOCK];
    uint64_t hash;
    struct error err = {0};
    for (int t = 0; t < st->tensors; t++) {
        const struct safetensors_tensor *tensor = &st->tensor[t];
        if (safetensors_find(st, tensor->name) == NULL)
            fuzz_fail("a tensor is not found by its name");
        for (int64_t at = 0; at < tensor->elems && at < 100 * BLOCK; at += BLOCK) {
            int64_t count = tensor->elems - at < BLOCK ? tensor->elems - at : BLOCK;
            err.text[0] = 0;
            if (safetensors_read(st, tensor, at, count, block, &err)) {
                fuzz_check_error(&err);
                if (tensor->dtype >= 0)
                    fuzz_fail("a tensor cannot be read: %s", err.text);
                break;
            }
        }
        if (!safetensors_read(st, tensor, tensor->elems, 1, block, &err))
            fuzz_fail("an element behind the last was read");
    }
    if (safetensors_hash(st, &hash, &err))
        fuzz_fail("no hash: %s", err.text);
}

/* A file of a header, which stands in data, and zeros. */
static const char *with_length(const uint8_t *data, size_t bytes, size_t zeros)
{
    uint8_t *file = calloc(1, 8 + bytes + zeros);
    uint64_t length = bytes;
    if (!file)
        fuzz_fail("out of memory");
    memcpy(file, &length, sizeof length);
    memcpy(file + 8, data, bytes);
    const char *path = fuzz_file("model.safetensors", file, 8 + bytes + zeros);
    free(file);
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    struct safetensors *st;
    struct error err = {0};
    int way = (int)(fuzz_take(&data, &bytes, 1) % WAYS);
    const char *path;
    if (way == AS_IT_IS) {
        path = fuzz_file("model.safetensors", data, bytes);
    } else if (way == HEADER) {
        size_t zeros = fuzz_take(&data, &bytes, 1);
        path = with_length(data, bytes, zeros);
    } else {
        with_length((const uint8_t *)header, sizeof header - 1, 8);
        path = fuzz_file("model.safetensors.index.json", data, bytes);
    }
    if (safetensors_open(&st, path, &err)) {
        fuzz_check_error(&err);
        return 0;
    }
    read_all(st);
    safetensors_close(st);
    return 0;
}
