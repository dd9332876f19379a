/* mpi_start.c - what MPI itself takes to start: milliseconds from exec to the end of the first
 * barrier, as rank 0 sees them.  The least that any MPI program waits; startup compares with it.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Since exec: now less the start time in clock ticks since boot, 20 fields after the name. */
static double since_exec_ms(void)
{
    char text[1024] = "";
    struct timespec now;
    long long ticks = 0;
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file || !fgets(text, sizeof text, file) || clock_gettime(CLOCK_BOOTTIME, &now))
        return -1;
    fclose(file);
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at || sscanf(at, "%lld", &ticks) != 1)
        return -1;
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec -
           1e3 * (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!rank)
        printf("%.0f\n", since_exec_ms());
    MPI_Finalize();
    return 0;
}
