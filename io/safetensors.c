/* safetensors.c - opening and reading safetensors files; see safetensors.h.
 *
 *     | length of the header, 8 bytes | header, JSON | bytes of tensors |
 *
 * Nothing in a file is trusted: the header has to end within the file, a tensor must have as many
 * bytes as its dtype and shape need, and the tensors must follow each other without gaps or
 * overlaps up to the end of the file.
 */
#include "io/safetensors.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/round.h"
#include "io/disk.h"
#include "io/safetensors_nf4.h"
#include "io/safetensors_private.h"

enum { HEADER_MOST = 100 << 20 }; /* bytes of a header */

static const char one_file[] = "model.safetensors", index_file[] = "model.safetensors.index.json";

/* The dtypes of files: their name, bytes of an element, and enum dtype; -1: it cannot be read. */
static const struct {
    const char *name;
    int bytes, dtype;
} formats[] = {
    {.name = "F32", .bytes = 4, .dtype = DTYPE_F32},
    {.name = "BF16", .bytes = 2, .dtype = DTYPE_BF16},
    {.name = "F16", .bytes = 2, .dtype = DTYPE_F16},
    {.name = "F64", .bytes = 8, .dtype = -1},
    {.name = "I64", .bytes = 8, .dtype = -1},
    {.name = "U64", .bytes = 8, .dtype = -1},
    {.name = "I32", .bytes = 4, .dtype = -1},
    {.name = "U32", .bytes = 4, .dtype = -1},
    {.name = "I16", .bytes = 2, .dtype = -1},
    {.name = "U16", .bytes = 2, .dtype = -1},
    {.name = "I8", .bytes = 1, .dtype = -1},
    {.name = "U8", .bytes = 1, .dtype = -1},
    {.name = "BOOL", .bytes = 1, .dtype = -1},
    {.name = "F8_E4M3", .bytes = 1, .dtype = -1},
    {.name = "F8_E5M2", .bytes = 1, .dtype = -1},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

enum safetensors_found safetensors_look(const char *folder)
{
    if (disk_has(folder, one_file))
        return SAFETENSORS_FILE;
    return disk_has(folder, index_file) ? SAFETENSORS_INDEX : SAFETENSORS_NONE;
}

const char *safetensors_format(enum dtype dtype)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (formats[i].dtype == (int)dtype)
            return formats[i].name;
    return NULL;
}

/* Headers */

/* Set err to "PATH: tensor TENSOR: WHAT".  Returns -1. */
static int wrong(const char *path, const char *tensor, const char *what, struct error *err)
{
    return error_set(err, "%s: tensor \"%.100s\": %s", path, tensor, what);
}

/* Read a tensor's dimensions and count its elements.  Returns 0, or -1: impossible or too large. */
static int read_shape(struct safetensors_tensor *tensor, const struct js *shape)
{
    tensor->dims = js_length(shape);
    tensor->elems = 1;
    if (!shape || tensor->dims > BOX_DIMS)
        return -1;
    for (int d = 0; d < tensor->dims; d++) {
        tensor->dim[d] = js_at_int(shape, d, -1);
        if (tensor->dim[d] < 0 ||
            (tensor->dim[d] && tensor->elems > INT64_MAX / 16 / tensor->dim[d]))
            return -1;
        tensor->elems *= tensor->dim[d];
    }
    return 0;
}

/* Read an entry of the header; *bytes becomes the bytes of its tensor.  tensor->offset is counted
 * from the end of the header.  Returns 0, or -1 with err set. */
static int read_entry(struct safetensors_tensor *tensor, const char *path, const struct js *entry,
                      int64_t *bytes, struct error *err)
{
    const char *format = js_get_string(entry, "dtype", "");
    const struct js *offsets = js_get(entry, "data_offsets");
    int row = 0;
    while (row < FORMATS && strcmp(formats[row].name, format))
        row++;
    if (row == FORMATS)
        return error_set(err, "%s: tensor \"%.100s\": dtype \"%.20s\" is not known", path,
                         tensor->name, format);
    tensor->dtype = formats[row].dtype;
    snprintf(tensor->format, sizeof tensor->format, "%s", format);
    if (read_shape(tensor, js_get(entry, "shape")))
        return wrong(path, tensor->name, "its shape is none of up to 4 dimensions", err);
    int64_t end = js_at_int(offsets, 1, -1);
    tensor->offset = js_at_int(offsets, 0, -1);
    *bytes = tensor->bytes = tensor->elems * formats[row].bytes;
    if (js_length(offsets) != 2 || tensor->offset < 0 || end < tensor->offset ||
        end - tensor->offset != *bytes)
        return wrong(path, tensor->name, "its bytes are not those of its shape", err);
    return 0;
}

/* Where a tensor lies, counted from the end of the header. */
struct extent {
    int64_t from, bytes;
    const char *name;
};

/* Compare extents for qsort(): by from, then by bytes. */
static int by_offset(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Check that the tensors follow each other, and fill all bytes after the header.  Sorts extent.
 * Returns 0, or -1 with err set. */
static int check_extents(const char *path, struct extent *extent, int count, int64_t bytes,
                         struct error *err)
{
    int64_t at = 0;
    if (count)
        qsort(extent, (size_t)count, sizeof *extent, by_offset);
    for (int i = 0; i < count; i++) {
        if (extent[i].from != at)
            return wrong(path, extent[i].name,
                         extent[i].from < at ? "its bytes are another tensor's too"
                                             : "bytes before it are no tensor's",
                         err);
        at += extent[i].bytes;
        if (at > bytes)
            return wrong(path, extent[i].name, "the file ends before it: it is cut off", err);
    }
    if (at < bytes)
        return error_set(err, "%s: its last %lld bytes are no tensor's", path,
                         (long long)(bytes - at));
    return 0;
}

/* Append the tensors of a file's header.  data: byte of the file after the header; bytes: how many
 * follow.  Returns 0, or -1 with err set. */
static int add_tensors(struct safetensors *st, int file, const struct js *header, int64_t data,
                       int64_t bytes, struct error *err)
{
    const char *path = st->file[file];
    struct extent *extent = NULL;
    int count = 0, capacity = 0, rc = 0;
    for (const char *key = NULL; !rc && (key = js_next_key(header, key));) {
        if (!strcmp(key, "__metadata__"))
            continue;
        st->tensor = array_grow(st->tensor, st->tensors, &st->tensor_capacity, sizeof *st->tensor);
        extent = array_grow(extent, count, &capacity, sizeof *extent);
        struct safetensors_tensor *tensor = &st->tensor[st->tensors++];
        *tensor = (struct safetensors_tensor){.name = array_text(key), .file = file};
        rc = read_entry(tensor, path, js_get(header, key), &extent[count].bytes, err);
        extent[count].from = tensor->offset;
        extent[count++].name = tensor->name;
        tensor->offset += data;
    }
    if (!rc)
        rc = check_extents(path, extent, count, bytes, err);
    free(extent);
    return rc;
}

/* Returns 1 for a pointer of Git LFS, which is in place of a large file until git lfs fetches it.
 */
static int is_pointer(int fd, const char *path, int64_t bytes)
{
    static const char first[] = "version https://git-lfs.github.com/spec/";
    char start[sizeof first - 1];
    return bytes >= (int64_t)sizeof start && !disk_read(fd, start, sizeof start, 0, path, NULL) &&
           !memcmp(start, first, sizeof start);
}

/* Returns the bytes of the header, or -1 with err set. */
static int64_t header_length(int fd, const char *path, int64_t bytes, struct error *err)
{
    unsigned char raw[SAFETENSORS_LENGTH];
    uint64_t length = 0;
    if (bytes < SAFETENSORS_LENGTH)
        return error_set(err, "%s: %lld bytes are no safetensors file", path, (long long)bytes);
    if (disk_read(fd, raw, SAFETENSORS_LENGTH, 0, path, err))
        return -1;
    for (int i = SAFETENSORS_LENGTH - 1; i >= 0; i--)
        length = length << 8 | raw[i];
    int is_beyond = length > (uint64_t)(bytes - SAFETENSORS_LENGTH);
    if (is_beyond && is_pointer(fd, path, bytes))
        return error_set(err, "%s is a Git LFS pointer, not the file itself: git lfs pull", path);
    if (is_beyond)
        return error_set(err, "%s: its header would have %llu bytes, and the file has %lld", path,
                         (unsigned long long)length, (long long)bytes);
    if (length > HEADER_MOST)
        return error_set(err, "%s: a header of %llu bytes is larger than the %d that are allowed",
                         path, (unsigned long long)length, HEADER_MOST);
    return (int64_t)length;
}

/* Returns the header of `length` bytes, for js_free(), or NULL with err set. */
static struct js *read_header(int fd, const char *path, int64_t length, struct error *err)
{
    char *text = malloc((size_t)length + 1);
    struct js *header = NULL;
    if (!text) {
        error_set(err, "%s: out of memory for its header", path);
        return NULL;
    }
    if (!disk_read(fd, text, (size_t)length, SAFETENSORS_LENGTH, path, err)) {
        text[length] = 0;
        if ((int64_t)strlen(text) != length)
            error_set(err, "%s: its header is not text", path);
        else if (!(header = js_parse(text, err)))
            error_prefix(err, "%s: its header", path);
    }
    free(text);
    return header;
}

/* Open the file at path, which becomes st's, and append its tensors.  Returns 0, or -1 with err
 * set. */
static int add_file(struct safetensors *st, char *path, struct error *err)
{
    struct stat stat;
    st->file = array_grow(st->file, st->files, &st->file_capacity, sizeof *st->file);
    st->fd = array_grow(st->fd, st->files, &st->fd_capacity, sizeof *st->fd);
    int file = st->files++, fd = disk_open(path, O_RDONLY | O_CLOEXEC, err);
    st->file[file] = path;
    st->fd[file] = fd;
    if (fd < 0)
        return -1;
    if (fstat(fd, &stat) || !S_ISREG(stat.st_mode))
        return error_set(err, "%s is no file", path);
    int64_t length = header_length(fd, path, stat.st_size, err);
    struct js *header = length < 0 ? NULL : read_header(fd, path, length, err);
    if (!header)
        return -1;
    int64_t data = SAFETENSORS_LENGTH + length;
    int rc = add_tensors(st, file, header, data, stat.st_size - data, err);
    js_free(header);
    return rc;
}

/* The index of several files */

/* Returns the number of a file that the index names, which is opened if it is not open yet; or -1
 * with err set. */
static int file_of(struct safetensors *st, const char *name, struct error *err)
{
    char *path = array_format("%s/%s", st->path, name);
    int file = 0;
    while (file < st->files && strcmp(st->file[file], path))
        file++;
    if (file < st->files) {
        free(path);
        return file;
    }
    return add_file(st, path, err) ? -1 : file;
}

/* Compare tensors by name, for qsort() and bsearch(). */
static int by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Sort the tensors by name.  Returns 0, or -1 with err set: a name is there twice. */
static int sort_tensors(struct safetensors *st, struct error *err)
{
    if (st->tensors)
        qsort(st->tensor, (size_t)st->tensors, sizeof *st->tensor, by_name);
    for (int t = 1; t < st->tensors; t++)
        if (!strcmp(st->tensor[t - 1].name, st->tensor[t].name))
            return error_set(err, "tensor \"%.100s\" is in %s and in %s", st->tensor[t].name,
                             st->file[st->tensor[t - 1].file], st->file[st->tensor[t].file]);
    return 0;
}

/* Open all files of the index's weight_map, and check that each tensor is in the file that the map
 * says.  Returns 0, or -1 with err set. */
static int add_indexed(struct safetensors *st, const struct js *map, struct error *err)
{
    for (const char *name = NULL; (name = js_next_key(map, name));) {
        const char *file = js_get_string(map, name, "");
        if (!file[0] || strchr(file, '/') || file[0] == '.')
            return error_set(err,
                             "%s/%s: tensor \"%.100s\" is in \"%.100s\", which is no file's "
                             "name",
                             st->path, index_file, name, file);
        if (file_of(st, file, err) < 0)
            return -1;
    }
    if (sort_tensors(st, err))
        return -1;
    for (const char *name = NULL; (name = js_next_key(map, name));) {
        const struct safetensors_tensor *tensor = safetensors_find(st, name);
        int file = file_of(st, js_get_string(map, name, ""), err);
        if (!tensor || tensor->file != file)
            return error_set(err, "%s: tensor \"%.100s\" is missing, which %s has there",
                             st->file[file], name, index_file);
    }
    return 0;
}

/* Read the index, and open its files.  Returns 0, or -1 with err set. */
static int add_index(struct safetensors *st, struct error *err)
{
    char *path = array_format("%s/%s", st->path, index_file);
    struct js *index = js_read(path, err);
    const struct js *map = index ? js_get(index, "weight_map") : NULL;
    int rc = -1;
    if (index && !js_next_key(map, NULL))
        error_set(err, "%s: it has no weight_map", path);
    else if (index)
        rc = add_indexed(st, map, err);
    js_free(index);
    free(path);
    return rc;
}

int safetensors_open(struct safetensors **out, const char *path, struct error *err)
{
    struct safetensors *st = array_make(1, sizeof *st);
    struct stat stat_of;
    int rc, is_folder = !stat(path, &stat_of) && S_ISDIR(stat_of.st_mode);
    st->path = array_text(path);
    *out = NULL;
    if (is_folder && safetensors_look(path) == SAFETENSORS_INDEX)
        rc = add_index(st, err);
    else
        rc = add_file(st, is_folder ? array_format("%s/%s", path, one_file) : array_text(path),
                      err) ||
                     sort_tensors(st, err)
                 ? -1
                 : 0;
    if (!rc)
        rc = safetensors_nf4_join(st, err);
    if (rc)
        safetensors_close(st);
    else
        *out = st;
    return rc;
}

void safetensors_close(struct safetensors *st)
{
    if (!st)
        return;
    for (int t = 0; t < st->tensors; t++) {
        free(st->tensor[t].name);
        free(st->tensor[t].nf4);
    }
    for (int f = 0; f < st->files; f++) {
        if (st->fd[f] >= 0)
            close(st->fd[f]);
        free(st->file[f]);
    }
    free(st->tensor);
    free(st->file);
    free(st->fd);
    free(st->path);
    free(st);
}

/* Reading */

const struct safetensors_tensor *safetensors_find(const struct safetensors *st, const char *name)
{
    const struct safetensors_tensor wanted = {.name = (char *)name};
    return st->tensors ? bsearch(&wanted, st->tensor, (size_t)st->tensors, sizeof wanted, by_name)
                       : NULL;
}

/* Check that elements [start, start + count) of a tensor can be read.  Returns 0, or -1 with err
 * set.
 */
static int check_range(const struct safetensors *st, const struct safetensors_tensor *tensor,
                       int64_t start, int64_t count, struct error *err)
{
    const char *path = st->file[tensor->file];
    if (tensor->dtype < 0)
        return error_set(err, "%s: tensor \"%.100s\" is %s; F32, BF16 and F16 are read", path,
                         tensor->name, tensor->format);
    if (start < 0 || count < 0 || start > tensor->elems - count)
        return wrong(path, tensor->name, "elements are asked for that it has not", err);
    return 0;
}

int safetensors_read_raw(const struct safetensors *st, const struct safetensors_tensor *tensor,
                         int64_t start, int64_t count, void *to, struct error *err)
{
    if (check_range(st, tensor, start, count, err))
        return -1;
    int64_t width = (int64_t)dtype_bytes((enum dtype)tensor->dtype);
    if (tensor->nf4)
        return safetensors_nf4_read(st, tensor, start, count, to, err);
    return disk_read(st->fd[tensor->file], to, (size_t)(count * width),
                     tensor->offset + start * width, st->file[tensor->file], err);
}

int safetensors_read(const struct safetensors *st, const struct safetensors_tensor *tensor,
                     int64_t start, int64_t count, float *to, struct error *err)
{
    enum { BUFFER = 1 << 16 };
    if (tensor->dtype == DTYPE_F32)
        return safetensors_read_raw(st, tensor, start, count, to, err);
    if (check_range(st, tensor, start, count, err))
        return -1;
    enum dtype dtype = (enum dtype)tensor->dtype;
    int64_t most = BUFFER / (int64_t)dtype_bytes(dtype);
    char buffer[BUFFER];
    for (int64_t done = 0, part; done < count; done += part) {
        part = min_i64(count - done, most);
        if (safetensors_read_raw(st, tensor, start + done, part, buffer, err))
            return -1;
        dtype_widen(to + done, buffer, dtype, part);
    }
    return 0;
}

enum { SAMPLE_BYTES = 512 };

/* Add to hash the first, middle and last SAMPLE_BYTES of bytes of a file.  0, or -1 with err set.
 */
static int hash_bytes_of(struct hash *hash, const struct safetensors *st, int file, int64_t offset,
                         int64_t bytes, struct error *err)
{
    char sample[SAMPLE_BYTES];
    int64_t length = min_i64(bytes, SAMPLE_BYTES);
    for (int k = 0; k < 3; k++) {
        if (disk_read(st->fd[file], sample, (size_t)length, offset + (bytes - length) / 2 * k,
                      st->file[file], err))
            return -1;
        hash_add(hash, sample, (size_t)length);
    }
    return 0;
}

/* Add to hash a tensor's name, dtype and shape, and samples of its bytes, of 4 bits also of their
 * scales.  Returns 0, or -1 with err set. */
static int hash_tensor(struct hash *hash, const struct safetensors *st,
                       const struct safetensors_tensor *tensor, struct error *err)
{
    int file;
    int64_t offset, bytes;
    hash_add(hash, tensor->name, strlen(tensor->name) + 1);
    hash_add(hash, tensor->format, strlen(tensor->format) + 1);
    hash_add(hash, tensor->dim, (size_t)tensor->dims * sizeof tensor->dim[0]);
    if (hash_bytes_of(hash, st, tensor->file, tensor->offset, tensor->bytes, err))
        return -1;
    if (!tensor->nf4)
        return 0;
    safetensors_nf4_scales(tensor, &file, &offset, &bytes);
    return hash_bytes_of(hash, st, file, offset, bytes, err);
}

int safetensors_hash(const struct safetensors *st, uint64_t *out, struct error *err)
{
    struct hash *hash = hash_create();
    int rc = 0;
    for (int t = 0; !rc && t < st->tensors; t++)
        rc = hash_tensor(hash, st, &st->tensor[t], err);
    *out = hash_finish(hash);
    return rc;
}
