/* slow_messages.c - a preload that has each message sent 2 ms later, so that ranks which train
 * until a signal comes leave the cores to other tests meanwhile. */
#include <mpi.h>
#include <time.h>

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    nanosleep(&pause, NULL);
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}
