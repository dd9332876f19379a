/* pmix.c - a barrier by PMIx, for the end of MPI_Init under Slurm.
 *
 * Open MPI ends MPI_Init with a PMIx fence, so that no rank sends before every rank can receive.
 * That fence collects no data, and Slurm's PMIx plugin (22.05, also with PMIxFenceBarrier=yes) ends
 * such a fence as soon as the tasks of one node are there.  A rank on another node that is late, on
 * a busy machine, then meets a message before Open MPI has set its receivers, and dies of SIGSEGV:
 *
 *     node 1, rank 0   MPI_Init: addresses . . . . . . . . . . . X  no receiver yet
 *     node 2, rank 2   MPI_Init: addresses, fence | MPI_Comm_dup ^
 *
 * A fence that collects data does wait for all nodes, so each rank calls one before its first
 * message.  It goes to the PMIx library that Open MPI has loaded: another copy of it would not be
 * connected.  Where Open MPI carries PMIx within itself there is none to be found.
 */
#include "comm/pmix.h"
#include <dlfcn.h>
#include <pmix.h>

int pmix_barrier(struct error *err)
{
    void *library = dlopen("libpmix.so.2", RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return 0;
    pmix_status_t (*fence)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t) =
        (pmix_status_t(*)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t))dlsym(
            library, "PMIx_Fence");
    int (*started)(void) = (int (*)(void))dlsym(library, "PMIx_Initialized");
    int rc = 0;
    if (fence && started && started()) {
        pmix_info_t collect = {
            .key = PMIX_COLLECT_DATA,
            .value = {.type = PMIX_BOOL, .data.flag = true},
        };
        pmix_status_t status = fence(NULL, 0, &collect, 1);
        if (status != PMIX_SUCCESS) {
            err->code = EXIT_NODE;
            rc = error_set(err, "the ranks of this job did not all start: PMIx_Fence says %d",
                           status);
        }
    }
    dlclose(library);
    return rc;
}
