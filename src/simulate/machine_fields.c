/* machine_fields.c - see machine_fields.h. */
#include "simulate/machine_fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#define AT(member) .offset = offsetof(struct machine, member), .bytes = sizeof ((struct machine *)0)->member
#define TEXT(member) .type = MACHINE_FIELD_TEXT, AT(member)
#define SWITCH(member, value) .type = MACHINE_FIELD_SWITCH, .initial = value, AT(member)
#define COUNT(member, from, to) .type = MACHINE_FIELD_COUNT, .least = from, .most = to, AT(member)
#define REAL(of, member, from, to) .type = MACHINE_FIELD_REAL, .quantity = QUANTITY_##of, \
    .least = from, .most = to, AT(member)
#define SHARE(member) REAL(NUMBER, member, 0.001, 1)
#define SPEED(member) REAL(BYTES_PER_S, member, 1, 1e18)
#define TIME(member) REAL(SECONDS, member, 0, 1e3)
#define PEAK(format) REAL(FLOPS_PER_S, peak[DTYPE_##format].flops_per_s, 0, 1e20)
#define SUCCEEDS(format) SHARE(peak[DTYPE_##format].efficiency), .initial = 1

const struct machine_field machine_fields[] = {
    {.name = "gpu", TEXT(gpu)},
    {.name = "source", TEXT(source)},
    {.name = "runs", SWITCH(runs, 1)},
    {.name = "memory", .type = MACHINE_FIELD_BYTES, .quantity = QUANTITY_BYTES, AT(memory_bytes),
     .least = 1 << 20, .most = 0x1p50, .needed = 1},
    {.name = "per_node", COUNT(per_node, 1, 65536), .needed = 1},
    {.name = "threads", COUNT(threads, 0, 65536)},
    {.name = "peak.fp32", PEAK(F32)},
    {.name = "peak.bf16", PEAK(BF16)},
    {.name = "peak.fp16", PEAK(F16)},
    {.name = "peak.fp8", PEAK(F8)},
    {.name = "product.fp32", SUCCEEDS(F32)},
    {.name = "product.bf16", SUCCEEDS(BF16)},
    {.name = "product.fp16", SUCCEEDS(F16)},
    {.name = "product.fp8", SUCCEEDS(F8)},
    {.name = "product.units", COUNT(units, 0, 65536)},
    {.name = "product.tile_m", REAL(NUMBER, tile_m, 0, 65536)},
    {.name = "product.tile_n", REAL(NUMBER, tile_n, 0, 65536)},
    {.name = "product.half_k", REAL(NUMBER, half_k, 0, 1e6)},
    {.name = "attention.forward", SHARE(attention_forward), .needed = 1},
    {.name = "attention.backward", SHARE(attention_backward), .needed = 1},
    {.name = "attention.own", SHARE(attention_own), .initial = 0.45},
    {.name = "attention.half", REAL(NUMBER, attention_half, 0, 1e6)},
    {.name = "bandwidth", SPEED(memory_bytes_per_s), .needed = 1},
    {.name = "bandwidth_efficiency", SHARE(bandwidth_efficiency), .needed = 1},
    {.name = "launch", TIME(launch_s)},
    {.name = "step", TIME(step_s)},
    {.name = "node.bandwidth", SPEED(node.bytes_per_s), .needed = 1},
    {.name = "node.efficiency", SHARE(node.efficiency), .needed = 1},
    {.name = "node.latency", TIME(node.latency_s), .needed = 1},
    {.name = "node.nvls", SWITCH(has_nvls, 0)},
    {.name = "network.bandwidth", SPEED(network.bytes_per_s), .needed = 1},
    {.name = "network.ports", COUNT(network_ports, 1, 1024), .needed = 1},
    {.name = "network.efficiency", SHARE(network.efficiency), .needed = 1},
    {.name = "network.latency", TIME(network.latency_s), .needed = 1},
    {.name = "beside.compute", SHARE(beside_compute), .needed = 1},
    {.name = "beside.transfer", SHARE(beside_transfer), .needed = 1},
    {.name = "beside.file_compute", SHARE(beside_file_compute), .initial = 1},
    {.name = "beside.file", SHARE(beside_file), .initial = 1},
    {.name = "host.link", SPEED(host_link_bytes_per_s), .needed = 1},
    {.name = "host.bandwidth", SPEED(host_memory_bytes_per_s), .needed = 1},
    {.name = "host.memory", .type = MACHINE_FIELD_BYTES, .quantity = QUANTITY_BYTES,
     AT(host_memory_bytes), .most = 0x1p60},
    {.name = "disk.read", SPEED(disk_read_bytes_per_s), .needed = 1},
    {.name = "disk.write", SPEED(disk_write_bytes_per_s), .needed = 1},
    {.name = "disk.cached_read", REAL(BYTES_PER_S, disk_cached_read_bytes_per_s, 0, 1e18)},
    {.name = "disk.cached_write", REAL(BYTES_PER_S, disk_cached_write_bytes_per_s, 0, 1e18)},
    {.name = "disk.unwritten", REAL(NUMBER, disk_unwritten, 0, 1), .initial = 0.15},
};
/* clang-format on */

_Static_assert(sizeof machine_fields / sizeof machine_fields[0] <= MACHINE_FIELDS_MOST,
               "readers have space for each field");

const int machine_field_count = sizeof machine_fields / sizeof machine_fields[0];

const char *const machine_product_kinds[PRODUCT_KINDS] = {
    [PRODUCT_FORWARD] = "forward", [PRODUCT_INPUT] = "input", [PRODUCT_WEIGHT] = "weight"};
const char *const machine_transfer_kinds[MACHINE_TRANSFERS] = {
    [MACHINE_GATHER] = "gather",         [MACHINE_REDUCE] = "reduce",
    [MACHINE_ALL_REDUCE] = "all_reduce", [MACHINE_ALL_TO_ALL] = "all_to_all",
    [MACHINE_MESSAGE] = "message",       [MACHINE_MESSAGE_BUSY] = "message_busy",
};

const char *machine_field_text(const struct machine *machine, const struct machine_field *field,
                               char *text, size_t size)
{
    const char *at = (const char *)machine + field->offset;
    switch (field->type) {
    case MACHINE_FIELD_TEXT: snprintf(text, size, "%s", at); break;
    case MACHINE_FIELD_SWITCH:
        snprintf(text, size, "%s", *(const int *)(const void *)at ? "true" : "false");
        break;
    case MACHINE_FIELD_COUNT: snprintf(text, size, "%d", *(const int *)(const void *)at); break;
    case MACHINE_FIELD_BYTES:
        machine_quantity_text(field->quantity, (double)*(const size_t *)(const void *)at, text,
                              size);
        break;
    case MACHINE_FIELD_REAL:
        machine_quantity_text(field->quantity, *(const double *)(const void *)at, text, size);
        break;
    }
    return text;
}

static int set_text(char *at, const struct machine_field *field, const char *text,
                    struct error *err)
{
    if (strlen(text) >= field->bytes)
        return error_set(err, "%s: a text of more than %zu bytes", field->name, field->bytes - 1);
    for (const char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            return error_set(err, "%s: a text has characters that are not printable ASCII",
                             field->name);
    snprintf(at, field->bytes, "%s", text);
    return 0;
}

static int set_switch(void *at, const struct machine_field *field, const char *text,
                      struct error *err)
{
    int on = !strcmp(text, "true");
    if (!on && strcmp(text, "false") != 0)
        return error_set(err, "%s: \"%.40s\" is not true or false", field->name, text);
    *(int *)at = on;
    return 0;
}

int machine_field_set(struct machine *machine, const struct machine_field *field, const char *text,
                      struct error *err)
{
    void *at = (char *)machine + field->offset;
    char least[48], most[48];
    double value;
    if (field->type == MACHINE_FIELD_TEXT)
        return set_text(at, field, text, err);
    if (field->type == MACHINE_FIELD_SWITCH)
        return set_switch(at, field, text, err);
    if (machine_quantity_read(field->quantity, text, &value))
        return error_set(err, "%s: \"%.40s\" is not %s", field->name, text,
                         machine_quantity_describe(field->quantity));
    if (!(value >= field->least && value <= field->most))
        return error_set(err, "%s: %.40s is not in %s to %s", field->name, text,
                         machine_quantity_text(field->quantity, field->least, least, sizeof least),
                         machine_quantity_text(field->quantity, field->most, most, sizeof most));
    if (field->type == MACHINE_FIELD_COUNT && value != floor(value))
        return error_set(err, "%s: %.40s is not a whole number", field->name, text);
    if (field->type == MACHINE_FIELD_COUNT)
        *(int *)at = (int)value;
    else if (field->type == MACHINE_FIELD_BYTES)
        *(size_t *)at = (size_t)value;
    else
        *(double *)at = value;
    return 0;
}
