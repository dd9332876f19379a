/* doctor.c - trireme doctor. */
#include "doctor/doctor.h"

#include "cli/arguments.h"
#include "cli/command.h"
#include "doctor/measure.h"

static int parse(struct measure_options *measure, int *gpu, int argc, char **argv,
                 struct error *err)
{
    *gpu = arguments_flag("--gpu", &argc, argv);
    measure->file = arguments_option("--measure", &argc, argv);
    measure->folder = arguments_option("--disk", &argc, argv);
    measure->quick = arguments_flag("--quick", &argc, argv);
    if (argc > 1)
        return error_set(err, "doctor takes --gpu or --measure FILE, not \"%s\"", argv[1]);
    if (*gpu && measure->file)
        return error_set(err, "doctor --gpu and --measure are two commands");
    if (!measure->file && (measure->folder || measure->quick))
        return error_set(err, "%s is for doctor --measure FILE",
                         measure->folder ? "--disk" : "--quick");
    return 0;
}

int command_doctor(struct app *app, int argc, char **argv, struct error *err)
{
    struct measure_options measure = {0};
    int gpu;
    if (parse(&measure, &gpu, argc, argv, err)) {
        app_start_world(app, NULL); /* so that one rank alone prints the error */
        return -1;
    }
    int rc = gpu            ? doctor_self_check(&app->world, &app->mem, err)
             : measure.file ? measure_run(&app->world, &app->mem, &measure, err)
                            : doctor_run(&app->world, &app->mem, err);
    if (app->world)
        app->log.rank = world_rank(app->world);
    return rc;
}
