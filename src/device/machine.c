/* machine.c - see machine.h.
 *
 * Speeds are those of NVIDIA's data sheets: H200 (2024), H100 (2023), A100 (2021), and the Ada
 * architecture's white paper for the RTX 4090 (2022), whose tensor cores sum in fp32 at half speed.
 * Where they give tensor throughput with sparsity, this is half of it.  Memory is what
 * cudaMemGetInfo calls the total, rounded down: it differs by driver a little, and is some hundred
 * MiB less than nvidia-smi shows (143771 MiB on an H200, 81559 on an H100, 81920 on an A100, 24564
 * on a 4090).
 */
#include "device/machine.h"

#include <string.h>
#include <strings.h>

#define GIB(x) ((size_t)((x)*1024) << 20)

const struct machine machine_rows[] = {
    {"h200", "NVIDIA H200", GIB(139.7), 989.5e12, 66.9e12, 4.8e12},
    {"h100", "NVIDIA H100 80GB HBM3", GIB(79.1), 989.5e12, 66.9e12, 3.35e12},
    {"h100-nvl", "NVIDIA H100 NVL", GIB(93.0), 835.5e12, 60e12, 3.9e12},
    {"h100-pcie", "NVIDIA H100 PCIe", GIB(79.1), 756e12, 51.2e12, 2e12},
    {"a100-80", "NVIDIA A100-SXM4-80GB", GIB(79.1), 312e12, 19.5e12, 2.039e12},
    {"a100-80-pcie", "NVIDIA A100 80GB PCIe", GIB(79.1), 312e12, 19.5e12, 1.935e12},
    {"a100-40", "NVIDIA A100-SXM4-40GB", GIB(39.3), 312e12, 19.5e12, 1.555e12},
    {"a100-40-pcie", "NVIDIA A100-PCIE-40GB", GIB(39.3), 312e12, 19.5e12, 1.555e12},
    {"rtx4090", "NVIDIA GeForce RTX 4090", GIB(23.5), 165.2e12, 82.6e12, 1.008e12},
};

const int machine_count = sizeof machine_rows / sizeof machine_rows[0];

const struct machine *machine_find(const char *name)
{
    for (int i = 0; i < machine_count; i++)
        if (!strcasecmp(machine_rows[i].name, name))
            return &machine_rows[i];
    return NULL;
}

const struct machine *machine_of_gpu(const char *gpu)
{
    for (int i = 0; i < machine_count; i++)
        if (!strcmp(machine_rows[i].gpu, gpu))
            return &machine_rows[i];
    return NULL;
}

double machine_peak(const struct machine *machine, enum dtype dtype)
{
    return dtype != DTYPE_F32 ? machine->bf16_flops : machine->fp32_flops;
}
