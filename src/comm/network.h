/* network.h - which network this node probably uses to reach other nodes, for messages. */
#ifndef TRIREME_COMM_NETWORK_H
#define TRIREME_COMM_NETWORK_H

enum { NETWORK_TEXT = 240 };

/* Write what is known of the network into text, to explain a slow transfer between nodes: "likely
 * TCP over eth0, as node n1 has no InfiniBand".  host: this node's name; by_nccl 1: NCCL moves the
 * data, 0: MPI does.  Returns text. */
const char *network_text(const char *host, int by_nccl, char text[NETWORK_TEXT]);

#endif
