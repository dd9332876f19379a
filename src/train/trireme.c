/* trireme.c - the functions of trireme.h: a trainer with all that it stands on. */
#include "trireme.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "config/defines.h"
#include "train/trainer.h"

struct trireme {
    struct log log;
    struct mem mem;
    struct world *world;
    struct session *session;
    struct trainer *trainer;
};

const char *trireme_version(void)
{
    return PACKAGE_VERSION;
}

/* Hand the outcome rc of a call, and err, to the user of trireme.h.  Returns 0, or -1 with error
 * (NULL allowed) set; its text is rank 0's alone. */
static int outcome(const struct trireme *run, int rc, const struct error *err,
                   struct trireme_error *error)
{
    if (rc && error) {
        error->code = err->code ? err->code : EXIT_USAGE;
        snprintf(error->text, sizeof error->text, "%s", world_rank(run->world) ? "" : err->text);
    }
    return rc ? -1 : 0;
}

static int begin(struct trireme *run, const struct config *config, struct error *err)
{
    return session_open(&run->session, run->world, &run->log, &run->mem, config, SESSION_TRAIN,
                        NULL, err) ||
                   trainer_open(&run->trainer, run->session, NULL, err)
               ? -1
               : 0;
}

int trireme_open(struct trireme **out, const char *file, const char *const *settings, int count,
                 struct trireme_error *error)
{
    struct trireme *run = array_make(1, sizeof *run);
    struct config config;
    struct error err = {0};
    run->log = (struct log){.level = LOG_INFO, .rank = -1};
    *out = NULL;
    int rc = world_start(&run->world, &run->mem, &err);
    run->log.rank = world_rank(run->world);
    if (!rc)
        rc = world_agree(run->world, config_load(&config, file, settings, count, &err), &err);
    rc = rc || begin(run, &config, &err);
    if (outcome(run, rc, &err, error)) {
        trireme_close(run);
        return -1;
    }
    *out = run;
    return 0;
}

int trireme_rank(const struct trireme *run)
{
    return world_rank(run->world);
}

int trireme_train(struct trireme *run, int64_t steps, struct trireme_progress *progress,
                  struct trireme_error *error)
{
    struct error err = {0};
    int rc = trainer_advance(run->trainer, steps, &err);
    struct run_position at = trainer_position(run->trainer);
    if (!rc && progress)
        *progress =
            (struct trireme_progress){.step = at.step, .tokens = at.tokens, .loss = at.loss};
    return outcome(run, rc, &err, error);
}

int trireme_save(struct trireme *run, struct trireme_error *error)
{
    struct error err = {0};
    int rc = trainer_save(run->trainer, &err) || trainer_export(run->trainer, &err);
    return outcome(run, rc, &err, error);
}

void trireme_close(struct trireme *run)
{
    if (!run)
        return;
    trainer_close(run->trainer);
    session_close(run->session);
    world_stop(run->world);
    log_close(&run->log);
    free(run);
}
