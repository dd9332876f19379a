/* launch.c - which launcher started this process, and whether MPI sees the tasks it started.
 *
 * srun without --mpi=pmix starts N processes of which each takes itself for the only one: N copies
 * of one training run would overwrite each other without a message.  launch_check() refuses that.
 */
#include "comm/launch.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/round.h"

/* The least address space of a process, by trial.  Where a mapping fails for lack of it, Open MPI,
 * PMIx, hwloc and oneDNN crash, or wait for ever.  With Open MPI 4.1, limits 20 or 25 MiB apart and
 * llama-tiny for 1 or 3 steps, trireme train without CUDA crashed at up to
 *
 *     300 MiB  on one rank with up to 4 threads       325  on 2 ranks
 *     340      with 8 threads                         450  on 4 ranks
 *     400      with 16 threads                        475  on 8 ranks
 *
 * and with CUDA's libraries, of which NCCL alone takes 208 MiB, at up to 450 on one rank and 650 on
 * 4, also without a GPU.  None failed from 500 MiB on, and 675 with CUDA.  Half of that is added.
 */
enum { LEAST_ADDRESS_SPACE_MIB = 1024 };

/* Returns a number from the environment, or `otherwise` where it is not set or no such number. */
static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return otherwise;
    long value = strtol(text, &end, 10);
    return *end || value < 0 || value > 1 << 24 ? otherwise : (int)value;
}

/* Returns the number of tasks that torchrun, accelerate launch or deepspeed started, 0: none of
 * them did.  They set the same variables, and know nothing of MPI.  Containers and schedulers set
 * WORLD_SIZE too, but not LOCAL_RANK. */
static int torch_tasks(void)
{
    return number("RANK", -1) >= 0 && number("LOCAL_RANK", -1) >= 0 ? number("WORLD_SIZE", 0) : 0;
}

/* The launchers, in the order in which they are looked for.  mpirun inside a Slurm job starts its
 * daemons by srun, so mpirun's variables come first.  srun may have started torchrun, whose tasks
 * all have the variables of the one task of srun.  SLURM_STEP_NUM_TASKS exists inside srun alone,
 * SLURM_NTASKS also in the batch script. */
static const struct {
    const char *name;
    const char *tasks, *task, *local_task; /* variables: how many tasks, which this is, and which
                                              of its node */
} launchers[LAUNCH_KINDS] = {
    [LAUNCH_MPIRUN] = {.name = "mpirun",
                       .tasks = "OMPI_COMM_WORLD_SIZE",
                       .task = "OMPI_COMM_WORLD_RANK",
                       .local_task = "OMPI_COMM_WORLD_LOCAL_RANK"},
    [LAUNCH_TORCHRUN] = {.name = "torchrun",
                         .tasks = "WORLD_SIZE",
                         .task = "RANK",
                         .local_task = "LOCAL_RANK"},
    [LAUNCH_SRUN] = {.name = "srun",
                     .tasks = "SLURM_STEP_NUM_TASKS",
                     .task = "SLURM_PROCID",
                     .local_task = "SLURM_LOCALID"},
    [LAUNCH_PMI] = {.name = "PMI",
                    .tasks = "PMI_SIZE",
                    .task = "PMI_RANK",
                    .local_task = "MPI_LOCALRANKID"},
    [LAUNCH_BATCH] = {.name = "Slurm without srun",
                      .tasks = "SLURM_NTASKS",
                      .task = "SLURM_PROCID",
                      .local_task = "SLURM_LOCALID"},
};

struct launch launch_read(void)
{
    struct launch launch = {.kind = LAUNCH_NONE, .name = "none", .tasks = 1};
    for (enum launch_kind kind = LAUNCH_NONE + 1; kind < LAUNCH_KINDS; kind++)
        if (number(launchers[kind].tasks, 0) > 0 &&
            (kind != LAUNCH_TORCHRUN || torch_tasks() > 1)) {
            launch.kind = kind;
            launch.name = launchers[kind].name;
            launch.tasks = number(launchers[kind].tasks, 1);
            launch.task = number(launchers[kind].task, 0);
            launch.local_task = number(launchers[kind].local_task, 0);
            break;
        }
    if (launch.kind == LAUNCH_MPIRUN)
        launch.one_node = number("OMPI_COMM_WORLD_LOCAL_SIZE", 0) == launch.tasks;
    else if (launch.kind == LAUNCH_SRUN)
        launch.one_node = number("SLURM_STEP_NUM_NODES", 0) == 1;
    else
        launch.one_node = launch.tasks == 1;
    launch.joined =
        getenv("PMIX_NAMESPACE") || getenv("PMI_FD") || getenv("PMI_PORT") || getenv("PMI2_FD");
    return launch;
}

/* Set err (on task 0) to how to start trireme under this launcher.  Returns -1. */
static int refuse(const struct launch *launch, struct error *err)
{
    err->code = EXIT_USAGE;
    err->text[0] = 0;
    if (launch->task > 0)
        return -1;
    if (launch->kind == LAUNCH_BATCH)
        return error_set(err,
                         "this Slurm job has %d tasks but trireme was started without srun: "
                         "start with srun --mpi=pmix (or srun -n 1 --mpi=pmix if one is meant)",
                         launch->tasks);
    if (launch->kind == LAUNCH_SRUN)
        return error_set(err,
                         "Slurm started %d tasks but MPI sees one: start with srun --mpi=pmix "
                         "(srun --mpi=list shows whether this cluster has it)",
                         launch->tasks);
    if (launch->kind == LAUNCH_TORCHRUN)
        return error_set(err,
                         "torchrun or its like started %d tasks (WORLD_SIZE), of which MPI knows "
                         "nothing: start with mpirun -n %d trireme ... or srun --mpi=pmix",
                         launch->tasks, launch->tasks);
    return error_set(err,
                     "%s started %d tasks but MPI sees one: start with the mpirun of the MPI "
                     "trireme was built with, or with srun --mpi=pmix",
                     launch->name, launch->tasks);
}

int launch_check(const struct launch *launch, int size, struct error *err)
{
    int alone = size ? size == 1 : !launch->joined || launch->kind == LAUNCH_TORCHRUN;
    return launch->tasks > 1 && alone ? refuse(launch, err) : 0;
}

const char *launch_doubt(const struct launch *launch)
{
    int is_by_pmi = launch->kind == LAUNCH_SRUN && launch->tasks > 1 && launch->task == 0 &&
                    getenv("PMI_FD") && !getenv("PMIX_NAMESPACE");
    return is_by_pmi ? "srun starts MPI by PMI-2 (--mpi=pmi2), for which not every MPI was built; "
                       "where MPI now ends this job, start with srun --mpi=pmix"
                     : NULL;
}

int launch_check_nodes(const struct launch *launch, struct error *err)
{
    int nodes = number("SLURM_JOB_NUM_NODES", 1);
    if (nodes < 2 || (launch->kind != LAUNCH_NONE && launch->kind != LAUNCH_BATCH))
        return 0;
    return error_set(err,
                     "this Slurm job has %d nodes but trireme was started without srun, on one of "
                     "them or on none: start with srun --mpi=pmix (or srun -n 1 --mpi=pmix if one "
                     "process is meant)",
                     nodes);
}

int launch_check_memory(const struct launch *launch, const char *host, struct error *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >> 20 >= LEAST_ADDRESS_SPACE_MIB)
        return 0;
    err->code = EXIT_USAGE;
    err->text[0] = 0;
    if (launch->local_task > 0)
        return -1;
    return error_set(err,
                     "a process may have %llu MiB of address space on %s (RLIMIT_AS), and MPI and "
                     "the libraries beside it may crash with less than %d MiB: ulimit -v unlimited",
                     (unsigned long long)limit.rlim_cur >> 20, host, LEAST_ADDRESS_SPACE_MIB);
}

/* The mpirun of Open MPI 4 passes settings of its command line to the environment of its ranks,
 * too. That of Open MPI 5, which is PRRTE's, knows no such setting: it waits 250 ms. */
struct launch_kill launch_kill(const struct launch *launch)
{
    if (launch->kind != LAUNCH_MPIRUN)
        return (struct launch_kill){.ms = -1, .source = LAUNCH_KILL_FIXED};
    if (getenv("PRTE_LAUNCHED"))
        return (struct launch_kill){.ms = 250, .source = LAUNCH_KILL_FIXED};
    return (struct launch_kill){
        .ms = 1000 * min_int(number(LAUNCH_KILL_VARIABLE, 1), INT_MAX / 1000),
        .source = getenv(LAUNCH_KILL_VARIABLE) ? LAUNCH_KILL_SET : LAUNCH_KILL_DEFAULT,
    };
}
