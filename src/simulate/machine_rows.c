/* machine_rows.c - the tables of a machine in a file: lists of rows, each a list of its columns.
 *
 *     products: [[bf16, forward, 4096, 4096, 4096, 6.1e14], ...]   # m, n, k, flops per second
 *     ops: [[rmsnorm, bf16, 1e6, 2.1e12], ...]                     # size, rate
 *     transfers: [[gather, 8, 1, 1e6, 3e-5], ...]                  # ranks, nodes, bytes, seconds
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "simulate/machine_fields.h"
#include "simulate/machine_reader.h"

enum { ROWS_MAX = 3000, COLUMNS_MAX = 6 };

/* A row: its columns' texts, and of those that are numbers the values. */
struct row {
    const char *text[COLUMNS_MAX];
    double value[COLUMNS_MAX];
};

struct table {
    const char *name, *columns; /* per column a letter: t text, i whole number, d number above 0 */
    const char *wanted;
    int (*append)(struct machine *machine, const struct row *row, struct error *err);
    int (*check)(const struct machine *machine, struct error *err);
};

static int find_name(const char *const *names, int count, const char *what, const char *name,
                     struct error *err)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], name))
            return i;
    return error_set(err, "there is no %s \"%.40s\"", what, name);
}

static int find_format(const char *name, struct error *err)
{
    int dtype = dtype_find(name);
    return dtype < 0 ? error_set(err, "there is no format \"%.40s\"", name) : dtype;
}

static int append_product(struct machine *machine, const struct row *row, struct error *err)
{
    int dtype = find_format(row->text[0], err);
    int kind = dtype < 0 ? -1
                         : find_name(machine_product_kinds, PRODUCT_KINDS, "kind of product",
                                     row->text[1], err);
    if (kind < 0)
        return -1;
    machine->product[machine->products++] = (struct machine_product){.dtype = dtype,
                                                                     .kind = kind,
                                                                     .m = (int64_t)row->value[2],
                                                                     .n = (int64_t)row->value[3],
                                                                     .k = (int64_t)row->value[4],
                                                                     .flops_per_s = row->value[5]};
    return 0;
}

static int append_op(struct machine *machine, const struct row *row, struct error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    int dtype = find_format(row->text[1], err);
    struct machine_op *op = &machine->op[machine->ops];
    if (dtype < 0)
        return -1;
    if (!row->text[0][0] || strlen(row->text[0]) >= sizeof op->name ||
        strspn(row->text[0], letters) != strlen(row->text[0]))
        return error_set(err, "\"%.40s\" is not the name of an op", row->text[0]);
    *op = (struct machine_op){.dtype = dtype, .size = row->value[2], .rate = row->value[3]};
    snprintf(op->name, sizeof op->name, "%s", row->text[0]);
    machine->ops++;
    return 0;
}

static int append_transfer(struct machine *machine, const struct row *row, struct error *err)
{
    int kind =
        find_name(machine_transfer_kinds, MACHINE_TRANSFERS, "kind of transfer", row->text[0], err);
    if (kind < 0)
        return -1;
    if (row->value[1] < 2 || row->value[2] > row->value[1])
        return error_set(err, "%s ranks on %s nodes", row->text[1], row->text[2]);
    machine->transfer[machine->transfers++] = (struct machine_transfer){.kind = kind,
                                                                        .ranks = (int)row->value[1],
                                                                        .nodes = (int)row->value[2],
                                                                        .bytes = row->value[3],
                                                                        .seconds = row->value[4]};
    return 0;
}

static int same_kind(const struct machine_product *a, const struct machine_product *b)
{
    return a->dtype == b->dtype && a->kind == b->kind;
}

static int is_first_of_kind(const struct machine *machine, int i)
{
    for (int j = 0; j < i; j++)
        if (same_kind(&machine->product[j], &machine->product[i]))
            return 0;
    return 1;
}

/* The products of one format and kind, of which number `first` is the first, have every m with
 * every n and every k, once. */
static int check_grid(const struct machine *machine, int first, struct error *err)
{
    const struct machine_product *of = &machine->product[first];
    int64_t rows = 0, m = 0, n = 0, k = 0;
    for (int i = first; i < machine->products; i++) {
        const struct machine_product *a = &machine->product[i];
        int new_m = 1, new_n = 1, new_k = 1;
        if (!same_kind(a, of))
            continue;
        for (const struct machine_product *b = of; b < a; b++) {
            if (!same_kind(a, b))
                continue;
            if (a->m == b->m && a->n == b->n && a->k == b->k)
                return error_set(err, "products: %s %s of m %lld, n %lld, k %lld is there twice",
                                 dtype_name(a->dtype), machine_product_kinds[a->kind],
                                 (long long)a->m, (long long)a->n, (long long)a->k);
            new_m &= a->m != b->m;
            new_n &= a->n != b->n;
            new_k &= a->k != b->k;
        }
        rows++;
        m += new_m;
        n += new_n;
        k += new_k;
    }
    if (rows != m * n * k)
        return error_set(err,
                         "products: %s %s has %lld rows, but %lld x %lld x %lld sizes of m, n "
                         "and k: a full grid is wanted",
                         dtype_name(of->dtype), machine_product_kinds[of->kind], (long long)rows,
                         (long long)m, (long long)n, (long long)k);
    return 0;
}

static int check_products(const struct machine *machine, struct error *err)
{
    for (int i = 0; i < machine->products; i++)
        if (is_first_of_kind(machine, i) && check_grid(machine, i, err))
            return -1;
    return 0;
}

static int check_ops(const struct machine *machine, struct error *err)
{
    for (int i = 0; i < machine->ops; i++)
        for (int j = 0; j < i; j++) {
            const struct machine_op *a = &machine->op[i], *b = &machine->op[j];
            if (a->dtype == b->dtype && a->size == b->size && !strcmp(a->name, b->name))
                return error_set(err, "ops: %s %s of %g is there twice", a->name,
                                 dtype_name(a->dtype), a->size);
        }
    return 0;
}

static int check_transfers(const struct machine *machine, struct error *err)
{
    for (int i = 0; i < machine->transfers; i++)
        for (int j = 0; j < i; j++) {
            const struct machine_transfer *a = &machine->transfer[i], *b = &machine->transfer[j];
            if (a->kind == b->kind && a->ranks == b->ranks && a->nodes == b->nodes &&
                a->bytes == b->bytes)
                return error_set(err,
                                 "transfers: %s of %d ranks on %d nodes, %g bytes, is there "
                                 "twice",
                                 machine_transfer_kinds[a->kind], a->ranks, a->nodes, a->bytes);
        }
    return 0;
}

static const struct table tables[] = {
    {.name = "products",
     .columns = "ttiiid",
     .wanted = "[FORMAT, KIND, m, n, k, flops per second]",
     .append = append_product,
     .check = check_products},
    {.name = "ops",
     .columns = "ttdd",
     .wanted = "[NAME, FORMAT, size, rate]",
     .append = append_op,
     .check = check_ops},
    {.name = "transfers",
     .columns = "tiidd",
     .wanted = "[KIND, ranks, nodes, bytes, seconds]",
     .append = append_transfer,
     .check = check_transfers},
};

static const struct table *find_table(const char *name)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (!strcmp(tables[i].name, name))
            return &tables[i];
    return NULL;
}

int machine_rows_is_table(const char *name)
{
    return find_table(name) != NULL;
}

static int read_row(struct row *row, const struct table *table, const struct yaml_tree *node,
                    struct error *err)
{
    const struct yaml_tree *column = node->child;
    size_t i = 0;
    for (; table->columns[i] && column; i++, column = column->next) {
        double *value = &row->value[i];
        if (column->kind != YAML_TREE_TEXT)
            break;
        row->text[i] = column->text;
        if (table->columns[i] == 't')
            continue;
        if (machine_quantity_read(QUANTITY_NUMBER, column->text, value) ||
            !(*value > 0 && *value < 1e30))
            return error_set(err, "%s: \"%.40s\" is not a number above 0", table->name,
                             column->text);
        if (table->columns[i] == 'i' && (*value != floor(*value) || *value > INT32_MAX))
            return error_set(err, "%s: %.40s is not a whole number up to %d", table->name,
                             column->text, INT32_MAX);
    }
    return table->columns[i] || column
               ? error_set(err, "%s: a row is %s", table->name, table->wanted)
               : 0;
}

/* Memory for the rows of a table that is not there yet. */
static int make_rows(struct machine *machine, const struct table *table, size_t count,
                     struct error *err)
{
    if (count > ROWS_MAX)
        return error_set(err, "%s: %zu rows, at most %d are taken", table->name, count, ROWS_MAX);
    if (table->append == append_product && !machine->product)
        machine->product = array_make(count, sizeof *machine->product);
    else if (table->append == append_op && !machine->op)
        machine->op = array_make(count, sizeof *machine->op);
    else if (table->append == append_transfer && !machine->transfer)
        machine->transfer = array_make(count, sizeof *machine->transfer);
    else
        return error_set(err, "%s is given twice", table->name);
    return 0;
}

int machine_rows_read(struct machine *machine, const char *name, const struct yaml_tree *rows,
                      int *line, struct error *err)
{
    const struct table *table = find_table(name);
    size_t count = 0;
    if (rows->kind != YAML_TREE_LIST)
        return error_set(err, "%s: a list of rows %s is wanted", name, table->wanted);
    for (const struct yaml_tree *node = rows->child; node; node = node->next)
        count++;
    if (make_rows(machine, table, count, err))
        return -1;
    for (const struct yaml_tree *node = rows->child; node; node = node->next) {
        struct row row = {0};
        *line = node->line;
        if (read_row(&row, table, node, err) || table->append(machine, &row, err))
            return -1;
    }
    *line = rows->line;
    return table->check(machine, err);
}
