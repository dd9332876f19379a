/* launch_environment.c - limits and variables of this process, set before MPI starts; see
 * launch_prepare() in launch.h. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include "comm/launch.h"

/* Tries the call on this process's own memory: a container's filter that forbids it does so there,
 * too. */
int launch_may_copy(void)
{
    char from = 1, to = 0;
    struct iovec source = {&from, 1}, target = {&to, 1};
    return process_vm_readv(getpid(), &target, 1, &source, 1, 0) == 1;
}

/* Raise the limits of open files and of a file's size.  Slurm passes on those of the shell that
 * called sbatch, often 1024 files, and a rank has a file open for each socket and each part of a
 * checkpoint. */
static void raise_file_limits(void)
{
    static const int resources[] = {RLIMIT_NOFILE, RLIMIT_FSIZE};
    for (int i = 0; i < 2; i++) {
        struct rlimit limit;
        if (getrlimit(resources[i], &limit))
            continue;
        limit.rlim_cur = limit.rlim_max;
        setrlimit(resources[i], &limit); /* where it fails the limit stays, and doctor shows it */
    }
}

/* Returns 1 if this process can make a folder in one of that path. */
static int takes_folders(const char *path)
{
    char made[PATH_MAX];
    if (snprintf(made, sizeof made, "%s/trireme-XXXXXX", path) >= (int)sizeof made)
        return 0;
    return mkdtemp(made) && !rmdir(made);
}

/* Open MPI 5 makes a folder of its own for a process that runs alone, and its MPI_Init crashes
 * where it cannot: TMPDIR may name a folder of another node, or a full disk.  Then choose one that
 * works; where none does, what Open MPI prints has to do. */
static void choose_temporary_folder(void)
{
    static const char *const variables[] = {"TMPDIR", "TEMP", "TMP"}; /* Open MPI's order */
    static const char *const others[] = {"/tmp", "/dev/shm"};
    const char *folder = NULL;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0] && !folder; i++)
        folder = getenv(variables[i]);
    if (takes_folders(folder ? folder : "/tmp"))
        return;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (takes_folders(others[i])) {
            setenv("TMPDIR", others[i], 1);
            return;
        }
}

/* Let one task of srun start MPI by itself.  Open MPI 4 takes it for one of several wherever
 * SLURM_NODELIST is beside the number of a step: without PMIx it ends the process then, and with
 * PMIx the second program that a shell in the task starts, as the first has used up its place. */
static int leave_slurm(const struct launch *launch)
{
    if (launch->kind != LAUNCH_SRUN || launch->tasks != 1 || getenv("SLURM_HET_SIZE"))
        return 0;
    unsetenv("SLURM_NODELIST");
    unsetenv("PMIX_NAMESPACE");
    return 1;
}

void launch_prepare(const struct launch *launch)
{
    static const char *const quiet[] = {
        "OMPI_MCA_btl_base_warn_component_unused",
        "OMPI_MCA_btl_openib_warn_no_device_params_found",
        "OMPI_MCA_mpi_warn_on_fork",
    };
    raise_file_limits();
    for (size_t i = 0; i < sizeof quiet / sizeof quiet[0]; i++)
        setenv(quiet[i], "0", 0);
    if (launch->one_node) {
        setenv("OMPI_MCA_pml", "ob1", 0);
        /* By itself Open MPI 5 asks the kernel for routes, and each rank prints that there is none
         * to the node's own IPv6 address. */
        setenv("OMPI_MCA_reachable", "weighted", 0);
    }
    int is_alone = leave_slurm(launch) || !launch->joined;
    if (launch->one_node && is_alone && launch->kind != LAUNCH_MPIRUN) {
        setenv("OMPI_MCA_ess_singleton_isolated", "1", 0); /* no daemon for one process */
        /* All such processes would use one folder, and remove it under one another. */
        setenv("OMPI_MCA_orte_create_session_dirs", "0", 0);
        choose_temporary_folder();
    }
    if (!launch_may_copy()) {
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
        setenv("OMPI_MCA_smsc", "^cma", 0);
    }
}
