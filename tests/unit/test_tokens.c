/* test_tokens.c - properties of tokenizers, token files and the loader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "io/disk.h"
#include "io/loader.h"
#include "io/tokenizer.h"
#include "io/tokens.h"
#include "tests/unit/h5_data.h"
#include "tests/unit/test_folder.h"

static void bytes_come_back(void **state)
{
    struct tokenizer *tokenizer;
    struct error err = {0};
    char text[256];
    uint32_t *ids;
    int64_t count;
    size_t bytes;
    const uint32_t end[] = {256, 257, UINT32_MAX};
    for (int i = 0; i < 256; i++)
        text[i] = (char)(255 - i);
    assert_int_equal(tokenizer_open(&tokenizer, "bytes", &err), 0);
    assert_int_equal(tokenizer_encode(tokenizer, text, sizeof text, 0, &ids, &count, &err), 0);
    assert_int_equal(count, 256);
    char *again = tokenizer_decode(tokenizer, ids, count, 0, &bytes);
    assert_int_equal(bytes, 256);
    assert_memory_equal(text, again, sizeof text);
    free(again);
    assert_int_equal(tokenizer->end_of_text, 256);
    assert_int_equal(tokenizer->vocab, 257);
    free(tokenizer_decode(tokenizer, end, 3, 0, &bytes));
    assert_int_equal(bytes, 0);
    free(ids);
    tokenizer_close(tokenizer);
    assert_int_equal(tokenizer_open(&tokenizer, "byte", &err), -1);
    assert_non_null(strstr(err.text, "bytes"));
}

/* Documents of the given lengths, token k of the file being k * 7 % vocab. */
static int write_file(const char *path, const int64_t *lengths, int documents, int64_t vocab,
                      struct error *err)
{
    struct tokens_writer *writer;
    int64_t k = 0;
    if (tokens_create(&writer, path, "bytes", vocab, "a test", err))
        return -1;
    for (int d = 0; d < documents; d++) {
        uint32_t *document = malloc((size_t)lengths[d] * sizeof *document + 1);
        for (int64_t i = 0; i < lengths[d]; i++, k++)
            document[i] = (uint32_t)(k * 7 % vocab);
        int rc = tokens_append(writer, document, lengths[d], err);
        free(document);
        if (rc) {
            tokens_abandon(writer);
            return -1;
        }
    }
    return tokens_finish(writer, err);
}

static void check_file(const char *path, const int64_t *lengths, int documents, int64_t vocab)
{
    struct tokens tokens;
    struct error err = {0};
    int64_t k = 0;
    if (tokens_open(&tokens, path, &err))
        fail_msg("%s", err.text);
    int32_t *ids = malloc((size_t)tokens.count * sizeof *ids + 1);
    uint64_t *starts = malloc((size_t)(tokens.documents + 1) * sizeof *starts);
    if (tokens_read(&tokens, 0, tokens.count, ids, &err) ||
        tokens_starts(&tokens, 0, tokens.documents + 1, starts, &err) ||
        tokens_verify(&tokens, &err))
        fail_msg("%s", err.text);
    assert_true(tokens.has_checksums);
    assert_int_equal(tokens.dtype, vocab <= 65536 ? DTYPE_U16 : DTYPE_U32);
    assert_int_equal(tokens.vocab, vocab);
    assert_string_equal(tokens.tokenizer, "bytes");
    assert_int_equal(tokens.documents, documents);
    assert_false(tokens.has_mask);
    for (int d = 0; d < documents; d++) {
        assert_int_equal(starts[d], k);
        for (int64_t i = 0; i < lengths[d]; i++, k++)
            assert_int_equal(ids[k], k * 7 % vocab);
    }
    assert_int_equal(starts[documents], k);
    assert_int_equal(tokens.count, k);
    assert_int_equal(tokens_read(&tokens, k, 1, ids, &err), -1);
    assert_int_equal(tokens_read(&tokens, -1, 1, ids, &err), -1);
    tokens_close(&tokens);
    assert_null(tokens.path);
    free(starts);
    free(ids);
}

static void files_come_back(void **state)
{
    static const int64_t rows[][5] = {
        {0}, {1}, {3, 0, 1}, {2047, 1, 2049, 7}, {4096, 65536, 3}, {1500000, 1, 700001},
    };
    static const int documents[] = {1, 1, 3, 4, 3, 3};
    for (int64_t vocab = 257; vocab < 1000000; vocab = vocab * 255 + 1)
        for (int i = 0; i < 6; i++) {
            struct error err = {0};
            if (write_file(in_folder("t.h5"), rows[i], documents[i], vocab, &err))
                fail_msg("%s", err.text);
            check_file(in_folder("t.h5"), rows[i], documents[i], vocab);
        }
    struct error err = {0};
    int none[1] = {0};
    if (write_file(in_folder("t.h5"), (int64_t *)none, 0, 257, &err))
        fail_msg("%s", err.text);
    check_file(in_folder("t.h5"), NULL, 0, 257);
}

/* HDF5 itself must agree about what the file holds. */
static void files_are_hdf5(void **state)
{
    static const int64_t lengths[] = {5000, 1234};
    struct error err = {0};
    struct h5 *file;
    struct h5_dataset dataset;
    void *data;
    char text[64];
    assert_int_equal(write_file(in_folder("t.h5"), lengths, 2, 257, &err), 0);
    assert_int_equal(h5_open(&file, in_folder("t.h5"), &err), 0);
    assert_int_equal(h5_read(file, "tokens", DTYPE_I32, &data, &dataset, &err), 0);
    assert_int_equal(dataset.elems, 6234);
    for (int k = 0; k < 6234; k++)
        assert_int_equal(((int32_t *)data)[k], k * 7 % 257);
    free(data);
    assert_int_equal(h5_read(file, "documents", H5_TYPE_I64, &data, NULL, &err), 0);
    assert_int_equal(((int64_t *)data)[1], 5000);
    assert_int_equal(((int64_t *)data)[2], 6234);
    free(data);
    assert_int_equal(h5_get_text(file, "/", "source", text, sizeof text, &err), 0);
    assert_string_equal(text, "a test");
    h5_close(file, NULL);
}

static void parts_make_documents(void **state)
{
    static const uint32_t ids[] = {1, 2, 3, 4, 5, 6, 7};
    struct error err = {0};
    struct tokens_writer *writer;
    struct tokens tokens;
    assert_int_equal(tokens_create(&writer, in_folder("p.h5"), "bytes", 257, "", &err), 0);
    assert_int_equal(tokens_append(writer, ids, 2, &err), 0);
    assert_int_equal(tokens_extend(writer, ids + 2, 3, &err), 0);
    assert_int_equal(tokens_append(writer, ids + 5, 0, &err), 0);
    assert_int_equal(tokens_extend(writer, ids + 5, 2, &err), 0);
    assert_int_equal(tokens_finish(writer, &err), 0);
    assert_int_equal(tokens_open(&tokens, in_folder("p.h5"), &err), 0);
    assert_int_equal(tokens.count, 7);
    assert_int_equal(tokens.documents, 2);
    uint64_t start;
    int32_t token;
    assert_int_equal(tokens_starts(&tokens, 1, 1, &start, &err), 0);
    assert_int_equal(tokens_read(&tokens, 6, 1, &token, &err), 0);
    assert_int_equal(start, 5);
    assert_int_equal(token, 7);
    tokens_close(&tokens);
}

static int entries_in_folder(void)
{
    char command[128];
    int count = -1;
    snprintf(command, sizeof command, "ls -A %s | wc -l", folder);
    FILE *out = popen(command, "r");
    assert_int_equal(fscanf(out, "%d", &count), 1);
    pclose(out);
    return count;
}

static void nothing_is_left_behind(void **state)
{
    static const int64_t lengths[] = {1000};
    struct error err = {0};
    struct tokens_writer *writer;
    uint32_t wrong[] = {1, 257};
    disk_remove(in_folder("t.h5"), NULL);
    disk_remove(in_folder("p.h5"), NULL);
    assert_int_equal(tokens_create(&writer, in_folder("t.h5"), "bytes", 257, "", &err), 0);
    assert_int_equal(tokens_append(writer, wrong, 1, &err), 0);
    assert_int_equal(access(in_folder("t.h5"), F_OK), -1);
    assert_int_equal(tokens_append(writer, wrong, 2, &err), -1);
    assert_non_null(strstr(err.text, "257"));
    tokens_abandon(writer);
    assert_int_equal(entries_in_folder(), 0);
    assert_int_equal(write_file(in_folder("t.h5"), lengths, 1, 257, &err), 0);
    assert_int_equal(entries_in_folder(), 1);
    assert_int_equal(tokens_create(&writer, in_folder("no/t.h5"), "bytes", 257, "", &err), -1);
    assert_non_null(strstr(err.text, "no/t.h5"));
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

/* A token file made by hand: largest and format as told. */
static void write_plain(const char *path, int64_t largest, int64_t format, int with_mask)
{
    struct error err = {0};
    struct h5 *file;
    uint16_t tokens[] = {10, 11, 12, 13, 14, 15, 16};
    uint64_t starts[] = {0, 7}, hash = 0;
    uint8_t mask[] = {1, 1, 0, 1, 0, 1, 1};
    int64_t seven = 7, two = 2, vocab = 257;
    assert_int_equal(h5_create(&file, path, &err), 0);
    h5_write(file, "tokens", DTYPE_U16, 1, &seven, tokens, &err);
    h5_write(file, "documents", H5_TYPE_U64, 1, &two, starts, &err);
    if (with_mask)
        h5_write(file, "loss_mask", DTYPE_U8, 1, &seven, mask, &err);
    h5_set_value(file, "/", "format", H5_TYPE_I64, &format, &err);
    h5_set_value(file, "/", "vocab", H5_TYPE_I64, &vocab, &err);
    h5_set_value(file, "/", "maximum", H5_TYPE_I64, &largest, &err);
    h5_set_value(file, "/", "hash", H5_TYPE_U64, &hash, &err);
    h5_set_text(file, "/", "tokenizer", "bytes", &err);
    assert_int_equal(h5_close(file, &err), 0);
    assert_string_equal(err.text, "");
}

/* HDF5 puts datasets one behind the other, at any byte.  In a forged file tokens may even begin
 * inside of what was read before, and then one lies across the end of that. */
static void tokens_may_lie_at_odd_bytes(void **state)
{
    enum { COUNT = 200003 };
    struct error err = {0};
    struct h5 *file;
    struct tokens tokens;
    uint64_t starts[] = {0, COUNT};
    int64_t count = COUNT, two = 2, vocab = COUNT, format = 1;
    uint8_t *mask = malloc(COUNT);
    uint32_t *stored = malloc(COUNT * sizeof *stored);
    int32_t *ids = malloc(COUNT * sizeof *ids);
    const char *path = in_folder("odd.h5");
    for (uint32_t i = 0; i < COUNT; i++) {
        mask[i] = 1;
        stored[i] = i;
    }
    assert_int_equal(h5_create_unaligned(&file, path), 0);
    h5_write(file, "loss_mask", DTYPE_U8, 1, &count, mask, &err);
    h5_write(file, "tokens", DTYPE_U32, 1, &count, stored, &err);
    h5_write(file, "documents", H5_TYPE_U64, 1, &two, starts, &err);
    h5_set_value(file, "/", "format", H5_TYPE_I64, &format, &err);
    h5_set_value(file, "/", "vocab", H5_TYPE_I64, &vocab, &err);
    h5_set_text(file, "/", "tokenizer", "bytes", &err);
    assert_int_equal(h5_close(file, &err), 0);
    assert_string_equal(err.text, "");
    if (tokens_open(&tokens, path, &err))
        fail_msg("%s", err.text);
    assert_int_equal(tokens.tokens_at % 2, 1);
    assert_int_equal(tokens_read(&tokens, 0, COUNT, ids, &err), 0);
    assert_memory_equal(ids, stored, COUNT * sizeof *ids);
    assert_int_equal(tokens_starts(&tokens, 0, 2, starts, &err), 0);
    tokens.tokens_at = tokens.documents_at + 1;
    tokens.vocab = INT32_MAX;
    alarm(10);
    assert_int_equal(tokens_read(&tokens, 0, 4, ids, &err), 0);
    alarm(0);
    assert_int_equal(ids[1], (COUNT & 0xff) << 24);
    tokens_close(&tokens);
    free(ids);
    free(stored);
    free(mask);
}

/* Replace a token that is there once. */
static void set_token(const char *path, uint16_t old, uint16_t new)
{
    static char bytes[1 << 16];
    FILE *file = fopen(path, "r+");
    size_t size = fread(bytes, 1, sizeof bytes, file), at = 0;
    while (at + 2 < size &&
           (memcmp(bytes + at, &old, 2) || (old > 10 && bytes[at - 2] != old - 1) ||
            (old < 16 && bytes[at + 2] != old + 1)))
        at++;
    assert_true(at + 2 < size);
    fseek(file, (long)at, SEEK_SET);
    assert_int_equal(fwrite(&new, 2, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

static void expect_refusal(const char *name, const char *word)
{
    struct tokens tokens;
    struct error err = {0};
    assert_int_equal(tokens_open(&tokens, in_folder(name), &err), -1);
    if (!strstr(err.text, name) || !strstr(err.text, word))
        fail_msg("expected %s and \"%s\" in: %s", name, word, err.text);
    assert_null(tokens.path);
}

static void bad_files_are_refused(void **state)
{
    static const int64_t lengths[] = {9000};
    struct error err = {0};
    struct h5 *file;
    struct stat info;
    expect_refusal("absent.h5", "No such file");
    write_text(in_folder("text.h5"), "not at all HDF5");
    expect_refusal("text.h5", "trireme tokenize");
    assert_int_equal(h5_create(&file, in_folder("other.h5"), &err), 0);
    h5_close(file, NULL);
    expect_refusal("other.h5", "not a token file");
    write_plain(in_folder("large.h5"), 257, 1, 0);
    expect_refusal("large.h5", "vocabulary");
    write_plain(in_folder("lost.h5"), 16, 2, 0); /* it says that it has checksums */
    expect_refusal("lost.h5", "is damaged");
    write_plain(in_folder("newer.h5"), 16, 3, 0);
    expect_refusal("newer.h5", "format 3");
    assert_int_equal(write_file(in_folder("short.h5"), lengths, 1, 257, &err), 0);
    assert_int_equal(stat(in_folder("short.h5"), &info), 0);
    assert_int_equal(truncate(in_folder("short.h5"), info.st_size - 1), 0);
    expect_refusal("short.h5", "truncated");
}

/* A file whose first bytes are zeros, and some of the HDF5 headers behind the front. */
static void write_without_beginning(const char *path, int64_t bytes)
{
    static const int64_t lengths[] = {9000};
    static const char zeros[SEAL_FRONT];
    struct error err = {0};
    assert_int_equal(write_file(path, lengths, 1, 257, &err), 0);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, zeros, (size_t)bytes, 0), bytes);
    assert_int_equal(pwrite(fd, zeros, 16, SEAL_FRONT + 8), 16);
    close(fd);
}

/* HDF5 would find its own signature behind the front. */
static void a_damaged_beginning_is_not_taken_for_an_unsealed_file(void **state)
{
    write_without_beginning(in_folder("begins.h5"), 16);
    expect_refusal("begins.h5", "the bytes from 0 on");
    write_without_beginning(in_folder("zeros.h5"), 24);
    expect_refusal("zeros.h5", "user block");
    write_without_beginning(in_folder("front.h5"), SEAL_FRONT);
    expect_refusal("front.h5", "user block");
}

static int open_loader(struct loader *loader, struct tokens *tokens, int64_t seq_len, int64_t vocab,
                       enum loader_order order, struct error *err)
{
    const struct loader_options options = {
        .seq_len = seq_len, .vocab = vocab, .seed = 1, .order = order};
    return loader_open(loader, tokens, &options, err);
}

/* The first `count` samples, one behind the other. */
static int read_samples(const struct loader *loader, int64_t count, int32_t *in, int32_t *out,
                        struct error *err)
{
    int64_t rows = loader_rows(loader);
    for (int64_t i = 0; i < count; i++)
        if (loader_read(loader, i, in + i * rows, out + i * rows, err))
            return -1;
    return 0;
}

static void windows_share_a_token(void **state)
{
    struct tokens tokens;
    struct loader loader;
    struct error err = {0};
    int32_t in[4 * 2], out[4 * 2];
    write_plain(in_folder("m.h5"), 16, 1, 1);
    assert_int_equal(tokens_open(&tokens, in_folder("m.h5"), &err), 0);
    assert_int_equal(open_loader(&loader, &tokens, 2, 257, LOADER_SEQUENTIAL, &err), 0);
    assert_int_equal(loader.windows, 3);
    assert_int_equal(read_samples(&loader, 4, in, out, &err), 0);
    static const int32_t inputs[] = {10, 11, 12, 13, 14, 15, 0, 0};
    static const int32_t targets[] = {11, -1, 13, -1, 15, 16, -1, -1}; /* 12 and 14 masked */
    assert_memory_equal(in, inputs, sizeof in);
    assert_memory_equal(out, targets, sizeof out);
    assert_int_equal(open_loader(&loader, &tokens, 6, 257, LOADER_SHUFFLED, &err), 0);
    assert_int_equal(loader.windows, 1);
    assert_int_equal(open_loader(&loader, &tokens, 7, 257, LOADER_SHUFFLED, &err), -1);
    assert_non_null(strstr(err.text, "7 tokens"));
    assert_int_equal(open_loader(&loader, &tokens, 2, 256, LOADER_SHUFFLED, &err), -1);
    assert_non_null(strstr(err.text, "256"));
    tokens_close(&tokens);
}

/* Of ranks that share sequences each reads its chunks: of inputs, targets and masks. */
static void chunks_are_those_of_whole_sequences(void **state)
{
    enum { SEQ = 12, OWN = 4 };
    struct tokens tokens;
    struct loader loader;
    struct error err = {0};
    int32_t in[SEQ], out[SEQ], own_in[2 * OWN], own_out[2 * OWN];
    write_plain(in_folder("m.h5"), 16, 1, 1);
    assert_int_equal(tokens_open(&tokens, in_folder("m.h5"), &err), 0);
    assert_int_equal(open_loader(&loader, &tokens, 6, 257, LOADER_SEQUENTIAL, &err), 0);
    assert_int_equal(read_samples(&loader, 2, in, out, &err), 0);
    for (int64_t first = 0; first < 3; first++) {
        const int64_t begins[2] = {first, 4};
        loader_set_part(&loader, 2, begins);
        assert_int_equal(loader_rows(&loader), OWN);
        assert_int_equal(read_samples(&loader, 2, own_in, own_out, &err), 0);
        for (int i = 0; i < 2 * OWN; i++) {
            int64_t from = i / OWN * 6 + begins[i % OWN / 2] + i % 2;
            assert_int_equal(own_in[i], in[from]);
            assert_int_equal(own_out[i], out[from]);
        }
    }
    tokens_close(&tokens);
}

/* What the attributes say of a file does not matter where a token is used. */
static void strange_tokens_are_refused(void **state)
{
    static const uint16_t strange[] = {257, 300, 20000, 65535};
    for (size_t s = 0; s < 4; s++)
        for (int64_t place = 0; place < 7; place++) {
            struct tokens tokens;
            struct loader loader;
            struct error err = {0};
            int32_t in[3], out[3];
            char wanted[64];
            write_plain(in_folder("s.h5"), 16, 1, 0);
            set_token(in_folder("s.h5"), (uint16_t)(10 + place), strange[s]);
            assert_int_equal(tokens_open(&tokens, in_folder("s.h5"), &err), 0);
            assert_int_equal(open_loader(&loader, &tokens, 3, 300000, LOADER_SEQUENTIAL, &err), 0);
            int rc = loader_read(&loader, 0, in, out, &err);
            assert_int_equal(rc, place <= 3 ? -1 : 0);
            rc = loader_read(&loader, 1, in, out, &err);
            assert_int_equal(rc, place >= 3 ? -1 : 0);
            snprintf(wanted, sizeof wanted, "s.h5: token %d is %d,", (int)place, strange[s]);
            if (!strstr(err.text, wanted))
                fail_msg("expected \"%s\" in: %s", wanted, err.text);
            tokens_close(&tokens);
        }
}

static struct loader shuffled(int64_t windows, uint64_t seed)
{
    return (struct loader){.options = {.seq_len = 1, .seed = seed, .order = LOADER_SHUFFLED},
                           .windows = windows};
}

static void epochs_are_permutations(void **state)
{
    static const int64_t sizes[] = {1, 2, 3, 7, 100, 101, 4096, 4097};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int64_t n = sizes[s];
        struct loader loader = shuffled(n, 42);
        char *seen = malloc((size_t)n);
        int epochs_that_differ = 0;
        for (int64_t epoch = 0; epoch < 12; epoch++) {
            int64_t same = 0;
            memset(seen, 0, (size_t)n);
            for (int64_t i = 0; i < n; i++) {
                int64_t window = loader_window(&loader, epoch * n + i);
                assert_in_range(window, 0, n - 1);
                assert_int_equal(seen[window]++, 0);
                same += window == loader_window(&loader, i);
            }
            epochs_that_differ += same < n;
            if (n >= 100 && epoch) /* a fixed point is expected once */
                assert_in_range(same, 0, 8);
        }
        free(seen);
        assert_true(n == 1 || epochs_that_differ >= 3);
    }
}

/* Neighbours must not stay neighbours: in a random order of n, one pair is expected to. */
static void order_is_mixed(void **state)
{
    enum { N = 4099 };
    struct loader loader = shuffled(N, 3), other = shuffled(N, 4);
    int neighbours = 0, same = 0;
    double product = 0;
    for (int64_t i = 0; i + 1 < N; i++) {
        int64_t a = loader_window(&loader, i), b = loader_window(&loader, i + 1);
        neighbours += b == a + 1;
        same += a == loader_window(&other, i);
        product += ((double)a / N - 0.5) * ((double)i / N - 0.5);
    }
    assert_in_range(neighbours, 0, 8);
    assert_in_range(same, 0, 8);
    /* correlation has deviation 1 / sqrt(N); five of them */
    assert_true(product / N * 12 < 0.08 && product / N * 12 > -0.08);
}

/* Make a file of format 1 as other programs do, whose source is `count` texts.  Returns its path.
 */
static const char *make_plain(int64_t count)
{
    const char *path = in_folder("plain.h5");
    struct h5 *file;
    struct error err = {0};
    const uint16_t tokens[] = {3, 1, 2};
    const uint64_t starts[] = {0, 3};
    const int64_t format = 1, vocab = 7, three = 3, two = 2;
    assert_int_equal(h5_create(&file, path, &err), 0);
    assert_int_equal(h5_write(file, "tokens", DTYPE_U16, 1, &three, tokens, &err), 0);
    assert_int_equal(h5_write(file, "documents", H5_TYPE_U64, 1, &two, starts, &err), 0);
    assert_int_equal(h5_set_value(file, "/", "format", H5_TYPE_I64, &format, &err), 0);
    assert_int_equal(h5_set_value(file, "/", "vocab", H5_TYPE_I64, &vocab, &err), 0);
    assert_int_equal(h5_set_text(file, "/", "tokenizer", "mine", &err), 0);
    assert_int_equal(h5_set_text(file, "/", "chat_template", "chatml", &err), 0);
    assert_int_equal(h5_set_texts(file, "source", 0, count), 0);
    assert_int_equal(h5_close(file, &err), 0);
    return path;
}

/* Sealing keeps the chat template and a source of one text, and refuses to drop a list of them. */
static void seals_keep_the_source(void **state)
{
    struct tokens tokens;
    struct error err = {0};
    assert_int_equal(tokens_seal(make_plain(1), &err), 0);
    assert_int_equal(tokens_open(&tokens, in_folder("plain.h5"), &err), 0);
    assert_true(tokens.has_checksums);
    assert_string_equal(tokens.source, "a");
    assert_string_equal(tokens.chat, "chatml");
    tokens_close(&tokens);
    assert_int_equal(tokens_seal(make_plain(2), &err), -1);
    assert_non_null(strstr(err.text, "plain.h5: attribute source is not one text of at most 1023"));
    assert_int_equal(tokens_open(&tokens, in_folder("plain.h5"), &err), 0);
    assert_false(tokens.has_checksums);
    tokens_close(&tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(files_come_back),
        cmocka_unit_test(files_are_hdf5),
        cmocka_unit_test(parts_make_documents),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(a_damaged_beginning_is_not_taken_for_an_unsealed_file),
        cmocka_unit_test(tokens_may_lie_at_odd_bytes),
        cmocka_unit_test(windows_share_a_token),
        cmocka_unit_test(chunks_are_those_of_whole_sequences),
        cmocka_unit_test(epochs_are_permutations),
        cmocka_unit_test(order_is_mixed),
        cmocka_unit_test(strange_tokens_are_refused),
        cmocka_unit_test(seals_keep_the_source),
    };
    h5_setup();
    return cmocka_run_group_tests_name("tokens", tests, make_folder, remove_folder);
}
