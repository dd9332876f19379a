/* test_packing.c - documents into sequences: each row of each document once, none of which has a
 * target of another; what ranks have of a sequence; several files as one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/philox.h"
#include "base/round.h"
#include "io/dataset.h"

enum { VOCAB = 60000, LONGEST = 80 };

/* A token file: token t of the file is t itself, so that a row says where it is from. */
struct file {
    char path[64];
    int documents;
    int64_t *start; /* [documents + 1] */
    struct tokens tokens;
};

static void make_file(struct file *f, int number, int documents, const int64_t *lengths)
{
    struct error err = {0};
    struct tokens_writer *writer;
    uint32_t ids[LONGEST];
    snprintf(f->path, sizeof f->path, "/tmp/trireme-packing-%ld-%d.h5", (long)getpid(), number);
    f->documents = documents;
    f->start = calloc((size_t)documents + 1, sizeof *f->start);
    if (tokens_create(&writer, f->path, "bytes", VOCAB, "", &err))
        fail_msg("%s", err.text);
    for (int d = 0; d < documents; d++) {
        for (int64_t i = 0; i < lengths[d]; i++)
            ids[i] = (uint32_t)(f->start[d] + i);
        assert_int_equal(tokens_append(writer, ids, lengths[d], &err), 0);
        f->start[d + 1] = f->start[d] + lengths[d];
    }
    if (tokens_finish(writer, &err) || tokens_open(&f->tokens, f->path, &err))
        fail_msg("%s", err.text);
}

static void drop_file(struct file *f)
{
    tokens_close(&f->tokens);
    unlink(f->path);
    free(f->start);
}

/* Documents of 0 to some 70 tokens, some of equal lengths. */
static void make_random(struct file *f, int number, int documents, uint64_t seed)
{
    int64_t *lengths = malloc((size_t)documents * sizeof *lengths);
    for (int d = 0; d < documents; d++)
        lengths[d] = (int64_t)(philox_u64(seed, (uint64_t)d) % (d % 3 ? 12 : 71));
    make_file(f, number, documents, lengths);
    free(lengths);
}

static int document_of(const struct file *f, int64_t token)
{
    int d = 0;
    while (f->start[d + 1] <= token)
        d++;
    return d;
}

static void open_loader(struct loader *loader, struct file *f, int64_t seq_len,
                        enum config_packing packing, enum loader_order order, uint64_t seed)
{
    struct error err = {0};
    const struct loader_options options = {
        .seq_len = seq_len, .vocab = VOCAB, .seed = seed, .order = order, .packing = packing};
    if (loader_open(loader, &f->tokens, &options, &err))
        fail_msg("%s", err.text);
}

struct rows {
    int32_t in[LONGEST + 1], out[LONGEST + 1], position[LONGEST + 1], document[LONGEST + 1];
};

static struct rows read_sample(const struct loader *loader, int64_t sample)
{
    struct error err = {0};
    struct rows r;
    memset(&r, 0x7f, sizeof r);
    if (loader_read(loader, sample, r.in, r.out, &err) ||
        loader_positions(loader, sample, r.position, r.document, &err))
        fail_msg("%s", err.text);
    return r;
}

/* A row of a document: its target follows it there, and its place is that in its part. */
static void check_row(const struct file *f, const struct rows *r, int64_t i, char *seen)
{
    int64_t begin = r->document[i];
    assert_int_equal(r->position[i], i - begin);
    if (r->out[i] < 0) { /* padding: one row by itself */
        assert_int_equal(begin, i);
        assert_int_equal(r->in[i], 0);
        return;
    }
    assert_int_equal(r->out[i], r->in[i] + 1);
    assert_int_equal(r->in[i], r->in[begin] + (i - begin));
    assert_int_equal(document_of(f, r->in[i]), document_of(f, r->in[begin]));
    assert_int_equal(document_of(f, r->in[i]), document_of(f, r->out[i]));
    assert_int_equal(seen[r->in[i]]++, 0);
}

/* In an epoch each token that another of its document follows is an input once; padded, those that
 * fit. */
static void each_row_once(void **state)
{
    static const int64_t lengths[] = {1, 2, 3, 7, 16, 33, 80};
    struct file f;
    make_random(&f, 0, 211, 5);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int packed = 0; packed < 2; packed++) {
            struct loader loader;
            char *seen = calloc((size_t)f.tokens.count, 1);
            int64_t rows = 0, seq_len = lengths[l];
            open_loader(&loader, &f, seq_len, packed ? PACKING_DOCUMENTS : PACKING_PADDED,
                        LOADER_SHUFFLED, 3);
            for (int64_t s = 0; s < loader.windows; s++) {
                const struct rows r = read_sample(&loader, loader.windows + s); /* epoch 1 */
                for (int64_t i = 0; i < seq_len; i++)
                    check_row(&f, &r, i, seen);
                assert_int_equal(r.in[seq_len], 0x7f7f7f7f);
            }
            for (int d = 0; d < f.documents; d++)
                for (int64_t t = f.start[d]; t < f.start[d + 1]; t++) {
                    int is_row = t + 1 < f.start[d + 1] && (packed || t - f.start[d] < seq_len);
                    assert_int_equal(seen[t], is_row);
                    rows += is_row;
                }
            if (packed) /* best-fit decreasing needs at most 11/9 of the fewest, and 4 more */
                assert_true(loader.windows <= 11 * ceil_div(rows, seq_len) / 9 + 4);
            free(seen);
            loader_close(&loader);
        }
    drop_file(&f);
}

/* What fills sequences exactly does. */
static void sequences_are_filled(void **state)
{
    static const int64_t lengths[] = {7, 4, 13, 3, 5, 5, 1, 0};
    struct file f;
    struct loader loader;
    make_file(&f, 0, 8, lengths);
    open_loader(&loader, &f, 8, PACKING_DOCUMENTS, LOADER_SEQUENTIAL, 0);
    assert_int_equal(loader.windows, 4); /* 8 of 12, 6 + 2, 4 + 4, 4 + 3 */
    loader_close(&loader);
    open_loader(&loader, &f, 8, PACKING_PADDED, LOADER_SEQUENTIAL, 0);
    assert_int_equal(loader.windows, 6);
    const struct rows r = read_sample(&loader, 2), none = read_sample(&loader, 6);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(r.in[i], 11 + i);
        assert_true(none.in[i] == 0 && none.out[i] == -1 && none.document[i] == i);
    }
    loader_close(&loader);
    drop_file(&f);
}

/* The same packing whenever it is made; another with another seed, and in another epoch. */
static void packing_is_a_function_of_the_seed(void **state)
{
    struct file f;
    struct loader one, again, other;
    int64_t differ[2] = {0, 0};
    make_random(&f, 0, 307, 6);
    open_loader(&one, &f, 24, PACKING_DOCUMENTS, LOADER_SHUFFLED, 1);
    open_loader(&again, &f, 24, PACKING_DOCUMENTS, LOADER_SHUFFLED, 1);
    open_loader(&other, &f, 24, PACKING_DOCUMENTS, LOADER_SHUFFLED, 2);
    for (int64_t s = 0; s < one.windows; s++) {
        const struct rows a = read_sample(&one, s), b = read_sample(&again, s);
        const struct rows c = read_sample(&other, s), d = read_sample(&one, one.windows + s);
        assert_memory_equal(&a, &b, sizeof a);
        differ[0] += memcmp(&a, &c, sizeof a) != 0;
        differ[1] += memcmp(&a, &d, sizeof a) != 0;
    }
    assert_true(differ[0] > one.windows / 2 && differ[1] > one.windows / 2);
    loader_close(&one);
    loader_close(&again);
    loader_close(&other);
    drop_file(&f);
}

/* Two chunks of a sequence are those rows of the whole one. */
static void parts_are_of_the_whole(void **state)
{
    enum { SEQ = 24, CHUNK = 4 };
    struct file f;
    struct loader whole, part;
    make_random(&f, 0, 101, 7);
    open_loader(&whole, &f, SEQ, PACKING_DOCUMENTS, LOADER_SHUFFLED, 1);
    open_loader(&part, &f, SEQ, PACKING_DOCUMENTS, LOADER_SHUFFLED, 1);
    for (int64_t rank = 0; rank < 3; rank++) {
        const int64_t first[2] = {rank * CHUNK, SEQ - (rank + 1) * CHUNK};
        loader_set_part(&part, CHUNK, first);
        for (int64_t s = 0; s < whole.windows; s++) {
            const struct rows a = read_sample(&whole, s), b = read_sample(&part, s);
            for (int i = 0; i < 2 * CHUNK; i++) {
                int64_t from = first[i / CHUNK] + i % CHUNK;
                assert_true(b.in[i] == a.in[from] && b.out[i] == a.out[from]);
                assert_true(b.position[i] == a.position[from] && b.document[i] == a.document[from]);
            }
        }
    }
    loader_close(&whole);
    loader_close(&part);
    drop_file(&f);
}

static void nothing_to_pack(void **state)
{
    static const int64_t lengths[] = {1, 0, 1};
    struct file f;
    struct loader loader;
    make_file(&f, 0, 3, lengths);
    for (int packed = 0; packed < 2; packed++) {
        struct error err = {0};
        const struct loader_options options = {
            .seq_len = 4,
            .vocab = VOCAB,
            .packing = packed ? PACKING_DOCUMENTS : PACKING_PADDED,
        };
        assert_int_equal(loader_open(&loader, &f.tokens, &options, &err), -1);
        assert_non_null(strstr(err.text, "none of its 3 documents has two tokens"));
    }
    drop_file(&f);
}

/* Half a million documents take no more than seconds and fill nearly all there is. */
static void many_documents(void **state)
{
    enum { DOCUMENTS = 500000, SEQ = 64 };
    struct error err = {0};
    struct tokens_writer *writer;
    struct tokens tokens;
    struct packing *packing;
    char path[64];
    uint32_t ids[SEQ + 1] = {0};
    int64_t rows = 0;
    snprintf(path, sizeof path, "/tmp/trireme-packing-%ld-many.h5", (long)getpid());
    assert_int_equal(tokens_create(&writer, path, "bytes", VOCAB, "", &err), 0);
    for (int d = 0; d < DOCUMENTS; d++) {
        int64_t length = 2 + (int64_t)(philox_u64(8, (uint64_t)d) % (SEQ - 1));
        assert_int_equal(tokens_append(writer, ids, length, &err), 0);
        rows += length - 1;
    }
    assert_int_equal(tokens_finish(writer, &err), 0);
    assert_int_equal(tokens_open(&tokens, path, &err), 0);
    assert_int_equal(packing_create(&packing, &tokens, PACK_TOGETHER, SEQ, 0, 1, &err), 0);
    assert_true((double)rows / SEQ / (double)packing_sequences(packing) > 0.99);
    packing_destroy(packing);
    tokens_close(&tokens);
    unlink(path);
}

/* ---- several files ---- */

static void open_dataset(struct dataset *d, const char *text, enum loader_order order)
{
    struct error err = {0};
    const struct loader_options options = {.seq_len = 4, .vocab = VOCAB, .seed = 9, .order = order};
    if (dataset_open(d, text, &options, &err))
        fail_msg("%s", err.text);
}

/* Shares are exact in each block, and every sample of a file occurs once, in whatever order. */
static void weights_are_exact(void **state)
{
    struct file f[3];
    char text[256];
    struct dataset d;
    static const int64_t share[] = {7000, 2999, 1};
    for (int i = 0; i < 3; i++)
        make_random(&f[i], i, 40 + i, (uint64_t)i);
    snprintf(text, sizeof text, "%s:0.7,%s:weight=0.3,%s:1e-9", f[0].path, f[1].path, f[2].path);
    open_dataset(&d, text, LOADER_SHUFFLED);
    assert_true(d.is_mixed && d.files == 3);
    for (int64_t block = 0; block < 3; block++) {
        char *seen = calloc(DATASET_SLOTS, 1);
        int64_t count[3] = {0}, runs = 0;
        int last = -1;
        for (int64_t i = 0; i < DATASET_SLOTS; i++) {
            const struct dataset_place at = dataset_locate(&d, block * DATASET_SLOTS + i);
            int64_t sample = at.sample - block * share[at.file];
            assert_true(sample >= 0 && sample < share[at.file]);
            assert_int_equal(seen[d.file[at.file].first + sample]++, 0);
            count[at.file]++;
            runs += at.file != last;
            last = at.file;
        }
        assert_memory_equal(count, share, sizeof count);
        assert_true(runs > 3500 && runs < 4900); /* 2 * 0.7 * 0.3 of them, by chance */
        free(seen);
    }
    dataset_close(&d);
    for (int i = 0; i < 3; i++)
        drop_file(&f[i]);
}

/* Without weights an epoch has each sequence of each file once; in order, one file comes after the
 * other. */
static void files_without_weights(void **state)
{
    struct file f[2];
    char text[256];
    struct dataset d;
    for (int i = 0; i < 2; i++)
        make_random(&f[i], i, 40 + i, (uint64_t)i);
    snprintf(text, sizeof text, "%s,%s:samples=5", f[0].path, f[1].path);
    open_dataset(&d, text, LOADER_SHUFFLED);
    assert_int_equal(d.file[1].loader.windows, 5);
    assert_int_equal(d.windows, d.file[0].loader.windows + 5);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        char *seen = calloc((size_t)d.windows, 1);
        for (int64_t i = 0; i < d.windows; i++) {
            const struct dataset_place at = dataset_locate(&d, epoch * d.windows + i);
            int64_t window = loader_window(&d.file[at.file].loader, at.sample);
            assert_int_equal(seen[d.file[at.file].first + window]++, 0);
        }
        free(seen);
    }
    dataset_close(&d);
    open_dataset(&d, text, LOADER_SEQUENTIAL);
    for (int64_t i = 0; i < d.windows + 3; i++) {
        const struct dataset_place at = dataset_locate(&d, i);
        assert_int_equal(at.file, i >= d.windows ? -1 : i >= d.windows - 5);
        assert_int_equal(at.sample, i >= d.windows ? 0 : i - d.file[at.file].first);
    }
    dataset_close(&d);
    for (int i = 0; i < 2; i++)
        drop_file(&f[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_once),
        cmocka_unit_test(sequences_are_filled),
        cmocka_unit_test(packing_is_a_function_of_the_seed),
        cmocka_unit_test(parts_are_of_the_whole),
        cmocka_unit_test(nothing_to_pack),
        cmocka_unit_test(many_documents),
        cmocka_unit_test(weights_are_exact),
        cmocka_unit_test(files_without_weights),
    };
    return cmocka_run_group_tests_name("packing", tests, NULL, NULL);
}
