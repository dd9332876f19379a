/* machine.h - a machine by its speeds: what a plan needs to know of it, and a user can measure.
 *
 * One machine is one kind of rank: a GPU with its part of the node, or, on processors, the cores
 * that a rank has while `per_node` ranks of a node all compute.  Speeds come in two forms.  A
 * published machine has peaks and efficiencies:
 *
 *   product [m, n] of k   tiles of tile_m x tile_n over `units` processors in whole rounds, each k
 *                         + half_k deep, at peak * efficiency; + launch; but not less than its
 *                         bytes take as an op that is
 *   bound by memory       bytes / (bandwidth * efficiency) + launch
 *   attention             flops / (peak * efficiency * T / (T + attention_half)) + launch
 *   transfer              steps * latency + bytes through the narrowest link / its bandwidth
 *   copy from a file      bytes * ranks of the node / bandwidth: the page cache's, or the disk's
 *                         where not all fits there
 *
 * A measured machine (trireme doctor --measure FILE) has tables beside them, which come first: of
 * products by format, kind and shape, of ops by name and size, of transfers by kind, group and
 * bytes.  Between the rows of a table the logarithm of the rate is interpolated by the logarithms
 * of the sizes, and beyond the last row the rate stays what it is there, as it does before the
 * first one, but a transfer takes the first row's time at least, an op launch_s, and a product what
 * its bytes take.  A table of transfers that lacks a group has that of the nearest one, changed as
 * the formula changes.
 *
 * The file format is that of src/simulate/machines.yaml, which holds the machines that every build
 * knows; machine_file.h reads and writes it.
 */
#ifndef TRIREME_SIMULATE_MACHINE_H
#define TRIREME_SIMULATE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"

enum { MACHINE_NAME = 48, MACHINE_TEXT = 128, MACHINE_OP = 32 };

/* Which operand of a product is transposed, as its kernels are faster or slower by that. */
enum machine_product_kind {
    PRODUCT_FORWARD, /* y = x w^T */
    PRODUCT_INPUT,   /* dx = dy w */
    PRODUCT_WEIGHT,  /* dw = dy^T x, in fp32 */
    PRODUCT_KINDS
};

enum machine_transfer_kind {
    MACHINE_GATHER,       /* bytes: of the whole result */
    MACHINE_REDUCE,       /* reduce-scatter; bytes: of what each rank gives */
    MACHINE_ALL_REDUCE,   /* bytes: of the data */
    MACHINE_ALL_TO_ALL,   /* bytes: of what each rank gives, its own part too */
    MACHINE_MESSAGE,      /* from one rank to another */
    MACHINE_MESSAGE_BUSY, /* the same, where one of them computes; without rows as MESSAGE */
    MACHINE_TRANSFERS
};

/* ---- rows of the tables ---- */

struct machine_product {
    enum dtype dtype;
    enum machine_product_kind kind;
    int64_t m, n, k; /* of each kind a full grid: every m with every n and every k */
    double flops_per_s;
};

/* Of an op that is bound by memory: bytes it reads and writes, and those per second.  Of attention:
 * positions of a sequence, and operations per second. */
struct machine_op {
    char name[MACHINE_OP]; /* as in the op table, or an instruction's: "UPDATE" */
    enum dtype dtype;      /* of the graph */
    double size, rate;
};

struct machine_transfer {
    enum machine_transfer_kind kind;
    int ranks, nodes; /* of the group, on how many nodes */
    double bytes, seconds;
};

/* ---- a machine ---- */

/* Of one format of products. */
struct machine_peak {
    double flops_per_s; /* dense, without sparsity, at boost clock; 0: it has no such products */
    double efficiency;  /* of a large product, of that peak */
};

/* A way between ranks: within a node, or between nodes. */
struct machine_link {
    double bytes_per_s; /* of a rank, one way; between nodes: of a node's ports together */
    double efficiency;  /* of a large transfer */
    double latency_s;   /* of one step of a ring, or of one message */
};

struct machine {
    char name[MACHINE_NAME];   /* as a user says it: "h200" */
    char gpu[MACHINE_TEXT];    /* as the driver names it; "": ranks compute on processors */
    char source[MACHINE_TEXT]; /* where its figures are from */
    int runs;                  /* 0: trireme's kernels do not run there: plans alone */
    size_t memory_bytes;       /* of a GPU, as CUDA offers it to programs; else of a rank */
    int per_node;              /* ranks of a node */
    int threads;               /* of a rank that computes on processors */

    struct machine_peak peak[DTYPE_COUNT]; /* by format: fp32, bf16, fp16, fp8 */
    int units;                             /* processors that share the tiles of a product */
    double tile_m, tile_n, half_k;
    double attention_forward, attention_backward; /* efficiencies of the peak, long sequences */
    double attention_own;  /* the share of these that trireme's own kernels on GPUs reach */
    double attention_half; /* positions of a sequence at which they are half of that */
    double memory_bytes_per_s;
    double bandwidth_efficiency;
    double launch_s; /* of an op: between its predecessor's end and its start */
    double step_s;   /* of a step, beside its instructions */

    struct machine_link node, network;
    int network_ports;      /* of a node; ranks share them */
    int has_nvls;           /* switches that add up within a node */
    double beside_compute;  /* share of its speed that compute keeps beside a transfer */
    double beside_transfer; /* and a transfer beside compute */

    double host_link_bytes_per_s;   /* between a GPU and the host's memory, each way */
    double host_memory_bytes_per_s; /* that a rank moves there: updates of offloaded state */
    size_t host_memory_bytes;       /* of a node; 0: not given: a node of processors has its ranks'
                                       memory_bytes, that of a node of GPUs is not known */
    double disk_read_bytes_per_s, disk_write_bytes_per_s; /* of a node, sustained */
    /* The same where the page cache has the file; 0: as above. */
    double disk_cached_read_bytes_per_s, disk_cached_write_bytes_per_s;
    double disk_unwritten; /* share of the node's free memory that files may fill before those who
                              write wait for the disk */
    double beside_file_compute; /* share of its speed that compute keeps beside a copy from or to
                                   the page cache */
    double beside_file;         /* and such a copy beside compute */

    struct machine_product *product; /* the machine's, as are the other tables */
    struct machine_op *op;
    struct machine_transfer *transfer;
    int products, ops, transfers;
};

/* Ranks of the node that has most, where ranks are spread evenly over nodes. */
static inline int machine_ranks_per_node(int ranks, int nodes)
{
    return (ranks + nodes - 1) / nodes;
}

void machine_free(struct machine *machine); /* its tables */

/* Is it what a run computes on, a GPU or processors, and has it products in the run's format?
 * option: what named it, for err.  Returns 0, or -1 with err set. */
int machine_check(const struct machine *machine, int on_gpu, enum dtype dtype, const char *option,
                  struct error *err);

/* ---- how long; seconds ---- */

/* A product of [m, k] and [k, n] whose operands are of a format; INFINITY: the machine has none. */
double machine_product_s(const struct machine *machine, enum dtype dtype,
                         enum machine_product_kind kind, int64_t m, int64_t n, int64_t k);

/* An op, or an instruction, that is bound by memory, by its name; rows of another format serve
 * where the table has none of this one. */
double machine_memory_s(const struct machine *machine, const char *name, enum dtype dtype,
                        double bytes);

/* Attention by the name of its op, of so many operations, in sequences of so many positions. An op
 * whose name has "backward" in it takes attention_backward.  The kernel does not count where the
 * machine's table has the op. */
enum machine_attention { MACHINE_ATTENTION_LIBRARY, MACHINE_ATTENTION_OWN };
double machine_attention_s(const struct machine *machine, const char *name, enum dtype dtype,
                           double flops, int64_t positions, enum machine_attention kernel);

/* A transfer among `ranks` ranks on `nodes` nodes, as many on each; 0 for a group of one.  sharing:
 * groups like this one that use the ports of a node at the same time, at least 1. */
double machine_transfer_s(const struct machine *machine, enum machine_transfer_kind kind, int ranks,
                          int nodes, int sharing, double bytes);

/* State that is offloaded to files, as a plan has it.  All of a node's ranks read and write theirs
 * at the same time, and go through all of it in the same order in every step: what does not fit
 * into the page cache whole has left it before it is read again. */
struct machine_files {
    int ranks;           /* of a node */
    double memory_bytes; /* that they need of the node's memory, without files */
    double bytes;        /* of their files */
};
enum machine_file_way { MACHINE_FILE_READ, MACHINE_FILE_WRITE };

/* Do files move at the page cache's speed?  They do where they fit into the node's memory beside
 * what ranks need; to be written so, into disk_unwritten of what is left by ranks. */
int machine_file_is_cached(const struct machine *machine, enum machine_file_way way,
                           const struct machine_files *files);

/* So many bytes of one rank between memory and its file. */
double machine_file_s(const struct machine *machine, enum machine_file_way way,
                      const struct machine_files *files, double bytes);

/* Operations per second of products at most in a format, 0 where it has none: for the share of the
 * peak. */
double machine_peak(const struct machine *machine, enum dtype dtype);

#endif
