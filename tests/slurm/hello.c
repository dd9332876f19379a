/* hello.c - shows that the virtual cluster is one: how the ranks group into nodes, and that
 * what they say to each other really leaves a node by its network card. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 4 << 20 };

/* Bytes received by eth0 of this network namespace, -1 if there is none. */
static long long received_bytes(void)
{
    FILE *file = fopen("/proc/self/net/dev", "r");
    char line[512];
    long long bytes = -1;
    while (file && fgets(line, sizeof line, file)) {
        char *name = strstr(line, "eth0:");
        if (name)
            bytes = atoll(name + 5);
    }
    if (file)
        fclose(file);
    return bytes;
}

/* Wait until MPI_Init has ended on all ranks: Slurm lets it end on one node while a rank of another
 * cannot receive yet, which a first message then kills (src/comm/pmix.c).  Each rank makes a file
 * in the folder that they share. */
static void wait_for_all(int rank, int ranks)
{
    char name[64];
    snprintf(name, sizeof name, "hello.started.%d", rank);
    FILE *own = fopen(name, "w");
    if (!own)
        MPI_Abort(MPI_COMM_WORLD, 1);
    fclose(own);
    for (int i = 0; i < ranks; i++) {
        snprintf(name, sizeof name, "hello.started.%d", i);
        while (access(name, F_OK))
            usleep(10000);
    }
}

int main(int argc, char **argv)
{
    int rank, ranks, local, locals;
    char host[64] = "";
    MPI_Comm node;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    wait_for_all(rank, ranks);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local);
    MPI_Comm_size(node, &locals);
    gethostname(host, sizeof host - 1);

    int first = local == 0, nodes;
    MPI_Allreduce(&first, &nodes, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    char *data = calloc((size_t)ranks, PIECE);
    if (!data)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(data + (size_t)rank * PIECE, rank + 1, PIECE);
    long long before = received_bytes();
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, data, PIECE, MPI_BYTE, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    long long wire = received_bytes() - before, expected = (long long)(ranks - locals) * PIECE;
    int right = 1;
    for (int i = 0; i < ranks; i++)
        right &= data[(size_t)i * PIECE] == i + 1 && data[(size_t)(i + 1) * PIECE - 1] == i + 1;
    printf("rank %d of %d on %s, local %d of %d, %d nodes, data %s, wire %s\n", rank, ranks, host,
           local, locals, nodes, right ? "right" : "wrong", wire >= expected ? "used" : "unused");
    free(data);
    MPI_Comm_free(&node);
    MPI_Finalize();
    return 0;
}
