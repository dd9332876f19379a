/* run_machine.c - see run_machine.h. */
#include "train/run_machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "program/layout.h"
#include "simulate/machine_fields.h"
#include "simulate/machine_file.h"

/* With run.machine=auto: find the machine by the name of its GPU.  It is known if its speed in the
 * run's precision is, and ranks do not share GPUs. */
static void find_by_gpu(struct run_machine *m, const struct config *config, const char *gpu)
{
    m->is_known = gpu && !config->comm.share_gpu && !machine_of_gpu(&m->machine, gpu) &&
                  !machine_check(&m->machine, 1, layout_product_dtype(config, 1), "", NULL);
}

/* Find the machine that run.machine names before its '@'. */
static int find_by_name(struct run_machine *m, const struct config *config, const char *gpu,
                        const char *name, struct error *err)
{
    if (!name[0] || !strcmp(name, "none") || !strcmp(name, "off"))
        return 0;
    if (!strcmp(name, "auto")) {
        find_by_gpu(m, config, gpu);
        return 0;
    }
    if (machine_open(&m->machine, name, err))
        return error_prefix(err, "run.machine");
    m->is_known = 1;
    return machine_check(&m->machine, gpu != NULL, layout_product_dtype(config, gpu != NULL),
                         "run.machine", err);
}

/* An '@' in the name of a file that is there begins no network. */
int run_machine_find(struct run_machine *m, const struct config *config, const char *gpu,
                     struct error *err)
{
    const char *asked = config->run.machine, *at = strrchr(asked, '@');
    char name[CONFIG_TEXT];
    *m = (struct run_machine){.network = ""};
    if (at && !access(asked, F_OK))
        at = NULL;
    snprintf(name, sizeof name, "%.*s", at ? (int)(at - asked) : CONFIG_TEXT - 1, asked);
    if (find_by_name(m, config, gpu, name, err))
        return -1;
    if (!at)
        return 0;
    m->network = at + 1;
    if (!m->is_known)
        return error_set(err, "run.machine %.80s: the network of which machine?  Name it before @",
                         asked);
    return machine_set_network(&m->machine, m->network, err) ? error_prefix(err, "run.machine") : 0;
}

void run_machine_free(struct run_machine *m)
{
    machine_free(&m->machine);
}
