/* topology.c - the cores of this node, and which of them this process may use; see topology.h.
 *
 * The launcher (mpirun, srun) decides to which cores a process is bound, and trireme keeps within
 * them.  It binds a process itself only where the launcher left it all cores of the node, and then
 * to the cores near its GPU.
 */
#include "comm/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/text.h"
#include "config/defines.h"
#ifdef HAVE_HWLOC
#include <hwloc.h>
#endif

/* Returns 1 if a hardware thread is the first one of its core that is in set. */
static int first_of_core(int unit, const cpu_set_t *set)
{
    char path[96], text[64];
    int first, last;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             unit);
    if (text_from_file(path, NULL, text, sizeof text))
        return 1;
    for (char *at = text; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        int got = sscanf(at, "%d-%d", &first, &last);
        if (got < 1)
            break;
        if (got == 1)
            last = first;
        for (; first <= last && first < unit; first++)
            if (CPU_ISSET(first, set))
                return 0;
    }
    return 1;
}

int topology_count_sharers(const cpu_set_t *mine, const cpu_set_t *all, int count)
{
    int sharers = 0;
    for (int r = 0; r < count; r++) {
        cpu_set_t both;
        CPU_AND(&both, mine, &all[r]);
        sharers += CPU_COUNT(&both) > 0;
    }
    return sharers;
}

/* Returns the number of cores that have a hardware thread in set. */
static int cores_in(const cpu_set_t *set)
{
    int cores = 0;
    for (int unit = 0; unit < CPU_SETSIZE; unit++)
        if (CPU_ISSET(unit, set))
            cores += first_of_core(unit, set);
    return cores;
}

/* Set *set to the hardware threads that this process is bound to. */
static void own_set(cpu_set_t *set)
{
    CPU_ZERO(set);
    if (sched_getaffinity(0, sizeof *set, set) || !CPU_COUNT(set))
        CPU_SET(0, set);
}

int topology_own_cores(void)
{
    return topology_cores_for(1, 1);
}

int topology_parent_cores(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(getppid(), sizeof set, &set) ? 0 : cores_in(&set);
}

int topology_cores_for(int sharers, int local_size)
{
    cpu_set_t set;
    double limit = cgroup_cores() / (local_size > 0 ? local_size : 1);
    own_set(&set);
    int cores = cores_in(&set) / (sharers > 0 ? sharers : 1);
    if (limit > 0 && cores > limit + 0.5)
        cores = (int)(limit + 0.5);
    return cores > 0 ? cores : 1;
}

/* Write the hardware threads of set into text, as "0-3,8". */
static void list_units(const cpu_set_t *set, char *text, size_t bytes)
{
    text[0] = 0;
    for (int unit = 0; unit < CPU_SETSIZE; unit++) {
        int last = unit;
        if (!CPU_ISSET(unit, set))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        text_join(text, bytes, ",", last > unit ? "%d-%d" : "%d", unit, last);
        unit = last;
    }
}

#ifdef HAVE_HWLOC
/* Set packages, numa_nodes, cores and units. */
static void read_machine(struct topology *t)
{
    hwloc_topology_t h;
    if (hwloc_topology_init(&h))
        return;
    hwloc_topology_set_flags(h, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    if (!hwloc_topology_load(h)) {
        t->packages = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_PACKAGE);
        t->numa_nodes = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_NUMANODE);
        t->cores = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_CORE);
        t->units = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_PU);
    }
    hwloc_topology_destroy(h);
}

/* Bind this process to the cores near a PCI device, unless all cores of the node are near it. */
static void bind_near(const char *pci_bus)
{
    hwloc_topology_t h;
    if (hwloc_topology_init(&h))
        return;
    /* PCI devices only: to describe more of a GPU, hwloc would start CUDA itself. */
    hwloc_topology_set_type_filter(h, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (!hwloc_topology_load(h)) {
        hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(h, pci_bus);
        hwloc_obj_t near = device ? hwloc_get_non_io_ancestor_obj(h, device) : NULL;
        if (near && near->cpuset &&
            !hwloc_bitmap_isincluded(hwloc_topology_get_topology_cpuset(h), near->cpuset))
            hwloc_set_cpubind(h, near->cpuset, HWLOC_CPUBIND_PROCESS);
    }
    hwloc_topology_destroy(h);
}
#else
static void read_machine(struct topology *t)
{
}

static void bind_near(const char *pci_bus)
{
}
#endif

void topology_bind_near(const char *pci_bus)
{
    cpu_set_t set;
    own_set(&set);
    if (CPU_COUNT(&set) >= sysconf(_SC_NPROCESSORS_ONLN))
        bind_near(pci_bus);
}

void topology_read(struct topology *t)
{
    cpu_set_t set;
    memset(t, 0, sizeof *t);
    own_set(&set);
    t->own_units = CPU_COUNT(&set);
    t->own_cores = cores_in(&set);
    t->quota = cgroup_cores();
    list_units(&set, t->binding, sizeof t->binding);
    read_machine(t);
    if (t->units < 1)
        t->units = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (t->cores < 1)
        t->cores = t->units * t->own_cores / t->own_units;
}
