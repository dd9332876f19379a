/* network.c - see network.h.  MPI and NCCL do not report which network they use.  If a node has no
 * adapter of InfiniBand or RoCE, or the environment keeps NCCL from using it, they use TCP over one
 * of the interfaces that are up. */
#include "comm/network.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/text.h"

/* Write the names of the adapters of InfiniBand and RoCE into text; "" if there is none. */
static void list_adapters(char text[NETWORK_TEXT])
{
    DIR *dir = opendir("/sys/class/infiniband");
    struct dirent *entry;
    text[0] = 0;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            text_join(text, NETWORK_TEXT, ", ", "%s", entry->d_name);
    if (dir)
        closedir(dir);
}

/* Write the names of the interfaces that are up and have an IPv4 address into text. */
static void list_interfaces(char text[NETWORK_TEXT])
{
    struct ifaddrs *all = NULL;
    text[0] = 0;
    if (getifaddrs(&all))
        return;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && one->ifa_flags & IFF_UP &&
            !(one->ifa_flags & IFF_LOOPBACK))
            text_join(text, NETWORK_TEXT, ", ", "%s", one->ifa_name);
    freeifaddrs(all);
}

const char *network_text(const char *host, int by_nccl, char text[NETWORK_TEXT])
{
    char adapters[NETWORK_TEXT], interfaces[NETWORK_TEXT];
    const char *off = by_nccl ? getenv("NCCL_IB_DISABLE") : NULL;
    const char *chosen = by_nccl ? getenv("NCCL_SOCKET_IFNAME") : NULL;
    int is_off = off && strcmp(off, "0") != 0;
    list_adapters(adapters);
    list_interfaces(interfaces);
    text[0] = 0;
    if (adapters[0] && !is_off)
        return text_append(text, NETWORK_TEXT, "node %s has InfiniBand or RoCE (%s)%s", host,
                           adapters, by_nccl ? "; NCCL_DEBUG=INFO shows whether NCCL uses it" : "");
    text_append(text, NETWORK_TEXT, "likely TCP over %s",
                chosen          ? chosen
                : interfaces[0] ? interfaces
                                : "an interface that is not up");
    if (is_off)
        return text_append(text, NETWORK_TEXT, ", as NCCL_IB_DISABLE=%s", off);
    text_append(text, NETWORK_TEXT, ", as node %s has no InfiniBand", host);
    return by_nccl ? text_append(text, NETWORK_TEXT, " (NCCL_SOCKET_IFNAME%s)",
                                 chosen ? " chose it" : " chooses")
                   : text;
}
