/* doctor.c - all parts of trireme doctor but those of GPUs; see doctor.h.
 *
 * Rank 0 alone prints facts, in two columns.  The first rank of every node looks for problems of
 * its node; rank 0 collects them at the end and prints a list, each with what to do about it.
 */
#include "doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cgroup.h"
#include "base/text.h"
#include "doctor/doctor_report.h"
#include "comm/topology.h"
#include "config/defines.h"
#include "device/device.h"
#include "io/h5.h"

enum { HANG_S = 600 }; /* seconds without progress that end the process: more than any work takes */

/* Run a command of the shell and copy its output into text, as one line.  Returns its exit status,
 * or -1 where no shell could be started. */
static int command_output(const char *command, char *text, size_t bytes)
{
    char word[256];
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return -1;
    text[0] = 0;
    while (fscanf(pipe, "%255s", word) == 1)
        text_join(text, bytes, " ", "%s", word);
    return pclose(pipe);
}

/* Print what Slurm says.  To be called before MPI starts: a process that uses a fast network should
 * not fork. */
static void check_slurm(struct doctor *d)
{
    char text[1024];
    const char *job = getenv("SLURM_JOB_ID");
    if (command_output("command -v srun", text, sizeof text)) {
        doctor_fact(d, "Slurm", "no srun found");
        if (job)
            doctor_problem(
                d, "inside Slurm job %s, but srun is not on PATH: load the site's Slurm module",
                job);
        return;
    }
    if (command_output("timeout 10 srun --version 2>/dev/null", text, sizeof text)) {
        doctor_fact(d, "Slurm", "srun found, but it knows no cluster");
        return;
    }
    doctor_fact(d, "Slurm", "%.64s%s%s", text, job ? ", job " : ", not inside a job",
                job ? job : "");
    int rc = command_output("timeout 10 srun --mpi=list 2>&1", text, sizeof text);
    if (rc) {
        doctor_fact(d, "srun --mpi", "no answer: this machine is not part of a cluster");
        return;
    }
    char *found = strstr(text, "are... ");
    doctor_fact(d, "srun --mpi", "%.200s", found ? found + strlen("are... ") : text);
    if (!strstr(text, "pmix"))
        doctor_problem(d, "srun offers no pmix: ask for Slurm's PMIx plugin, or start with mpirun");
}

static void check_mpi(struct doctor *d, struct error *err)
{
    struct world *world = d->world;
    if (!world) {
        doctor_fact(d, "MPI", "not usable: %s", err->text);
        doctor_problem(d, "%s", err->text);
        d->fatal++;
        return;
    }
    int is_alone = !strcmp(d->launch.name, "none");
    doctor_fact(d, "MPI", "%s, %d rank%s on %d node%s, started %s%s", world_library(world),
                world_size(world), world_size(world) > 1 ? "s" : "", world_nodes(world),
                world_nodes(world) > 1 ? "s" : "", is_alone ? "alone" : "by ",
                is_alone ? "" : d->launch.name);
    doctor_fact(d, "PMIx", "%s",
                getenv("PMIX_NAMESPACE") ? "yes, from the launcher" : "not in use");
    doctor_fact(d, "direct copies", "%s",
                launch_may_copy() ? "allowed between ranks of a node"
                                  : "forbidden here: ranks copy twice through shared memory");
}

static void check_processor(struct doctor *d)
{
    char model[128] = "unknown", levels[64] = "";
    const char *threads = getenv("OMP_NUM_THREADS");
    struct topology t;
    text_from_file("/proc/cpuinfo", "model name", model, sizeof model);
    for (int level = 0; device_cpu_level(level); level++)
        text_join(levels, sizeof levels, ", ", "%s", device_cpu_level(level));
    topology_read(&t);
    doctor_fact(d, "processor", "%s", model);
    doctor_fact(d, "kernels", "%s", levels);
    if (device_own_products())
        doctor_fact(d, "matrix products", "%s; large ones %s by trireme's kernels",
                    device_gemm_library(), device_own_products());
    else
        doctor_fact(d, "matrix products", "%s", device_gemm_library());
    doctor_fact(d, "cores", "%d (hardware threads %d, packages %d, NUMA nodes %d)", t.cores,
                t.units, t.packages, t.numa_nodes);
    doctor_fact(d, "bound to", "%d core%s (%s)%s%s", t.own_cores, t.own_cores > 1 ? "s" : "",
                t.binding, threads ? ", OMP_NUM_THREADS=" : "", threads ? threads : "");
    if (t.quota > 0)
        doctor_fact(d, "core quota", "%.1f", t.quota);
    int ranks = d->world ? world_local_size(d->world) : 1;
    if (t.own_cores < t.cores && t.own_cores * ranks < t.cores)
        doctor_problem(d,
                       "ranks are bound to %d of %d cores: mpirun --bind-to none, or srun "
                       "--cpus-per-task=N (before Slurm 23.11 also export SRUN_CPUS_PER_TASK=N)",
                       t.own_cores * ranks, t.cores);
    if (ranks > t.cores)
        doctor_problem(d, "%d ranks share %d cores: fine for trying out, slow for training", ranks,
                       t.cores);
}

static void limit_text(int resource, char *text, size_t bytes)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) || limit.rlim_cur == RLIM_INFINITY)
        snprintf(text, bytes, "unlimited");
    else
        snprintf(text, bytes, "%llu", (unsigned long long)limit.rlim_cur);
}

static void check_limits(struct doctor *d)
{
    char locked[32], files[32], stack[32];
    struct rlimit limit;
    limit_text(RLIMIT_MEMLOCK, locked, sizeof locked);
    limit_text(RLIMIT_NOFILE, files, sizeof files);
    limit_text(RLIMIT_STACK, stack, sizeof stack);
    doctor_fact(d, "limits", "locked memory %s, files %s, stack %s", locked, files, stack);
    if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < 1024)
        doctor_problem(d, "only %s open files allowed: ulimit -n 65536", files);
    if (!access("/sys/class/infiniband", F_OK) && strcmp(locked, "unlimited"))
        doctor_problem(d,
                       "InfiniBand needs locked memory: ulimit -l unlimited (on the compute nodes, "
                       "Slurm: PropagateResourceLimitsExcept=MEMLOCK)");
}

static void check_memory(struct doctor *d)
{
    char total[64] = "0", available[64] = "0", huge[64] = "";
    struct statvfs shm;
    size_t limit = cgroup_memory_bytes();
    text_from_file("/proc/meminfo", "MemTotal", total, sizeof total);
    text_from_file("/proc/meminfo", "MemAvailable", available, sizeof available);
    doctor_fact(d, "memory", "%.1f GiB, %.1f GiB available", strtod(total, NULL) / (1 << 20),
                strtod(available, NULL) / (1 << 20));
    if (limit)
        doctor_fact(d, "memory limit", "%.1f GiB (control group)", (double)limit / (1 << 30));
    if (!text_from_file("/sys/kernel/mm/transparent_hugepage/enabled", NULL, huge, sizeof huge)) {
        doctor_fact(d, "huge pages", "%s", huge);
        if (strstr(huge, "[never]"))
            doctor_problem(
                d, "transparent huge pages are off: large buffers are slower; as root: echo "
                   "madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    }
    if (!statvfs("/dev/shm", &shm)) {
        double bytes = (double)shm.f_bavail * (double)shm.f_frsize;
        int ranks = d->world ? world_local_size(d->world) : 1;
        doctor_fact(d, "/dev/shm", "%.1f GiB free", bytes / (1 << 30));
        if (bytes < 32e6 * ranks)
            doctor_problem(d,
                           "/dev/shm has %.0f MB: MPI needs about 32 MB for each of %d rank%s; "
                           "containers: --shm-size=1g",
                           bytes / 1e6, ranks, ranks > 1 ? "s" : "");
    } else {
        doctor_problem(d, "no /dev/shm: ranks of a node exchange data through it");
    }
}

/* Gather the problems of all nodes on rank 0 into *all, for free(), as "host: problem" if there are
 * several nodes.  Without a world they are those of this process.  Collective where there is one.
 * Returns 0, or -1 with err set. */
static int collect(struct doctor *d, char **all, struct error *err)
{
    struct world *world = d->world;
    if (!world) {
        *all = array_text(d->problems);
        return 0;
    }
    char *lines = array_make(2, PROBLEMS_BYTES);
    size_t *sizes = array_make((size_t)world_size(world), sizeof *sizes);
    if (world_local_rank(world) == 0) {
        char *rest = d->problems, *line;
        while ((line = strsep(&rest, "\n")) && *line)
            text_append(lines, 2 * PROBLEMS_BYTES, "%s%s%s\n",
                        world_nodes(world) > 1 ? world_host(world) : "",
                        world_nodes(world) > 1 ? ": " : "", line);
    }
    /* the last rank also sends the 0 after its text, which ends the gathered text */
    size_t bytes = strlen(lines) + (world_rank(world) == world_size(world) - 1);
    int rc = world_gather(world, all, sizes, lines, bytes, 0, err);
    free(sizes);
    free(lines);
    return rc;
}

static void list(const struct doctor *d, char *all)
{
    char *line;
    if (!d->prints)
        return;
    printf(all[0] ? "\nProblems:\n" : "\nNo problems found.\n");
    while ((line = strsep(&all, "\n")) && *line)
        printf("  - %s\n", line);
}

int doctor_run(struct world **world, struct mem *mem, struct error *err)
{
    struct doctor d = {.mem = mem, .launch = launch_read()};
    struct error start = {0};
    struct utsname system = {0};
    char *all = NULL;
    d.prints = d.launch.task == 0;
    uname(&system);
    if (launch_check_memory(&d.launch, system.nodename, err)) /* hwloc would crash after MPI */
        return -1;
    if (system.nodename[0])
        doctor_fact(&d, "trireme", "%s on %s, %s %s", PACKAGE_VERSION, system.nodename,
                    system.sysname, system.release);
    if (d.prints)
        check_slurm(&d);
    if (!world_start(world, mem, &start))
        d.world = *world;
    if (d.world) {
        d.prints = world_rank(d.world) == 0;
        world_watch(d.world, HANG_S);
    }
    check_mpi(&d, &start);
    doctor_fact(&d, "HDF5", "%s", h5_version());
    check_processor(&d);
    check_memory(&d);
    check_limits(&d);
    doctor_check_gpus(&d);
    if ((d.world && doctor_measure(&d, err)) || collect(&d, &all, err))
        return -1;
    list(&d, all);
    free(all);
    return d.fatal ? (err->code = EXIT_USAGE, -1) : 0;
}
