/* app.c - what commands are handed; see command.h. */
#include "cli/command.h"
#include "comm/world.h"

int app_start_world(struct app *app, struct error *err)
{
    if (world_start(&app->world, &app->mem, err))
        return -1;
    app->log.rank = world_rank(app->world);
    return 0;
}
