/* columns.c - see columns.h. */
#include "verify/columns.h"

struct columns columns_of(const struct graph_param *param)
{
    return (struct columns){.param = param, .parts = param->division.dim ? 1 : param->parts};
}

struct columns columns_first(const struct columns *columns)
{
    return (struct columns){.param = columns->param, .first = columns->first, .parts = 1};
}

struct columns columns_others(const struct columns *columns)
{
    return (struct columns){.param = columns->param,
                            .first = columns->first + 1,
                            .parts = columns->parts - 1,
                            .packed = columns->packed};
}

/* What a rank has along the divided dimension of one of the tensors. */
static struct box part_of(const struct columns *columns, int part)
{
    const struct box *box = &columns->param->box[columns->first + part];
    int dim = columns->param->division.dim;
    return (struct box){.dims = 1,
                        .whole = {box->whole[dim]},
                        .start = {box->start[dim]},
                        .count = {box->count[dim]}};
}

int64_t columns_start(const struct columns *columns)
{
    return part_of(columns, 0).start[0];
}

static int parts_equal(struct box a, struct box b)
{
    return box_equal(&a, &b);
}

int columns_equal(const struct columns *a, const struct columns *b)
{
    for (int p = 0; p < a->parts && p < b->parts; p++)
        if (!parts_equal(part_of(a, p), part_of(b, p)))
            return 0;
    return a->parts == b->parts && a->packed == b->packed;
}

/* The first tensor of columns that begins so many columns after their first; parts: none. */
static int part_at(const struct columns *columns, int64_t first)
{
    int p = 0;
    for (int64_t at = 0; p < columns->parts && at != first; p++)
        at += part_of(columns, p).count[0];
    return p;
}

int columns_are_of(const struct columns *columns, const struct columns *matrix,
                   const struct graph_adapter *adapted)
{
    if (matrix->parts != adapted->parts)
        return 0;
    for (int p = 0; p < adapted->parts; p++) {
        int of = part_at(columns, adapted->part[p].first);
        if (of == columns->parts || !parts_equal(part_of(columns, of), part_of(matrix, p)) ||
            part_of(matrix, p).count[0] != adapted->part[p].columns)
            return 0;
    }
    return 1;
}

int columns_are_at(const struct columns *columns, int64_t first, int64_t whole)
{
    struct box own = part_of(columns, 0);
    return columns->parts == 1 && own.start[0] == first && own.whole[0] == whole;
}

int columns_are_packed(const struct columns *columns, const struct op_attrs *attrs)
{
    struct box own = part_of(columns, 0);
    return columns->parts == 1 && !columns->packed &&
           own.whole[0] == attrs->model_heads * attrs->head_dim &&
           own.start[0] == attrs->first * attrs->head_dim &&
           own.count[0] == attrs->heads * attrs->head_dim;
}

int columns_are_halves(const struct columns *columns)
{
    const struct graph_param *param = columns->param;
    if (param->dims == 4) /* the gates and what goes through them, of each expert */
        return param->division.dim == 2 && param->box[0].count[1] == 2;
    return columns->parts == 2 && parts_equal(part_of(columns, 0), part_of(columns, 1));
}

int columns_are_heads(const struct columns *columns, const struct columns *more,
                      const struct op_attrs *attrs)
{
    struct box part[2 * PARAM_PARTS];
    int parts = 0;
    int first_key = attrs->heads > 0; /* the part of the keys: 1, after that of queries, or 0 */
    int64_t packed = more ? more->packed : columns->packed;
    if (packed)
        return packed == attrs->kv_heads &&
               part_of(columns, 0).count[0] == attrs->heads * attrs->head_dim;
    for (int p = 0; p < columns->parts; p++)
        part[parts++] = part_of(columns, p);
    for (int p = 0; more && p < more->parts; p++)
        part[parts++] = part_of(more, p);
    if (parts != first_key + (attrs->kv_heads ? 2 : 0))
        return 0;
    for (int p = 0; p < parts; p++)
        if (part[p].start[0] % attrs->head_dim ||
            part[p].count[0] != (p < first_key ? attrs->heads : attrs->kv_heads) * attrs->head_dim)
            return 0;
    if (!attrs->kv_heads)
        return 1;
    int64_t group = attrs->heads / attrs->kv_heads; /* query heads for each key head */
    return parts_equal(part[first_key], part[first_key + 1]) &&
           (!attrs->heads || (part[0].whole[0] == group * part[first_key].whole[0] &&
                              part[0].start[0] == group * part[first_key].start[0]));
}
