/* columns.c - see columns.h. */
#include "verify/columns.h"

struct columns columns_of(const struct graph_param *param)
{
    return (struct columns){.param = param, .tensors = param->division.dim ? 1 : param->tensors};
}

struct columns columns_first(const struct columns *columns)
{
    return (struct columns){.param = columns->param, .first = columns->first, .tensors = 1};
}

struct columns columns_others(const struct columns *columns)
{
    return (struct columns){.param = columns->param,
                            .first = columns->first + 1,
                            .tensors = columns->tensors - 1,
                            .packed = columns->packed};
}

/* What a rank has along the divided dimension of one of the tensors. */
static struct box box_of(const struct columns *columns, int tensor)
{
    const struct box *box = &columns->param->box[columns->first + tensor];
    int dim = columns->param->division.dim;
    return (struct box){.dims = 1,
                        .whole = {box->whole[dim]},
                        .start = {box->start[dim]},
                        .count = {box->count[dim]}};
}

int64_t columns_start(const struct columns *columns)
{
    return box_of(columns, 0).start[0];
}

static int boxes_equal(struct box a, struct box b)
{
    return box_equal(&a, &b);
}

int columns_equal(const struct columns *a, const struct columns *b)
{
    for (int t = 0; t < a->tensors && t < b->tensors; t++)
        if (!boxes_equal(box_of(a, t), box_of(b, t)))
            return 0;
    return a->tensors == b->tensors && a->packed == b->packed;
}

/* The first tensor of columns that begins so many columns after their first; tensors: none. */
static int tensor_at(const struct columns *columns, int64_t first)
{
    int t = 0;
    for (int64_t at = 0; t < columns->tensors && at != first; t++)
        at += box_of(columns, t).count[0];
    return t;
}

int columns_are_of(const struct columns *columns, const struct columns *matrix,
                   const struct graph_adapter *adapted)
{
    if (matrix->tensors != adapted->tensors)
        return 0;
    for (int t = 0; t < adapted->tensors; t++) {
        int of = tensor_at(columns, adapted->tensor[t].first);
        if (of == columns->tensors || !boxes_equal(box_of(columns, of), box_of(matrix, t)) ||
            box_of(matrix, t).count[0] != adapted->tensor[t].columns)
            return 0;
    }
    return 1;
}

int columns_are_at(const struct columns *columns, int64_t first, int64_t whole)
{
    struct box own = box_of(columns, 0);
    return columns->tensors == 1 && own.start[0] == first && own.whole[0] == whole;
}

int columns_are_packed(const struct columns *columns, const struct op_attrs *attrs)
{
    struct box own = box_of(columns, 0);
    return columns->tensors == 1 && !columns->packed &&
           own.whole[0] == attrs->model_heads * attrs->head_dim &&
           own.start[0] == attrs->first * attrs->head_dim &&
           own.count[0] == attrs->heads * attrs->head_dim;
}

int columns_are_halves(const struct columns *columns)
{
    const struct graph_param *param = columns->param;
    if (param->dims == 4) /* the gates and what goes through them, of each expert */
        return param->division.dim == 2 && param->box[0].count[1] == 2;
    return columns->tensors == 2 && boxes_equal(box_of(columns, 0), box_of(columns, 1));
}

int columns_are_heads(const struct columns *columns, const struct columns *more,
                      const struct op_attrs *attrs)
{
    struct box box[2 * PARAM_TENSORS];
    int boxes = 0;
    int first_key = attrs->heads > 0; /* the box of the keys: 1, after that of queries, or 0 */
    int64_t packed = more ? more->packed : columns->packed;
    if (packed)
        return packed == attrs->kv_heads &&
               box_of(columns, 0).count[0] == attrs->heads * attrs->head_dim;
    for (int t = 0; t < columns->tensors; t++)
        box[boxes++] = box_of(columns, t);
    for (int t = 0; more && t < more->tensors; t++)
        box[boxes++] = box_of(more, t);
    if (boxes != first_key + (attrs->kv_heads ? 2 : 0))
        return 0;
    for (int t = 0; t < boxes; t++)
        if (box[t].start[0] % attrs->head_dim ||
            box[t].count[0] != (t < first_key ? attrs->heads : attrs->kv_heads) * attrs->head_dim)
            return 0;
    if (!attrs->kv_heads)
        return 1;
    int64_t group = attrs->heads / attrs->kv_heads; /* query heads for each key head */
    return boxes_equal(box[first_key], box[first_key + 1]) &&
           (!attrs->heads || (box[0].whole[0] == group * box[first_key].whole[0] &&
                              box[0].start[0] == group * box[first_key].start[0]));
}
