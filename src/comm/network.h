/* network.h - by what this node talks to other nodes, as far as the system says. */
#ifndef TRIREME_COMM_NETWORK_H
#define TRIREME_COMM_NETWORK_H

enum { NETWORK_TEXT = 240 };

/* "likely TCP over eth0, as node n1 has no InfiniBand": what is known, for a transfer between nodes
 * that is slow; host: this node's name; by_nccl: 1: NCCL moves it, 0: MPI.  Returns text. */
const char *network_text(const char *host, int by_nccl, char text[NETWORK_TEXT]);

#endif
