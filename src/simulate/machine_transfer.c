/* machine_transfer.c - how long transfers take on a machine.
 *
 * A collective is a ring: of n ranks each sends (n-1)/n of the bytes to the next one, in n-1 steps.
 * A sum that all get is two of them, one that reduces and one that gathers; between nodes a tree
 * goes up and down in place of the ring's steps.  Within a node switches can add up and send the
 * sum to all: each rank's link has the bytes once, in two steps, at 3/4 of the speed of rings (of 8
 * H100, 275 GB/s where rings reach 370).
 *
 * A ring over several nodes has as many ranks of each beside each other, so that what each node
 * hands to the next passes its ports once.  A group's ranks drive the ports next to them: a group
 * of one rank per node has a rank's share of the ports, or a port where there are fewer ports than
 * ranks, and groups that send at the same time share all of them.
 */
#include <math.h>

#include "simulate/machine.h"
#include "simulate/machine_table.h"

/* The bytes per second of a group with so many ranks on a node, out of the node. */
static double network_rate(const struct machine *machine, int per_node, int sharing)
{
    double all = machine->network.bytes_per_s;
    double port = all / fmax(1, fmin(machine->network_ports, machine->per_node));
    return machine->network.efficiency * fmin(all / sharing, per_node * port);
}

static const double SWITCH_SPEED = 0.75; /* of a ring's */

/* Of the ring, or of the switches. */
static double within_s(const struct machine *machine, enum machine_transfer_kind kind, int ranks,
                       double bytes)
{
    const struct machine_link *link = &machine->node;
    double rate = link->bytes_per_s * link->efficiency;
    double ring = bytes * (ranks - 1) / ranks / rate + (ranks - 1) * link->latency_s;
    if (kind != MACHINE_ALL_REDUCE)
        return ring;
    double switches = bytes / (rate * SWITCH_SPEED) + 2 * link->latency_s;
    return machine->has_nvls ? fmin(switches, 2 * ring) : 2 * ring;
}

static double between_s(const struct machine *machine, enum machine_transfer_kind kind, int ranks,
                        int nodes, int sharing, double bytes)
{
    const struct machine_link *node = &machine->node, *network = &machine->network;
    int per_node = machine_ranks_per_node(ranks, nodes);
    double part = bytes * (ranks - 1) / ranks, steps = ranks - nodes, hops = nodes - 1;
    double out = kind == MACHINE_ALL_TO_ALL ? bytes * (ranks - per_node) / ranks * per_node : part;
    double slowest = fmax(per_node > 1 ? part / (node->bytes_per_s * node->efficiency) : 0,
                          out / network_rate(machine, per_node, sharing));
    if (kind != MACHINE_ALL_REDUCE)
        return slowest + steps * node->latency_s + hops * network->latency_s;
    return 2 *
           (slowest + (per_node - 1) * node->latency_s + ceil(log2(nodes)) * network->latency_s);
}

static double message_s(const struct machine *machine, int nodes, int sharing, double bytes)
{
    const struct machine_link *link = nodes > 1 ? &machine->network : &machine->node;
    double rate =
        nodes > 1 ? network_rate(machine, 1, sharing) : link->bytes_per_s * link->efficiency;
    return link->latency_s + bytes / rate;
}

static double formula_s(const struct machine *machine, enum machine_transfer_kind kind, int ranks,
                        int nodes, int sharing, double bytes)
{
    if (kind == MACHINE_MESSAGE || kind == MACHINE_MESSAGE_BUSY)
        return message_s(machine, nodes, sharing, bytes);
    return nodes > 1 ? between_s(machine, kind, ranks, nodes, sharing, bytes)
                     : within_s(machine, kind, ranks, bytes);
}

double machine_transfer_s(const struct machine *machine, enum machine_transfer_kind kind, int ranks,
                          int nodes, int sharing, double bytes)
{
    int of_ranks = ranks, of_nodes = nodes;
    if (ranks < 2)
        return 0;
    double formula = formula_s(machine, kind, ranks, nodes, sharing, bytes);
    double measured = machine_table_transfer(machine, kind, &of_ranks, &of_nodes, bytes);
    if (measured <= 0 && kind == MACHINE_MESSAGE_BUSY)
        return machine_transfer_s(machine, MACHINE_MESSAGE, ranks, nodes, sharing, bytes);
    if (measured <= 0)
        return formula;
    return measured * formula / formula_s(machine, kind, of_ranks, of_nodes, 1, bytes);
}
