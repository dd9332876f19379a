/* machine_file.c - see machine_file.h.
 *
 * Speeds are those of NVIDIA's data sheets: H200 (2024), H100 (2023), A100 (2021), and the Ada
 * architecture's white paper for the RTX 4090 (2022), whose tensor cores sum in fp32 at half speed.
 * Where they give tensor throughput with sparsity, this is half of it.  Memory is what
 * cudaMemGetInfo calls the total, rounded down: it differs by driver a little, and is some hundred
 * MiB less than nvidia-smi shows (143771 MiB on an H200, 81559 on an H100, 81920 on an A100, 24564
 * on a 4090).
 */
#include "simulate/machine_file.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

#define GIB(x) ((size_t)((x)*1024) << 20)

static const struct row {
    const char *name, *gpu;
    size_t memory_bytes;
    double half, fp32, bandwidth, link, network;
    int units;
} rows[] = {
    {"h200", "NVIDIA H200", GIB(139.7), 989.5e12, 66.9e12, 4.8e12, 450e9, 400e9, 132},
    {"h100", "NVIDIA H100 80GB HBM3", GIB(79.1), 989.5e12, 66.9e12, 3.35e12, 450e9, 400e9, 132},
    {"h100-nvl", "NVIDIA H100 NVL", GIB(93.0), 835.5e12, 60e12, 3.9e12, 300e9, 100e9, 132},
    {"h100-pcie", "NVIDIA H100 PCIe", GIB(79.1), 756e12, 51.2e12, 2e12, 64e9, 100e9, 114},
    {"a100-80", "NVIDIA A100-SXM4-80GB", GIB(79.1), 312e12, 19.5e12, 2.039e12, 300e9, 200e9, 108},
    {"a100-80-pcie", "NVIDIA A100 80GB PCIe", GIB(79.1), 312e12, 19.5e12, 1.935e12, 32e9, 50e9,
     108},
    {"a100-40", "NVIDIA A100-SXM4-40GB", GIB(39.3), 312e12, 19.5e12, 1.555e12, 300e9, 200e9, 108},
    {"a100-40-pcie", "NVIDIA A100-PCIE-40GB", GIB(39.3), 312e12, 19.5e12, 1.555e12, 32e9, 50e9,
     108},
    {"rtx4090", "NVIDIA GeForce RTX 4090", GIB(23.5), 165.2e12, 82.6e12, 1.008e12, 32e9, 1.25e9,
     128},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

static int fill(struct machine *machine, const struct row *row)
{
    *machine = (struct machine){
        .runs = 1,
        .memory_bytes = row->memory_bytes,
        .per_node = 8,
        .peak = {[DTYPE_F32] = {.flops_per_s = row->fp32, .efficiency = 0.8},
                 [DTYPE_BF16] = {.flops_per_s = row->half, .efficiency = 0.75},
                 [DTYPE_F16] = {.flops_per_s = row->half, .efficiency = 0.75}},
        .units = row->units,
        .tile_m = 128,
        .tile_n = 128,
        .half_k = 128,
        .attention_forward = 0.55,
        .attention_backward = 0.45,
        .attention_half = 512,
        .bandwidth = row->bandwidth,
        .bandwidth_efficiency = 0.85,
        .launch_s = 2e-6,
        .step_s = 1e-3,
        .node = {.bytes_per_s = row->link, .efficiency = 0.8, .latency_s = 3e-6},
        .network = {.bytes_per_s = row->network, .efficiency = 0.85, .latency_s = 10e-6},
        .network_ports = 8,
        .beside_compute = 0.9,
        .beside_transfer = 0.9,
        .host_bytes_per_s = 25e9,
        .host_bandwidth = 25e9,
        .disk_read = 5e9,
        .disk_write = 2e9,
    };
    snprintf(machine->name, sizeof machine->name, "%s", row->name);
    snprintf(machine->gpu, sizeof machine->gpu, "%s", row->gpu);
    return 0;
}

const char *machine_names(char *text, size_t size, const char *separator)
{
    text[0] = 0;
    for (int i = 0; i < ROWS; i++)
        text_join(text, size, separator, "%s", rows[i].name);
    return text;
}

int machine_find(struct machine *machine, const char *name, struct error *err)
{
    char known[512];
    for (int i = 0; i < ROWS; i++)
        if (!strcasecmp(rows[i].name, name))
            return fill(machine, &rows[i]);
    return error_set(err, "machine %s: known are %s", name,
                     machine_names(known, sizeof known, ", "));
}

int machine_of_gpu(struct machine *machine, const char *gpu)
{
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].gpu, gpu))
            return fill(machine, &rows[i]);
    return -1;
}
