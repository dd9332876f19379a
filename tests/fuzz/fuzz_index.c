/* fuzz_index.c - index.h5 of a checkpoint, in two ways.
 *
 * First byte even: the rest changes numbers and names in the index's tables, and COMMIT vouches for
 * the result, so trireme sees rows that make no sense.  HDF5's own structure stays whole: what that
 * library does with damaged files is not tried, because the checksum keeps them away from it.
 * First byte odd: the rest is the file, and COMMIT is that of the true one: never opened.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/catalog.h"
#include "io/checkpoint.h"
#include "io/disk.h"
#include "io/h5.h"
#include "tests/fuzz/fuzz.h"

enum { TABLES = 4, WANTED = 3, MOST_ELEMS = 1 << 16 };

/* The tables; on disk their rows are packed, as these structs are. */
static const struct {
    const char *name;
    size_t row_bytes;
} tables[TABLES] = {
    {"index/tensors", sizeof(struct catalog_tensor)},
    {"index/boxes", sizeof(struct catalog_box)},
    {"index/pieces", sizeof(struct catalog_piece)},
    {"index/files", sizeof(struct catalog_file)},
};

static char checkpoint_dir[160];
static struct {
    uint8_t *bytes;
    size_t size;
    struct h5_dataset table[TABLES];
} whole; /* the true index.h5 */

static float first[6000];
static uint16_t second[300];
static const struct box halves[] = {{2, {60, 100}, {0, 0}, {60, 70}},
                                    {2, {60, 100}, {0, 70}, {60, 30}}};
static const struct checkpoint_piece pieces[WANTED] = {
    {.name = "model/a",
     .dtype = DTYPE_F32,
     .rank = 2,
     .dims = {60, 100},
     .start = 0,
     .count = 4200,
     .data = first,
     .box = &halves[0]},
    {.name = "model/a",
     .dtype = DTYPE_F32,
     .rank = 2,
     .dims = {60, 100},
     .start = 0,
     .count = 1800,
     .data = first + 4200,
     .box = &halves[1]},
    {.name = "optimizer/m/b",
     .dtype = DTYPE_BF16,
     .rank = 1,
     .dims = {300},
     .start = 0,
     .count = 300,
     .data = second},
};

static const char *inside(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", checkpoint_dir, name);
    return path;
}

static void put(const char *name, const void *data, size_t bytes)
{
    int fd = open(inside(name), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || close(fd))
        fuzz_fail("cannot write %s", inside(name));
}

static void read_whole(void)
{
    struct error err = {0};
    struct h5 *file;
    if (h5_open(&file, inside("index.h5"), &err))
        fuzz_fail("%s", err.text);
    for (int i = 0; i < TABLES; i++)
        if (h5_locate(file, tables[i].name, &whole.table[i], &err))
            fuzz_fail("%s", err.text);
    h5_close(file, NULL);
    FILE *index = fopen(inside("index.h5"), "rb");
    if (!index || fseek(index, 0, SEEK_END))
        fuzz_fail("no index");
    whole.size = (size_t)ftell(index);
    whole.bytes = malloc(whole.size);
    rewind(index);
    if (!whole.bytes || fread(whole.bytes, 1, whole.size, index) != whole.size)
        fuzz_fail("cannot read the index");
    fclose(index);
}

static void save_once(void)
{
    struct error err = {0};
    if (whole.bytes)
        return;
    const char *dir = fuzz_path("checkpoints");
    struct js *meta = js_object();
    for (int i = 0; i < 6000; i++)
        first[i] = (float)i / 2;
    for (int i = 0; i < 300; i++)
        second[i] = (uint16_t)(i * 7);
    if (disk_make_folders(dir, &err) || checkpoint_save(NULL, dir, 7, pieces, WANTED, meta, &err))
        fuzz_fail("%s", err.text);
    js_free(meta);
    snprintf(checkpoint_dir, sizeof checkpoint_dir, "%s/step-00000007", dir);
    read_whole();
}

static void commit(void)
{
    char index[DISK_DIGEST], meta[DISK_DIGEST], text[200];
    struct error err = {0};
    if (disk_digest(inside("index.h5"), index, &err) ||
        disk_digest(inside("meta.json"), meta, &err))
        fuzz_fail("%s", err.text);
    int bytes = snprintf(text, sizeof text,
                         "{\"format\": 2, \"step\": 7, \"ranks\": 1, \"index\": \"%s\", "
                         "\"meta\": \"%s\"}\n",
                         index, meta);
    put("COMMIT", text, (size_t)bytes);
}

/* Numbers that are near an edge, and others. */
static uint64_t take_number(const uint8_t **data, size_t *bytes)
{
    unsigned kind = (unsigned)fuzz_take(data, bytes, 1);
    switch (kind % 4) {
    case 0: return fuzz_take(data, bytes, 8);
    case 1: return (uint64_t)1 << (kind / 4 % 64);
    case 2: return ((uint64_t)1 << (kind / 4 % 64)) - 1;
    default: return (uint64_t) - (int64_t)(kind / 4);
    }
}

static void change_tables(const uint8_t *data, size_t bytes)
{
    uint8_t *changed = malloc(whole.size);
    if (!changed)
        return;
    memcpy(changed, whole.bytes, whole.size);
    while (bytes) {
        int which = (int)(fuzz_take(&data, &bytes, 1) % TABLES);
        const struct h5_dataset *table = &whole.table[which];
        int64_t size = table->elems * (int64_t)tables[which].row_bytes;
        size_t width = (size_t)1 << fuzz_take(&data, &bytes, 1) % 4;
        int64_t at = (int64_t)fuzz_take(&data, &bytes, 2) % size;
        uint64_t number = take_number(&data, &bytes);
        at -= at % (int64_t)width;
        memcpy(changed + table->offset + at, &number, width);
    }
    put("index.h5", changed, whole.size);
    free(changed);
    commit();
}

static void read_tensors(struct checkpoint *checkpoint)
{
    struct error err = {0};
    for (int i = 0; i < checkpoint->tensors && i < 10; i++) {
        struct checkpoint_piece wanted = checkpoint_tensor(checkpoint, i);
        if (wanted.count < 0 || wanted.count > MOST_ELEMS)
            continue;
        wanted.data = malloc((size_t)wanted.count * dtype_bytes(wanted.dtype) + 1);
        if (checkpoint_load(checkpoint, &wanted, 1, &err))
            fuzz_check_error(&err);
        free(wanted.data);
    }
}

/* As a trainer does. */
static void read_wanted(struct checkpoint *checkpoint)
{
    static float room[6000];
    for (int i = 0; i < WANTED; i++) {
        struct error err = {0};
        struct checkpoint_piece wanted = pieces[i];
        wanted.data = room;
        if (checkpoint_load(checkpoint, &wanted, 1, &err))
            fuzz_check_error(&err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct checkpoint *checkpoint;
    struct error err = {0};
    save_once();
    int raw = fuzz_take(&data, &bytes, 1) % 2;
    if (raw) {
        put("index.h5", whole.bytes, whole.size);
        commit();
        put("index.h5", data, bytes);
    } else {
        change_tables(data, bytes);
    }
    if (checkpoint_open(&checkpoint, checkpoint_dir, &err)) {
        fuzz_check_error(&err);
        return 0;
    }
    if (raw && (bytes != whole.size || memcmp(data, whole.bytes, bytes)))
        fuzz_fail("an index was opened for which COMMIT does not vouch");
    if (checkpoint_verify(checkpoint, 0, 1, &err))
        fuzz_check_error(&err);
    read_tensors(checkpoint);
    read_wanted(checkpoint);
    checkpoint_close(checkpoint);
    return 0;
}
