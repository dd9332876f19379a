/* test_flips.c - a token file with one flipped bit: what is read of it is refused, or is what was
 * written; and verifying the whole file notices every flip.
 *
 * TRIREME_FLIPS=5000 (make check-flips) tries that many; otherwise some hundreds, the same each
 * time.  A third is anywhere; the others are spread evenly over the kinds of bytes there are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/philox.h"
#include "io/disk.h"
#include "io/loader.h"
#include "io/tokens.h"

enum { TOKENS = 60013, DOCUMENT = 17, SEQ = 100, WINDOWS = (TOKENS - 1) / SEQ, FLIPS = 600 };

static char folder[64], path[96];

/* Inputs and targets of every window, in order. */
struct windows {
    int32_t inputs[WINDOWS * SEQ], targets[WINDOWS * SEQ];
};
static struct windows written, found;
static struct tokens layout; /* of the file as it was written; closed */
static int64_t file_bytes;

static uint32_t token_of(int64_t i)
{
    return (uint32_t)(philox_u64(1, (uint64_t)i) % 512);
}

static uint8_t mask_of(int64_t i)
{
    return philox_u64(2, (uint64_t)i) % 5 != 0;
}

static void write_file(void)
{
    struct error err = {0};
    struct tokens_writer *writer;
    assert_int_equal(tokens_create(&writer, path, "bytes", 512, "a test", &err), 0);
    for (int64_t i = 0; i < TOKENS; i++) {
        uint32_t token = token_of(i);
        uint8_t mask = mask_of(i);
        if (i % DOCUMENT == 0)
            assert_int_equal(tokens_append(writer, NULL, 0, &err), 0);
        assert_int_equal(tokens_extend(writer, &token, 1, &err), 0);
        assert_int_equal(tokens_extend_mask(writer, &mask, 1, &err), 0);
    }
    if (tokens_finish(writer, &err))
        fail_msg("%s", err.text);
}

static int make_file(void **state)
{
    struct error err = {0};
    struct stat info;
    strcpy(folder, "/tmp/trireme-flips-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/t.h5", folder);
    write_file();
    for (int64_t i = 0; i < WINDOWS * SEQ; i++) {
        written.inputs[i] = (int32_t)token_of(i);
        written.targets[i] = mask_of(i + 1) ? (int32_t)token_of(i + 1) : -1;
    }
    if (tokens_open(&layout, path, &err) || stat(path, &info))
        return -1;
    struct tokens kept = layout;
    file_bytes = info.st_size;
    tokens_close(&layout);
    layout = kept; /* only its numbers are used */
    return 0;
}

static int remove_folder(void **state)
{
    return disk_remove(folder, NULL);
}

enum outcome { REFUSED_AT_OPENING, REFUSED_WHEN_READ, SAME, OUTCOMES };

static enum outcome read_all(struct error *err)
{
    struct tokens tokens;
    struct loader loader;
    if (tokens_open(&tokens, path, err))
        return REFUSED_AT_OPENING;
    const struct loader_options options = {
        .seq_len = SEQ, .vocab = 512, .seed = 1, .order = LOADER_SEQUENTIAL};
    int rc = loader_open(&loader, &tokens, &options, err);
    for (int64_t w = 0; !rc && w < WINDOWS; w++)
        rc = loader_read(&loader, w, found.inputs + w * SEQ, found.targets + w * SEQ, err);
    tokens_close(&tokens);
    return rc ? REFUSED_WHEN_READ : SAME;
}

/* Does anything notice it, if all is read? */
static int verify(void)
{
    struct tokens tokens;
    if (tokens_open(&tokens, path, NULL))
        return -1;
    int rc = tokens_verify(&tokens, NULL);
    tokens_close(&tokens);
    return rc;
}

static void flip(int64_t bit)
{
    char byte;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, bit / 8), 1);
    byte = (char)(byte ^ 1 << bit % 8);
    assert_int_equal(pwrite(fd, &byte, 1, bit / 8), 1);
    assert_int_equal(close(fd), 0);
}

/* Parts of the file; the last is all of it. */
struct part {
    const char *name;
    int64_t from, bytes;
};

static void find_parts(struct part parts[8])
{
    const struct seal *seal = &layout.seal;
    struct part list[8] = {
        {"front", 0, 16 + 32 + 64},
        {"rest of the front", 112, SEAL_FRONT - 112},
        {"HDF5's headers", SEAL_FRONT, layout.tokens_at - SEAL_FRONT},
        {"tokens", layout.tokens_at, TOKENS * 2},
        {"documents", layout.documents_at, layout.documents * 8},
        {"mask", layout.mask_at, TOKENS},
        {"table", seal->end, file_bytes - seal->end},
        {"anywhere", 0, file_bytes},
    };
    memcpy(parts, list, sizeof list);
}

static void flips_are_noticed(void **state)
{
    const char *asked = getenv("TRIREME_FLIPS");
    int64_t flips = asked ? atoll(asked) : FLIPS, count[8][OUTCOMES] = {{0}};
    struct part parts[8];
    find_parts(parts);
    assert_true(flips > 0);
    assert_int_equal(read_all(NULL), SAME);
    assert_memory_equal(&written, &found, sizeof written);
    assert_int_equal(verify(), 0);
    for (int64_t i = 0; i < flips; i++) {
        int p = i % 3 ? (int)(i / 3 % 7) : 7;
        struct error err = {0};
        uint64_t random = philox_u64(3, (uint64_t)i);
        int64_t bit = parts[p].from * 8 + (int64_t)(random % (uint64_t)(parts[p].bytes * 8));
        flip(bit);
        memset(&found, -1, sizeof found);
        enum outcome outcome = read_all(&err);
        count[p][outcome]++;
        if (outcome == SAME && memcmp(&written, &found, sizeof written))
            fail_msg("bit %lld (%s): other values, and nothing said", (long long)bit,
                     parts[p].name);
        if (outcome != SAME && !strstr(err.text, path))
            fail_msg("bit %lld (%s): %s", (long long)bit, parts[p].name, err.text);
        if (!verify())
            fail_msg("bit %lld (%s): verifying does not notice it", (long long)bit, parts[p].name);
        flip(bit);
    }
    for (int p = 0; p < 8; p++)
        print_message("# %s: %lld refused at opening, %lld when read, %lld without effect\n",
                      parts[p].name, (long long)count[p][0], (long long)count[p][1],
                      (long long)count[p][2]);
    assert_int_equal(read_all(NULL), SAME);
}

/* A file that was cut, or to which something was added, is refused when it is opened. */
static void lengths_are_noticed(void **state)
{
    char copy[128], command[400];
    snprintf(copy, sizeof copy, "%s.whole", path);
    assert_int_equal(rename(path, copy), 0);
    for (int64_t i = 0; i < 60; i++) {
        struct error err = {0};
        int64_t bytes = (int64_t)(philox_u64(4, (uint64_t)i) % (uint64_t)file_bytes);
        bytes = i < 20 ? file_bytes - 1 - i * i * i : i < 30 ? (i - 20) * 600 : bytes;
        bytes = i == 59 ? file_bytes + 1 : bytes;
        snprintf(command, sizeof command, "cp %s %s && truncate -s %lld %s", copy, path,
                 (long long)bytes, path);
        assert_int_equal(system(command), 0);
        assert_int_equal(read_all(&err), REFUSED_AT_OPENING);
        if (!strstr(err.text, path))
            fail_msg("%s", err.text);
    }
    assert_int_equal(rename(copy, path), 0);
}

/* A file that shrinks or changes while it is read is an error, not a signal. */
static void changes_while_open_are_noticed(void **state)
{
    struct error err = {0};
    struct tokens tokens;
    int32_t id;
    assert_int_equal(tokens_open(&tokens, path, &err), 0);
    flip(layout.tokens_at * 8 + 8 * 2 * 50000);
    assert_int_equal(tokens_read(&tokens, 0, 1, &id, &err), 0);
    assert_int_equal(tokens_read(&tokens, 50000, 1, &id, &err), -1);
    assert_non_null(strstr(err.text, "is damaged"));
    assert_int_equal(err.code, EXIT_USAGE);
    assert_int_equal(truncate(path, layout.tokens_at + 70000), 0);
    assert_int_equal(tokens_read(&tokens, 0, 1, &id, &err), -1);
    assert_int_equal(tokens_read(&tokens, 40000, 1, &id, &err), -1);
    assert_non_null(strstr(err.text, "truncated"));
    tokens_close(&tokens);
    write_file();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flips_are_noticed),
        cmocka_unit_test(lengths_are_noticed),
        cmocka_unit_test(changes_while_open_are_noticed),
    };
    return cmocka_run_group_tests_name("flips", tests, make_file, remove_folder);
}
