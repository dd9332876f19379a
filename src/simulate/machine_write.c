/* machine_write.c - a machine as a file that reads back to the same (machine_fields.h). */
#include <stdio.h>
#include <string.h>

#include "base/whole_file.h"
#include "simulate/machine_fields.h"
#include "simulate/machine_file.h"

static void write_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void write_fields(FILE *out, const struct machine *machine)
{
    char text[MACHINE_TEXT], group[32] = "";
    for (int i = 0; i < machine_field_count; i++) {
        const struct machine_field *field = &machine_fields[i];
        const char *dot = strchr(field->name, '.');
        int length = dot ? (int)(dot - field->name) : 0;
        if (dot && (strncmp(group, field->name, (size_t)length) != 0 || group[length])) {
            snprintf(group, sizeof group, "%.*s", length, field->name);
            fprintf(out, "  %s:\n", group);
        }
        fprintf(out, "  %s%s: ", dot ? "  " : "", dot ? dot + 1 : field->name);
        machine_field_text(machine, field, text, sizeof text);
        if (field->type == MACHINE_FIELD_TEXT)
            write_text(out, text);
        else
            fputs(text, out);
        fputc('\n', out);
    }
}

static const char *number(double value, char *text)
{
    return machine_quantity_text(QUANTITY_NUMBER, value, text, 40);
}

static void write_tables(FILE *out, const struct machine *machine)
{
    char a[40], b[40];
    if (machine->products)
        fputs("  products: # format, kind, m, n, k, flops per second\n", out);
    for (int i = 0; i < machine->products; i++) {
        const struct machine_product *row = &machine->product[i];
        fprintf(out, "    - [%s, %s, %lld, %lld, %lld, %s]\n", dtype_name(row->dtype),
                machine_product_kinds[row->kind], (long long)row->m, (long long)row->n,
                (long long)row->k, number(row->flops_per_s, a));
    }
    if (machine->ops)
        fputs("  ops: # name, format, bytes (of attention: positions), bytes (operations) per "
              "second\n",
              out);
    for (int i = 0; i < machine->ops; i++) {
        const struct machine_op *row = &machine->op[i];
        fprintf(out, "    - [%s, %s, %s, %s]\n", row->name, dtype_name(row->dtype),
                number(row->size, a), number(row->rate, b));
    }
    if (machine->transfers)
        fputs("  transfers: # kind, ranks, nodes, bytes, seconds\n", out);
    for (int i = 0; i < machine->transfers; i++) {
        const struct machine_transfer *row = &machine->transfer[i];
        fprintf(out, "    - [%s, %d, %d, %s, %s]\n", machine_transfer_kinds[row->kind], row->ranks,
                row->nodes, number(row->bytes, a), number(row->seconds, b));
    }
}

static void write_head(FILE *out, const char *head)
{
    while (head && *head) {
        size_t length = strcspn(head, "\n");
        fprintf(out, "# %.*s\n", (int)length, head);
        head += length + (head[length] == '\n');
    }
}

int machine_write(const struct machine *machine, const char *path, const char *head,
                  struct error *err)
{
    struct whole_file file;
    if (whole_file_begin(&file, path, err))
        return -1;
    write_head(file.out, head);
    fprintf(file.out, "%s:\n", machine->name);
    write_fields(file.out, machine);
    write_tables(file.out, machine);
    return whole_file_end(&file, WHOLE_FILE_REPORT, err);
}
