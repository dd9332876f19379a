/* fuzz_megatron.c - bytes as the .idx of a .bin of Megatron's, which has as many ids as the first
 * byte says, of 1, 2, 4 or 8 bytes each.  The .idx is refused, or its documents follow one another
 * and end where the ids do.
 */
#include "io/megatron.h"
#include "tests/fuzz/fuzz.h"

/* As `tokenize` reads: documents that have ids, and then the empty ones that are left. */
static void read_documents(struct megatron_index *index, int64_t ids)
{
    struct error err = {0};
    int64_t end = 0, before = 0;
    for (; end < ids; before = end) {
        end = megatron_next_end(index, &err);
        if (end < 0) {
            fuzz_check_error(&err);
            return;
        }
        if (end < before || end > ids)
            fuzz_fail("a document ends at id %lld, the one before it at %lld of %lld",
                      (long long)end, (long long)before, (long long)ids);
    }
    if (megatron_finish(index, &err) < 0)
        fuzz_check_error(&err);
    else if (megatron_next_end(index, &err) >= 0)
        fuzz_fail("a document behind the last one");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct megatron_index *index;
    struct error err = {0};
    int64_t ids = (int64_t)fuzz_take(&data, &bytes, 1);
    int type, width = 1 << fuzz_take(&data, &bytes, 1) % 4;
    const char *bin = fuzz_path("ids.bin");
    fuzz_file("ids.idx", data, bytes);
    if (megatron_type(bin, &type, &err))
        fuzz_check_error(&err);
    err.text[0] = 0;
    if (megatron_open(&index, bin, ids, width, &err)) {
        fuzz_check_error(&err);
        return 0;
    }
    read_documents(index, ids);
    megatron_close(index);
    return 0;
}
