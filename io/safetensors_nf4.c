/* safetensors_nf4.c - see safetensors_nf4.h.
 *
 * Element i of a weight is map[code i] * scale[i / block].  With double quantization scale j is
 * nested_map[code j] * nested[j / nested_block] + nested_offset.
 */
#include "io/safetensors_nf4.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "base/nf4.h"
#include "base/round.h"
#include "io/disk.h"

static const char state_suffix[] = ".quant_state.bitsandbytes__";
static const char nf4_suffix[] = ".quant_state.bitsandbytes__nf4";

/* NESTED_MAP: numbers of 8 bits.  STATE_MOST: most bytes of a state's JSON. */
enum { NESTED_MAP = 256, STATE_MOST = 1 << 16 };

/* Bytes of a file. */
struct part {
    int file;
    int64_t offset, bytes;
};

struct safetensors_nf4 {
    int64_t block, nested_block; /* nested_block 0: scales are not quantized */
    float map[NF4_SHARES], nested_map[NESTED_MAP], nested_offset;
    struct part scales, nested;
};

/* ---- joining ---- */

/* Set err to "PATH: tensor TENSOR: WHAT".  Returns -1. */
static int wrong(const struct safetensors *st, const struct safetensors_tensor *tensor,
                 const char *what, struct error *err)
{
    return error_set(err, "%s: tensor \"%.100s\": %s", st->file[tensor->file], tensor->name, what);
}

/* Does a name begin with that of a weight? */
static int begins_with(const char *name, const char *weight)
{
    return !strncmp(name, weight, strlen(weight));
}

/* The tensor X.END that belongs to a weight, with these bytes in this format; NULL with err set. It
 * stands after the weight in the list, which is sorted. */
static const struct safetensors_tensor *companion(const struct safetensors *st,
                                                  const struct safetensors_tensor *weight,
                                                  const char *end, const char *format,
                                                  int64_t bytes, struct error *err)
{
    const struct safetensors_tensor *last = st->tensor + st->tensors, *found = weight + 1;
    char *name = array_format("%s.%s", weight->name, end);
    while (found < last && strcmp(found->name, name) != 0)
        found = begins_with(found->name, weight->name) ? found + 1 : last;
    int fits = found < last && !strcmp(found->format, format) && found->bytes == bytes;
    if (!fits)
        error_set(err, "%s: tensor \"%.100s\" is %s the %lld bytes of %s that its 4 bits need",
                  st->file[weight->file], name, found < last ? "not" : "missing:", (long long)bytes,
                  format);
    free(name);
    return fits ? found : NULL;
}

static struct part part_of(const struct safetensors_tensor *tensor)
{
    return (struct part){tensor->file, tensor->offset, tensor->bytes};
}

static int read_part(const struct safetensors *st, const struct part *part, int64_t from,
                     int64_t bytes, void *to, struct error *err)
{
    return disk_read(st->fd[part->file], to, (size_t)bytes, part->offset + from,
                     st->file[part->file], err);
}

/* Read a whole companion. */
static int read_companion(const struct safetensors *st, const struct safetensors_tensor *weight,
                          const char *end, int64_t bytes, void *to, struct error *err)
{
    const struct safetensors_tensor *found = companion(st, weight, end, "F32", bytes, err);
    struct part part = found ? part_of(found) : (struct part){0};
    return found ? read_part(st, &part, 0, bytes, to, err) : -1;
}

/* The state of a weight, for js_free(); NULL with err set. */
static struct js *read_state(const struct safetensors *st, const struct safetensors_tensor *state,
                             struct error *err)
{
    char text[STATE_MOST + 1];
    struct part part = part_of(state);
    if (state->bytes > STATE_MOST) {
        wrong(st, state, "it is too long for what describes 4 bits", err);
        return NULL;
    }
    if (read_part(st, &part, 0, part.bytes, text, err))
        return NULL;
    text[part.bytes] = 0;
    struct js *json = js_parse(text, err);
    if (!json)
        error_prefix(err, "%s: tensor \"%.100s\"", st->file[state->file], state->name);
    return json;
}

/* Set the weight's shape to that of the state, whose codes its bytes have to be. */
static int set_shape(const struct safetensors *st, struct safetensors_tensor *weight,
                     const struct js *state, struct error *err)
{
    const struct js *shape = js_get(state, "shape");
    int64_t elems = 1;
    int dims = js_length(shape);
    for (int d = 0; dims <= BOX_DIMS && d < dims; d++) {
        weight->dim[d] = js_at_int(shape, d, -1);
        if (weight->dim[d] < 0 || (weight->dim[d] && elems > INT64_MAX / 16 / weight->dim[d]))
            return wrong(st, weight, "its 4 bits have an impossible shape", err);
        elems *= weight->dim[d];
    }
    if (!dims || dims > BOX_DIMS || weight->bytes != (elems + 1) / 2)
        return wrong(st, weight, "its bytes are not those of its 4 bits and their shape", err);
    weight->dims = dims;
    weight->elems = elems;
    return 0;
}

/* Find the scales, and those of the scales where these are quantized. */
static int find_scales(const struct safetensors *st, const struct safetensors_tensor *weight,
                       const struct js *state, struct safetensors_nf4 *nf4, struct error *err)
{
    const struct safetensors_tensor *scales, *nested;
    int64_t blocks = (weight->elems + nf4->block - 1) / nf4->block;
    if (!js_has(state, "nested_blocksize")) {
        scales = companion(st, weight, "absmax", "F32", blocks * (int64_t)sizeof(float), err);
        nf4->scales = scales ? part_of(scales) : nf4->scales;
        return scales ? 0 : -1;
    }
    nf4->nested_block = js_get_int(state, "nested_blocksize", 0);
    nf4->nested_offset = (float)js_get_real(state, "nested_offset", 0);
    if (nf4->nested_block < 1)
        return wrong(st, weight, "nested_blocksize of its 4 bits is none", err);
    int64_t groups = (blocks + nf4->nested_block - 1) / nf4->nested_block;
    scales = companion(st, weight, "absmax", "U8", blocks, err);
    nested =
        scales ? companion(st, weight, "nested_absmax", "F32", groups * (int64_t)sizeof(float), err)
               : NULL;
    if (!nested)
        return -1;
    nf4->scales = part_of(scales);
    nf4->nested = part_of(nested);
    return read_companion(st, weight, "nested_quant_map", sizeof nf4->nested_map, nf4->nested_map,
                          err);
}

/* Make a weight of 4 bits of the tensor that has its codes. */
static int join(const struct safetensors *st, struct safetensors_tensor *weight,
                const struct safetensors_tensor *state, struct error *err)
{
    struct js *json = read_state(st, state, err);
    if (!json)
        return -1;
    struct safetensors_nf4 *nf4 = weight->nf4 = array_make(1, sizeof *nf4);
    nf4->block = js_get_int(json, "blocksize", 0);
    int rc = nf4->block < 1 ? wrong(st, weight, "blocksize of its 4 bits is none", err) : 0;
    if (!rc)
        rc = set_shape(st, weight, json, err) || find_scales(st, weight, json, nf4, err) ||
                     read_companion(st, weight, "quant_map", sizeof nf4->map, nf4->map, err)
                 ? -1
                 : 0;
    weight->dtype = DTYPE_F32;
    snprintf(weight->format, sizeof weight->format, "NF4");
    js_free(json);
    return rc;
}

/* The weight that tensor number t of the list says by its name that it is the state of, and
 * *is_nf4; NULL: it is no such name.  A state without a weight is left to those who read the
 * tensors. */
static struct safetensors_tensor *weight_of(const struct safetensors *st, int t, int *is_nf4)
{
    const char *name = st->tensor[t].name, *end = strstr(name, state_suffix);
    size_t length = end ? (size_t)(end - name) : 0;
    *is_nf4 = end && !strcmp(end, nf4_suffix);
    for (t--; end && t >= 0 && !strncmp(st->tensor[t].name, name, length); t--)
        if (!st->tensor[t].name[length])
            return &st->tensor[t];
    return NULL;
}

/* Does a tensor belong to the joined weight before it in the list? */
static int belongs_to(const struct safetensors_tensor *tensor,
                      const struct safetensors_tensor *weight)
{
    return weight->nf4 && begins_with(tensor->name, weight->name) &&
           tensor->name[strlen(weight->name)] == '.';
}

/* Take the tensors that belong to joined weights out of the list. */
static void remove_companions(struct safetensors *st)
{
    int kept = 0, weight = -1;
    for (int t = 0; t < st->tensors; t++) {
        struct safetensors_tensor *tensor = &st->tensor[t];
        if (weight >= 0 && belongs_to(tensor, &st->tensor[weight])) {
            free(tensor->name);
            continue;
        }
        weight = tensor->nf4 ? kept : weight;
        st->tensor[kept++] = *tensor;
    }
    st->tensors = kept;
}

int safetensors_nf4_join(struct safetensors *st, struct error *err)
{
    int joined = 0;
    for (int t = 0; t < st->tensors; t++) {
        int is_nf4 = 0;
        struct safetensors_tensor *weight = weight_of(st, t, &is_nf4);
        if (!weight)
            continue;
        if (!is_nf4)
            return wrong(st, weight, "its 4 bits are not nf4; save the model without them", err);
        if (join(st, weight, &st->tensor[t], err))
            return -1;
        joined = 1;
    }
    if (joined)
        remove_companions(st);
    return 0;
}

/* ---- reading ---- */

enum { AT_ONCE = 1 << 15 }; /* elements; blocks have one at least */

/* Read the scales of blocks [first, first + count), count at most AT_ONCE. */
static int read_scales(const struct safetensors *st, const struct safetensors_nf4 *nf4,
                       int64_t first, int64_t count, float *scale, struct error *err)
{
    const int64_t width = sizeof *scale;
    if (!nf4->nested_block)
        return read_part(st, &nf4->scales, first * width, count * width, scale, err);
    int64_t group = first / nf4->nested_block, end = (first + count - 1) / nf4->nested_block + 1;
    unsigned char *codes = malloc((size_t)count);
    float *nested = malloc((size_t)((end - group) * width));
    int rc = codes && nested ? 0 : error_set(err, "out of memory: scales of 4 bits");
    if (!rc)
        rc = read_part(st, &nf4->scales, first, count, codes, err) ||
                     read_part(st, &nf4->nested, group * width, (end - group) * width, nested, err)
                 ? -1
                 : 0;
    for (int64_t i = 0; !rc && i < count; i++)
        scale[i] = nf4->nested_map[codes[i]] * nested[(first + i) / nf4->nested_block - group] +
                   nf4->nested_offset;
    free(codes);
    free(nested);
    return rc;
}

/* Read at most AT_ONCE elements. */
static int read_some(const struct safetensors *st, const struct safetensors_tensor *tensor,
                     int64_t start, int64_t count, float *to, float *scale, struct error *err)
{
    const struct safetensors_nf4 *nf4 = tensor->nf4;
    unsigned char codes[AT_ONCE / 2 + 1];
    const struct part part = part_of(tensor);
    int64_t first = start / nf4->block, blocks = (start + count - 1) / nf4->block + 1 - first;
    int64_t from = start / 2, bytes = (start + count + 1) / 2 - from;
    if (read_part(st, &part, from, bytes, codes, err) ||
        read_scales(st, nf4, first, blocks, scale, err))
        return -1;
    for (int64_t i = start; i < start + count; i++) {
        unsigned char both = codes[i / 2 - from];
        to[i - start] = nf4->map[i % 2 ? both & 15 : both >> 4] * scale[i / nf4->block - first];
    }
    return 0;
}

int safetensors_nf4_read(const struct safetensors *st, const struct safetensors_tensor *tensor,
                         int64_t start, int64_t count, float *to, struct error *err)
{
    float *scale = malloc(AT_ONCE * sizeof *scale);
    int rc = scale ? 0 : error_set(err, "out of memory: scales of 4 bits");
    for (int64_t done = 0, part; !rc && done < count; done += part) {
        part = min_i64(count - done, AT_ONCE);
        rc = read_some(st, tensor, start + done, part, to + done, scale, err);
    }
    free(scale);
    return rc;
}

void safetensors_nf4_scales(const struct safetensors_tensor *tensor, int *file, int64_t *offset,
                            int64_t *bytes)
{
    const struct part *scales = &tensor->nf4->scales;
    *file = scales->file;
    *offset = scales->offset;
    *bytes = scales->bytes;
}
