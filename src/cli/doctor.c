/* doctor.c - trireme doctor. */
#include "doctor/doctor.h"

#include "cli/command.h"

int command_doctor(struct app *app, int argc, char **argv, struct error *err)
{
    if (argc > 1)
        return error_set(err, "doctor takes no arguments, not \"%s\"", argv[1]);
    int rc = doctor_run(&app->world, &app->mem, err);
    if (app->world)
        app->log.rank = world_rank(app->world);
    return rc;
}
