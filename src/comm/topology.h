/* topology.h - the cores of this node and which of them this process may use. */
#ifndef TRIREME_COMM_TOPOLOGY_H
#define TRIREME_COMM_TOPOLOGY_H

#include <sched.h>

/* Returns how many of the sets all[count], each the cores that a rank is bound to, have a core in
 * common with mine. */
int topology_count_sharers(const cpu_set_t *mine, const cpu_set_t *all, int count);

/* Returns the cores that this rank may use, one of `local_size` ranks of the node, of which
 * `sharers` (itself included) are bound to cores of this process: its cores divided by the sharers,
 * but not more than the control group's quota divided by all ranks; at least 1.  Cheap: reads a few
 * files. */
int topology_cores_for(int sharers, int local_size);

/* Returns the cores that this process is bound to, but not more than the control group's quota; at
 * least 1. */
int topology_own_cores(void);

/* Returns the cores that this process's parent, such as a launcher, is bound to; 0: not known. */
int topology_parent_cores(void);

struct topology {
    int packages, numa_nodes, cores, units; /* of the node; a unit is a hardware thread */
    int own_cores, own_units;               /* that this process is bound to */
    double quota;      /* cores whose time the control group allows, 0: no limit */
    char binding[128]; /* the units, as a list "0-3,8" */
};

/* Fill all members; without hwloc packages and numa_nodes are 0, and cores is an estimate. */
void topology_read(struct topology *topology);

/* Bind all threads of this process to the cores near a PCI device ("0000:17:00.0"), where the
 * launcher left it all cores of the node and hwloc knows which are near. */
void topology_bind_near(const char *pci_bus);

#endif
