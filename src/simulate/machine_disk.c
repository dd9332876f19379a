/* machine_disk.c - how long offloaded state takes between memory and files.
 *
 * Linux keeps what was read and written in the memory that is left, and the disk is not waited for
 * until that is full.  For what is written it is waited for earlier: from half-way between
 * vm.dirty_background_ratio and vm.dirty_ratio on, 10 and 20 % of the free memory (disk_unwritten
 * is 0.15):
 *
 *     64 GiB of memory, of which ranks need 24:
 *       files of 5 GiB      read and written in the page cache
 *       files of 30 GiB     read there, written to the disk
 *       files of 50 GiB     read from the disk and written to it
 */
#include "simulate/machine.h"

static double node_memory(const struct machine *machine)
{
    if (machine->host_memory_bytes || machine->gpu[0])
        return (double)machine->host_memory_bytes;
    return (double)machine->memory_bytes * machine->per_node;
}

int machine_file_is_cached(const struct machine *machine, enum machine_file_way way,
                           const struct machine_files *files)
{
    double cached = way == MACHINE_FILE_READ ? machine->disk_cached_read_bytes_per_s
                                             : machine->disk_cached_write_bytes_per_s;
    double left = node_memory(machine) - files->memory_bytes;
    double most = way == MACHINE_FILE_READ ? left : left * machine->disk_unwritten;
    return cached > 0 && files->bytes <= most;
}

double machine_file_s(const struct machine *machine, enum machine_file_way way,
                      const struct machine_files *files, double bytes)
{
    int cached = machine_file_is_cached(machine, way, files);
    double of_node =
        way == MACHINE_FILE_READ
            ? (cached ? machine->disk_cached_read_bytes_per_s : machine->disk_read_bytes_per_s)
            : (cached ? machine->disk_cached_write_bytes_per_s : machine->disk_write_bytes_per_s);
    return of_node > 0 ? bytes * files->ranks / of_node : 0;
}
