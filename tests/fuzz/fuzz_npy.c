/* fuzz_npy.c - bytes as files of token ids: numpy's, llm.c's, numbers alone.  They are refused, or
 * every number is below the vocabulary. */
#include "base/round.h"
#include "io/npy.h"
#include "tests/fuzz/fuzz.h"

enum { VOCAB = 50257 };

static void read_ids(struct npy *npy)
{
    static uint32_t ids[NPY_MOST];
    for (int64_t first = 0; first < npy->count; first += NPY_MOST) {
        struct error err = {0};
        int64_t count = min_i64(NPY_MOST, npy->count - first);
        if (npy_read(npy, first, count, VOCAB, ids, &err)) {
            fuzz_check_error(&err);
            return;
        }
        for (int64_t i = 0; i < count; i++)
            if (ids[i] >= VOCAB)
                fuzz_fail("id %u of %d", ids[i], VOCAB);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path = fuzz_file("ids", data, bytes);
    const enum npy_format formats[] = {npy_format(data, (int64_t)bytes), NPY_RAW};
    for (int i = 0; i < 2; i++) {
        struct npy npy;
        struct error err = {0};
        if (npy_open(&npy, path, formats[i], &err)) {
            fuzz_check_error(&err);
            continue;
        }
        read_ids(&npy);
        npy_close(&npy);
    }
    return 0;
}
