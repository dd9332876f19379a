/* safetensors_write.c - writing files for Hugging Face's programs; see safetensors.h.
 *
 * Tensors are written in the caller's order, as many into a file as fit; then the next file begins.
 * Headers are padded with spaces to a multiple of 8 bytes, which aligns the elements, of 2 or 4
 * bytes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
#include "base/round.h"
#include "io/disk.h"
#include "io/safetensors_private.h"

enum { BLOCK_ELEMS = 1 << 20 };

struct writer {
    const char *folder, *stem;               /* stem: of the files' names */
    const struct safetensors_source *source; /* [count] the tensors */
    int count;
    enum dtype dtype;   /* in the files */
    int64_t file_bytes; /* most bytes of tensors in a file, unless one tensor has more */
    int files;
    float *wide;  /* [BLOCK_ELEMS] a block of a tensor */
    void *narrow; /* [BLOCK_ELEMS] the same as dtype */
};

/* Returns the bytes of tensor i in a file. */
static int64_t bytes_of(const struct writer *w, int i)
{
    return w->source[i].elems * (int64_t)dtype_bytes(w->dtype);
}

/* Returns the number of the first tensor after the file that begins with tensor `first`. */
static int end_of_file(const struct writer *w, int first)
{
    int64_t bytes = bytes_of(w, first);
    int end = first + 1;
    while (end < w->count && bytes + bytes_of(w, end) <= w->file_bytes)
        bytes += bytes_of(w, end++);
    return end;
}

/* Returns the name of a file, to be free()d. */
static char *file_name(const struct writer *w, int file)
{
    return w->files == 1 ? array_format("%s.safetensors", w->stem)
                         : array_format("%s-%05d-of-%05d.safetensors", w->stem, file + 1, w->files);
}

/* Returns the header of the file of tensors [first, end) as a text without padding, to be free()d;
 * NULL with err set. */
static char *make_header(const struct writer *w, int first, int end, struct error *err)
{
    struct js *header = js_object(), *metadata = js_object();
    int64_t at = 0;
    js_add_string(metadata, "format", "pt");
    js_add(header, "__metadata__", metadata);
    for (int i = first; i < end; i++) {
        struct js *entry = js_object(), *shape = js_array(), *offsets = js_array();
        js_add_string(entry, "dtype", safetensors_format(w->dtype));
        for (int d = 0; d < w->source[i].dims; d++)
            js_add_int(shape, NULL, w->source[i].dim[d]);
        js_add(entry, "shape", shape);
        js_add_int(offsets, NULL, at);
        at += bytes_of(w, i);
        js_add_int(offsets, NULL, at);
        js_add(entry, "data_offsets", offsets);
        js_add(header, w->source[i].name, entry);
    }
    char *text = js_text(header, JS_ONE_LINE, err);
    js_free(header);
    return text;
}

static int write_header(const struct writer *w, int fd, const char *path, int first, int end,
                        int64_t *at, struct error *err)
{
    char *text = make_header(w, first, end, err);
    if (!text)
        return -1;
    size_t length = strcspn(text, "\n"), padded = round_up_bytes(length, SAFETENSORS_LENGTH);
    char *raw = array_make(SAFETENSORS_LENGTH + padded, 1);
    for (int i = 0; i < SAFETENSORS_LENGTH; i++)
        raw[i] = (char)(padded >> 8 * i & 0xff);
    memset(raw + SAFETENSORS_LENGTH, ' ', padded);
    memcpy(raw + SAFETENSORS_LENGTH, text, length);
    int rc = disk_write(fd, raw, SAFETENSORS_LENGTH + padded, 0, path, err);
    *at = (int64_t)(SAFETENSORS_LENGTH + padded);
    free(raw);
    free(text);
    return rc;
}

/* Write tensor i at byte `at`, block by block.  Returns 0, or -1 with err set. */
static int write_tensor(const struct writer *w, int fd, const char *path, int i, int64_t at,
                        int64_t *flushed, struct error *err)
{
    const struct safetensors_source *source = &w->source[i];
    size_t width = dtype_bytes(w->dtype);
    for (int64_t done = 0; done < source->elems;) {
        int64_t part = min_i64(source->elems - done, BLOCK_ELEMS);
        if (source->read(source->user, i, done, part, w->wide, err))
            return -1;
        dtype_narrow(w->narrow, w->dtype, w->wide, part);
        if (disk_write(fd, w->narrow, (size_t)part * width, at + done * (int64_t)width, path, err))
            return -1;
        done += part;
        if (disk_flush_behind(fd, flushed, at + done * (int64_t)width, path, err))
            return -1;
    }
    return 0;
}

/* Write file number `file`, of tensors [first, end), under another name until it is on the disk.
 * Returns 0, or -1 with err set and the file removed. */
static int write_file(const struct writer *w, int file, int first, int end, struct error *err)
{
    char *name = file_name(w, file), *path = array_format("%s/%s", w->folder, name);
    char *partial = array_format("%s.partial", path);
    int64_t at = 0, flushed = 0;
    int fd = disk_open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, err);
    int rc = fd < 0 ? -1 : write_header(w, fd, partial, first, end, &at, err);
    for (int i = first; !rc && i < end; i++) {
        rc = write_tensor(w, fd, partial, i, at, &flushed, err);
        at += bytes_of(w, i);
    }
    if (fd >= 0 && disk_finish(fd, partial, rc ? NULL : err) && !rc)
        rc = -1;
    if (!rc && rename(partial, path))
        rc = error_errno(err, "cannot rename %s to %s", partial, path);
    if (rc && fd >= 0)
        unlink(partial);
    free(partial);
    free(path);
    free(name);
    return rc;
}

/* Write the index of all files.  Returns 0, or -1 with err set. */
static int write_index(const struct writer *w, struct error *err)
{
    struct js *index = js_object(), *metadata = js_object(), *map = js_object();
    int64_t bytes = 0;
    for (int file = 0, first = 0; first < w->count; file++) {
        int end = end_of_file(w, first);
        char *name = file_name(w, file);
        for (int i = first; i < end; i++) {
            js_add_string(map, w->source[i].name, name);
            bytes += bytes_of(w, i);
        }
        free(name);
        first = end;
    }
    js_add_int(metadata, "total_size", bytes);
    js_add(index, "metadata", metadata);
    js_add(index, "weight_map", map);
    char *path = array_format("%s/%s.safetensors.index.json", w->folder, w->stem);
    int rc = js_write(index, JS_INDENTED, WHOLE_FILE_DURABLE, path, err);
    js_free(index);
    free(path);
    return rc;
}

int safetensors_write(const char *folder, const char *stem, const struct safetensors_source *source,
                      int count, enum dtype dtype, int64_t file_bytes, struct error *err)
{
    struct writer w = {.folder = folder,
                       .stem = stem,
                       .source = source,
                       .count = count,
                       .dtype = dtype,
                       .file_bytes = file_bytes};
    for (int first = 0; first < count; first = end_of_file(&w, first))
        w.files++;
    w.wide = malloc(BLOCK_ELEMS * sizeof *w.wide);
    w.narrow = malloc(BLOCK_ELEMS * sizeof *w.wide);
    int rc = w.wide && w.narrow ? 0 : error_set(err, "out of memory writing safetensors");
    for (int file = 0, first = 0; !rc && first < count; file++) {
        int end = end_of_file(&w, first);
        rc = write_file(&w, file, first, end, err);
        first = end;
    }
    if (!rc && w.files > 1)
        rc = write_index(&w, err);
    free(w.wide);
    free(w.narrow);
    return rc ? rc : disk_sync(folder, err);
}
