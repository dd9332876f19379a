/* measure.c - measuring one part after the other (measure_work.h lists them), and the machine file.
 *
 * measure_run() tries whether the file can be written, opens the device that training would choose,
 * measures all parts, sets what follows from their tables (set_rest()), and writes the file.
 */
#include "doctor/measure.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/text.h"
#include "comm/gpu/gpu.h"
#include "config/defines.h"
#include "doctor/measure_work.h"
#include "io/disk.h"
#include "simulate/machine_file.h"

enum {
    FILE_BYTES = 1 << 20, /* more than any machine file has */
    HANG_S = 600          /* seconds without progress that end the job: more than any work takes */
};

static const struct measure_limits whole[DEVICE_KINDS] = {
    [DEVICE_CPU] = {.all_s = 80,
                    .products_s = 30,
                    .units_s = 35,
                    .work_s = 0.05,
                    .least = 3,
                    .most = 15,
                    .beside_s = 0.2,
                    .disk_s = 1.5,
                    .disk_bytes = (size_t)256 << 20,
                    .block_bytes = (size_t)192 << 20,
                    .memory_bytes = (size_t)64 << 20,
                    .transfer_bytes = (size_t)64 << 20,
                    .side = 8192},
    [DEVICE_CUDA] = {.all_s = 120,
                     .products_s = 30,
                     .units_s = 30,
                     .work_s = 0.01,
                     .least = 3,
                     .most = 9,
                     .beside_s = 0.05,
                     .disk_s = 1.5,
                     .disk_bytes = (size_t)1 << 30,
                     .block_bytes = (size_t)512 << 20,
                     .memory_bytes = (size_t)256 << 20,
                     .transfer_bytes = (size_t)256 << 20,
                     .side = 8192},
};

/* For --quick: trials, also on the emulated GPU. */
static const struct measure_limits quick = {.all_s = 10,
                                            .products_s = 2,
                                            .units_s = 3,
                                            .work_s = 0.001,
                                            .least = 2,
                                            .most = 3,
                                            .beside_s = 0.002,
                                            .disk_s = 0.1,
                                            .disk_bytes = 4 << 20,
                                            .block_bytes = 1 << 20,
                                            .memory_bytes = 1 << 18,
                                            .transfer_bytes = 1 << 16,
                                            .side = 128};

/* ---- the file ---- */

/* Refuse to replace what is at path, unless it is a machine file or an empty file. */
static int check_replaced(const char *path, struct error *err)
{
    struct stat s;
    struct machine machine = {0};
    struct error unread = {0};
    if (stat(path, &s) || (S_ISREG(s.st_mode) && !s.st_size))
        return 0;
    if (!S_ISREG(s.st_mode))
        return error_set(err, "cannot write %s: it is %s", path,
                         S_ISDIR(s.st_mode) ? "a folder" : "no regular file");
    if (machine_read(&machine, path, NULL, &unread))
        return error_set(err, "%s is there, is no machine file, and is not replaced: %.200s", path,
                         unread.text);
    machine_free(&machine);
    return 0;
}

/* Check that path may be written, by making a file of FILE_BYTES beside it and removing it. */
static int check_file(const char *path, struct error *err)
{
    if (check_replaced(path, err))
        return -1;
    char *beside = array_format("%s.%d", path, (int)getpid()), *bytes = array_make(FILE_BYTES, 1);
    int fd = disk_open(beside, O_WRONLY | O_CREAT | O_EXCL, err), rc = fd < 0 ? -1 : 0;
    if (!rc) {
        rc = disk_write(fd, bytes, FILE_BYTES, 0, beside, err);
        if (disk_finish(fd, beside, rc ? &(struct error){0} : err))
            rc = -1;
        unlink(beside);
    }
    free(bytes);
    free(beside);
    return rc;
}

/* Name the machine after its file, "cluster" for "runs/cluster.yaml", with '-' in place of
 * characters that a name must not have. */
static void set_name(struct machine *machine, const char *path)
{
    const char *slash = strrchr(path, '/'), *from = slash ? slash + 1 : path;
    const char *dot = strrchr(from, '.');
    int length = dot && dot > from ? (int)(dot - from) : (int)strlen(from);
    snprintf(machine->name, sizeof machine->name, "%.*s", length, from);
    for (char *c = machine->name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            *c = '-';
}

static void set_source(const struct measure *m)
{
    const int ranks = world_size(m->world), nodes = world_nodes(m->world);
    time_t now = time(NULL);
    struct tm day;
    char date[16] = "";
    if (gmtime_r(&now, &day))
        strftime(date, sizeof date, "%Y-%m-%d", &day);
    snprintf(m->machine->source, sizeof m->machine->source,
             "trireme %s doctor --measure%s on %.32s, %s, %d rank%s on %d node%s", PACKAGE_VERSION,
             m->options->quick ? " --quick" : "", world_host(m->world), date, ranks,
             ranks > 1 ? "s" : "", nodes, nodes > 1 ? "s" : "");
}

/* ---- what follows from the tables ---- */

/* Fit the rate of attention at length T, rate(T) = peak * efficiency * T / (T + half), to its
 * shortest and its longest measured length.  Returns the efficiency, 0.001 to 1, and half in
 * tokens. */
static double attention_efficiency(const struct machine *machine, const char *name, double *half)
{
    const enum dtype dtype = DTYPE_BF16;
    const struct machine_op *shortest = NULL, *longest = NULL;
    for (int i = 0; i < machine->ops; i++) {
        const struct machine_op *row = &machine->op[i];
        if (strcmp(row->name, name) || row->dtype != dtype)
            continue;
        if (!shortest || row->size < shortest->size)
            shortest = row;
        if (!longest || row->size > longest->size)
            longest = row;
    }
    double ratio = longest->rate / shortest->rate;
    double above = 1 / shortest->size - ratio / longest->size;
    *half = ratio > 1 && above > 0 ? (ratio - 1) / above : 0;
    double share = longest->rate * (1 + *half / longest->size) / machine->peak[dtype].flops_per_s;
    return share < 0.001 ? 0.001 : share > 1 ? 1 : share;
}

/* Return the network ports of a node: by how many times all ranks of the nodes together gather
 * faster than a group of one rank of each node, at most the ranks of a node. */
static int ports_of(const struct machine *machine, int nodes)
{
    double one = 0;
    for (int i = 0; i < machine->transfers; i++) {
        const struct machine_transfer *row = &machine->transfer[i];
        if (row->kind == MACHINE_GATHER && row->ranks == nodes && row->nodes == nodes)
            one = row->bytes * (nodes - 1) / nodes / row->seconds;
    }
    double ports = one > 0 ? machine->network.bytes_per_s / one + 0.5 : 1;
    return ports > machine->per_node ? machine->per_node : ports < 1 ? 1 : (int)ports;
}

/* Round to four digits: the others differ from measurement to measurement. */
static double rounded(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", value);
    return strtod(text, NULL);
}

static void round_rows(struct machine *machine)
{
    for (int i = 0; i < machine->products; i++)
        machine->product[i].flops_per_s = rounded(machine->product[i].flops_per_s);
    for (int i = 0; i < machine->ops; i++)
        machine->op[i].rate = rounded(machine->op[i].rate);
    for (int i = 0; i < machine->transfers; i++)
        machine->transfer[i].seconds = rounded(machine->transfer[i].seconds);
}

/* Assume figures for links that no transfer used, within a node or between nodes, as a machine file
 * needs some. */
static void assume_links(struct machine *machine)
{
    static const struct machine_link ethernet = {
        .bytes_per_s = 1.25e9, .efficiency = 1, .latency_s = 50e-6};
    if (machine->node.bytes_per_s <= 0)
        machine->node = (struct machine_link){
            .bytes_per_s = machine->host_link_bytes_per_s, .efficiency = 1, .latency_s = 10e-6};
    if (machine->network.bytes_per_s <= 0)
        machine->network = ethernet;
}

static void set_rest(struct measure *m)
{
    struct machine *machine = m->machine;
    double half;
    assume_links(machine);
    for (int format = 0; format < DTYPE_COUNT; format++)
        machine->peak[format].efficiency = 1;
    round_rows(machine);
    machine->disk_unwritten = rounded(machine->disk_unwritten);
    set_name(machine, m->options->file);
    set_source(m);
    machine->runs = 1;
    machine->per_node = world_local_size(m->world);
    if (m->device->kind == DEVICE_CPU)
        machine->threads = m->device->threads;
    else
        snprintf(machine->gpu, sizeof machine->gpu, "%s", m->device->name);
    machine->network_ports = ports_of(machine, world_nodes(m->world));
    machine->attention_backward = attention_efficiency(machine, "attention_backward", &half);
    machine->attention_own = 1; /* the measured rates of attention are used, whatever kernel runs */
    machine->attention_forward =
        attention_efficiency(machine, "attention", &machine->attention_half);
}

/* Write the comment at the head of the file into text. */
static char *head_of(const struct measure *m, char *text, size_t size)
{
    const int ranks = world_size(m->world), nodes = world_nodes(m->world);
    snprintf(text, size, "Measured by trireme doctor --measure, for trireme plan --machine %s\n",
             m->options->file);
    if (ranks == 1)
        text_append(text, size, "One rank: node and beside are assumed, not measured\n");
    if (nodes == 1)
        text_append(text, size, "One node: network is assumed to be 10 Gbit/s Ethernet\n");
    if (m->own_share > 0 && m->own_share < MEASURE_SHARE)
        text_append(text, size, "Other programs used the processors meanwhile\n");
    return text;
}

/* ---- all of it ---- */

/* Open the device that training would choose; where ranks have no GPU each, let them share. */
static int open_device(struct measure *m, struct error *err)
{
    struct device_request request = {.kind = DEVICE_CPU, .local_ranks = world_local_size(m->world)};
    int gpus = gpu_everywhere(m->world);
    struct error own = {0};
    if (gpus && gpu_choose(m->world, GPU_OWN, &request.index, &own)) {
        m->share_gpu = 1;
        if (gpu_choose(m->world, GPU_SHARED, &request.index, err))
            return -1;
    }
    request.kind = gpus ? DEVICE_CUDA : DEVICE_CPU;
    request.threads = getenv("OMP_NUM_THREADS") ? 0 : world_cores(m->world);
    m->limits = m->options->quick ? &quick : &whole[request.kind];
    m->deadline_ns = clock_ns() + (int64_t)(m->limits->all_s * 1e9);
    int rc = device_open(&m->device, &request, err);
    if (!rc && gpus) {
        m->from = device_event_create(m->device, DEVICE_EVENT_TIMED, err);
        m->to = m->from ? device_event_create(m->device, DEVICE_EVENT_TIMED, err) : NULL;
        rc = m->to ? 0 : -1;
    }
    if (world_agree(m->world, rc, err))
        return -1;
    const struct mesh_shape shape = {.degree = {1, 1, world_size(m->world), 1, 1}};
    return mesh_create(&m->mesh, m->world, shape, err);
}

static void close_device(struct measure *m)
{
    if (!m->device)
        return;
    if (m->from)
        device_event_destroy(m->device, m->from);
    if (m->to)
        device_event_destroy(m->device, m->to);
    mesh_free(m->mesh, m->device, m->mem, POOL_WORKSPACE, m->block_bytes, m->block);
    mesh_destroy(m->mesh);
    device_close(m->device);
}

/* The disk comes first, so that a wrong --disk fails at once. */
static int measure_all(struct measure *m, struct error *err)
{
    static const struct {
        int (*measure)(struct measure *m, struct error *err);
    } parts[] = {
        {.measure = measure_disk},   {.measure = measure_copies},  {.measure = measure_products},
        {.measure = measure_units},  {.measure = measure_kernels}, {.measure = measure_transfers},
        {.measure = measure_beside}, {.measure = measure_files},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].measure(m, err))
            return -1;
    measure_set_ops(m);
    set_rest(m);
    return 0;
}

int measure_run(struct world **world, struct mem *mem, const struct measure_options *options,
                struct error *err)
{
    struct machine machine = {0};
    struct measure m = {.options = options, .mem = mem, .machine = &machine};
    if (world_start(world, mem, err))
        return -1;
    m.world = *world;
    world_watch(m.world, HANG_S);
    char head[512];
    int is_first = world_rank(m.world) == 0;
    int rc = world_agree(m.world, is_first ? check_file(options->file, err) : 0, err);
    if (!rc)
        rc = open_device(&m, err);
    if (!rc)
        rc = measure_all(&m, err);
    if (!rc)
        rc = world_agree(
            m.world,
            is_first ? machine_write(&machine, options->file, head_of(&m, head, sizeof head), err)
                     : 0,
            err);
    if (!rc)
        measure_show(&m);
    close_device(&m);
    free(m.op);
    machine_free(&machine);
    return rc;
}
