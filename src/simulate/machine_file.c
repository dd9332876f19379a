/* machine_file.c - see machine_file.h.  Machines that every build knows are src/simulate/
 * machines.yaml, which make puts into the program as a text (machine_text.h): they are read as
 * those of any file are. */
#include "simulate/machine_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/array.h"
#include "config/schema.h"
#include "simulate/machine_quantity.h"
#include "simulate/machine_reader.h"
#include "simulate/machine_text.h"

/* It cannot fail: a unit test reads the same text. */
static struct machine_list known_machines(struct error *err)
{
    struct machine_list list = {0};
    machine_list_read(&list, NULL, "machines.yaml", machine_text, strlen(machine_text), err);
    return list;
}

/* A machine of a list, out of it; the rest is freed. */
static void take(struct machine *machine, struct machine_list *list, struct machine *from)
{
    *machine = *from;
    *from = (struct machine){0};
    machine_list_free(list);
}

const char *machine_names(char *text, size_t size, const char *separator)
{
    struct machine_list list = known_machines(NULL);
    machine_list_names(&list, text, size, separator);
    machine_list_free(&list);
    return text;
}

/* The machine that was meant, or NULL: one whose name goes on after the whole of this one with '-'
 * ("a100": a100-80), or one that is nearly so spelt and begins with the same letter: v100 is not
 * h100. */
static const char *nearest_machine(const struct machine_list *list, const char *name)
{
    struct nearest nearest = {.wanted = name};
    size_t length = strlen(name);
    for (int i = 0; i < list->count; i++) {
        const char *known = list->machine[i].name;
        if (length && !strncasecmp(known, name, length) && known[length] == '-')
            return known;
    }
    for (int i = 0; i < list->count; i++)
        if (!strncasecmp(list->machine[i].name, name, 1))
            nearest_try(&nearest, list->machine[i].name, list->machine[i].name);
    return nearest.name;
}

/* Find a machine that is known.  Where it is not, err says that there is no `what` of this name. */
static int find(struct machine *machine, const char *name, const char *what, struct error *err)
{
    struct machine_list list = known_machines(err);
    struct machine *found = machine_list_find(&list, name);
    char known[512];
    if (found) {
        take(machine, &list, found);
        return 0;
    }
    const char *nearest = nearest_machine(&list, name);
    error_set(err, "there is no %s \"%.80s\"; %s%s%sknown are %s", what, name,
              nearest ? "did you mean " : "", nearest ? nearest : "", nearest ? "? " : "",
              machine_list_names(&list, known, sizeof known, ", "));
    machine_list_free(&list);
    return -1;
}

int machine_find(struct machine *machine, const char *name, struct error *err)
{
    return find(machine, name, "machine", err);
}

int machine_of_gpu(struct machine *machine, const char *gpu)
{
    struct machine_list list = known_machines(NULL);
    for (int i = 0; i < list.count; i++)
        if (list.machine[i].gpu[0] && !strcmp(list.machine[i].gpu, gpu)) {
            take(machine, &list, &list.machine[i]);
            return 0;
        }
    machine_list_free(&list);
    return -1;
}

/* The machine that is meant in a file's list. */
static struct machine *choose(const struct machine_list *list, const char *path, const char *name,
                              struct error *err)
{
    struct machine *found = name ? machine_list_find(list, name) : list->machine;
    char names[400];
    machine_list_names(list, names, sizeof names, ", ");
    if (name && !found)
        error_set(err, "%s: there is no machine \"%.80s\"; it has %s", path, name, names);
    if (!name && list->count > 1) {
        error_set(err, "%s has several machines (%s): name one as %s:%s", path, names, path,
                  found->name);
        found = NULL;
    }
    return found;
}

int machine_read(struct machine *machine, const char *path, const char *name, struct error *err)
{
    struct machine_list list = {0}, known = known_machines(NULL);
    struct machine *found = NULL;
    size_t bytes;
    char *text;
    if (!config_file_text(path, &text, &bytes, err) &&
        !machine_list_read(&list, &known, path, text, bytes, err))
        found = choose(&list, path, name, err);
    free(text);
    machine_list_free(&known);
    if (found)
        take(machine, &list, found);
    else
        machine_list_free(&list);
    return found ? 0 : -1;
}

/* A file may be called as a machine that is known, and have a ':' in its name. */
int machine_open(struct machine *machine, const char *text, struct error *err)
{
    const char *colon = strrchr(text, ':');
    if (!find(machine, text, "machine and no file", err))
        return 0;
    if (!access(text, F_OK))
        return machine_read(machine, text, NULL, err);
    if (!colon || colon == text)
        return -1;
    char *path = array_format("%.*s", (int)(colon - text), text);
    int rc = machine_read(machine, path, colon + 1, err);
    free(path);
    return rc;
}

int machine_set_network(struct machine *machine, const char *text, struct error *err)
{
    char *rate, with_unit[64];
    long ports = strtol(text, &rate, 10);
    double each;
    snprintf(with_unit, sizeof with_unit, "%s/s", *rate ? rate + 1 : "");
    if (rate == text || *rate != 'x' ||
        (machine_quantity_read(QUANTITY_BYTES_PER_S, rate + 1, &each) &&
         machine_quantity_read(QUANTITY_BYTES_PER_S, with_unit, &each)))
        return error_set(err, "\"%.60s\" is not ports and the rate of each, such as 8x400Gb", text);
    if (rate[1] && strspn(rate + 1, "0123456789.") == strlen(rate + 1))
        return error_set(err, "\"%.60s\" has no unit: %ldx%.40sGb, for gigabits a second", text,
                         ports, rate + 1);
    if (ports < 1 || ports > 1024 || !(each >= 1e3 && each <= 1e14))
        return error_set(err, "%.60s: 1 to 1024 ports of 8 kb to 800 Tb a second are taken", text);
    machine->network_ports = (int)ports;
    machine->network.bytes_per_s = (double)ports * each;
    return 0;
}
