/* test_any_schedule.c - pipeline schedules by chance, as files: what the judge of any_schedule.h
 * finds right is planned, verified and run to the end, with the losses and gradient norms of one
 * rank, and memory and bytes sent as planned; what it finds wrong is refused.
 *
 * Half of the cases are changed schedules.  On SCHEDULES_DEVICE, SCHEDULES_CASES of them;
 * SCHEDULES=N in the environment tries N a number of ranks, FROM=N begins with another one.  A case
 * that does not end is named after a minute. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/philox.h"
#include "io/disk.h"
#include "plan/report.h"
#include "program/schedule.h"
#include "tests/mpi/check.h"
#include "tests/unit/any_schedule.h"
#include "tests/unit/rig.h"

enum { STEPS = 2, MODELS = 3, MOST_SECONDS = 60 };

/* Of losses and norms: fp32 sums in another order. */
static const double tolerance = 1e-6;

/* Units: embedding, six layers, head. */
static const char *const models[MODELS] = {"model.family=llama", "model.tie_embeddings=true",
                                           "model.family=gpt2 model.tie_embeddings=false"};
static const char *const recomputes[] = {"none", "none", "selective", "full"};

struct numbers {
    int known;
    double loss[STEPS], norm[STEPS];
};

struct test {
    struct checks c;
    char dir[64], path[96];
    struct mem idle;
    struct numbers one[MODELS][ANY_MICROS]; /* of one rank */
    double worst_loss, worst_norm;
    int ran, refused, changed; /* changed: that ran */
};

/* For on_alarm() only, which gets no argument. */
static char current[64];

static void on_alarm(int signal)
{
    ssize_t written = write(STDERR_FILENO, current, strlen(current));
    _exit(written > 0 && signal ? 2 : 3);
}

static void settings_of(char text[ANY_TEXT], int model, int micros, const char *more)
{
    snprintf(text, ANY_TEXT,
             "model.layers=6 model.hidden=12 model.heads=2 model.ffn=20 model.vocab=23 "
             "data.seq_len=7 run.threads=1 train.lr=3e-3 train.schedule=constant train.eps=1e-6 "
             "train.micro_batch=1 train.global_batch=%d seed=5 %s %s",
             micros, models[model], more);
}

/* A sequence of its own for each micro-batch and step. */
static int load(void *user, const struct step_batch *batch, struct error *err)
{
    const struct step_input *input = user;
    int64_t first = (input->step * ANY_MICROS + batch->micro) * 100;
    for (int i = 0; i < 7; i++) {
        if (batch->tokens[0])
            batch->tokens[0][i] = (int32_t)(philox_u64(3, (uint64_t)(first + i)) % 23);
        if (batch->targets)
            batch->targets[i] = (int32_t)(philox_u64(3, (uint64_t)(first + i + 1)) % 23);
    }
    return 0;
}

static void steps(struct test *t, struct session *s, struct numbers *numbers)
{
    struct error err = {0};
    rig_init(s);
    for (int step = 0; step < STEPS; step++) {
        struct step_input input = rig_input(s, step + 1);
        struct step_output output = {0};
        input.load = load;
        input.user = &input;
        CHECK(&t->c, !executor_run_step(s->executor, s->train, &input, &output, NULL, &err));
        numbers->loss[step] = output.loss;
        numbers->norm[step] = output.grad_norm;
    }
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
}

static const struct numbers *of_one_rank(struct test *t, int model, int micros)
{
    struct numbers *numbers = &t->one[model][micros - 1];
    if (numbers->known)
        return numbers;
    if (!world_rank(t->c.world)) {
        struct mem mem = {0};
        char text[ANY_TEXT];
        settings_of(text, model, micros, "device=cpu");
        struct config config = rig_config(text);
        struct session *s = rig_open(&mem, &config, NULL, 0);
        steps(t, s, numbers);
        session_close(s);
        CHECK(&t->c, numbers->loss[0] > 2 && numbers->norm[0] > 0);
        CHECK(&t->c, numbers->loss[1] != numbers->loss[0]);
    }
    numbers->known = 1;
    world_broadcast(t->c.world, numbers, sizeof *numbers, 0);
    return numbers;
}

static double off(double number, double wanted, double *worst)
{
    double distance = fabs(number / wanted - 1);
    *worst = distance <= *worst ? *worst : distance; /* NaN stays */
    return distance;
}

static void compare(struct test *t, const struct numbers *numbers, const struct numbers *one)
{
    for (int i = 0; i < STEPS; i++) {
        CHECK(&t->c, off(numbers->loss[i], one->loss[i], &t->worst_loss) <= tolerance);
        CHECK(&t->c, off(numbers->norm[i], one->norm[i], &t->worst_norm) <= tolerance);
    }
}

static void check_memory(struct test *t, const struct report *report)
{
    const struct report_rank *plan = &report->rank[world_rank(t->c.world)];
    for (int pool = 0; pool < POOL_COUNT; pool++)
        CHECK(&t->c,
              t->c.mem.now_bytes[pool] - t->idle.now_bytes[pool] == plan->need.pool_bytes[pool]);
}

static void run(struct test *t, const struct config *config, const struct numbers *one)
{
    struct error err = {0};
    struct report report = {0};
    struct session *s = NULL;
    struct numbers numbers = {0};
    struct log log = {.level = LOG_ERROR, .rank = world_rank(t->c.world)};
    struct report_request request = {
        .config = config, .ranks = world_size(t->c.world), .nodes = 1, .threads = 1};
    int made = !report_make(&report, &request, &err);
    CHECK(&t->c, made);
    CHECK(&t->c, made && report.verified);
    if (made && !report.verified)
        err = report.verdict;
    else if (made)
        CHECK(&t->c,
              !session_open(&s, t->c.world, &log, &t->c.mem, config, SESSION_TRAIN, NULL, &err));
    if (s) {
        check_memory(t, &report);
        steps(t, s, &numbers);
        compare(t, &numbers, one);
        CHECK(&t->c,
              executor_sent_bytes(s->executor) == report.rank[world_rank(t->c.world)].sent_bytes);
    }
    session_close(s);
    if (made)
        report_free(&report);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        CHECK(&t->c, t->c.mem.now_bytes[pool] == t->idle.now_bytes[pool]);
    if (err.text[0])
        fprintf(stderr, "rank %d: %s\n", world_rank(t->c.world), err.text);
}

/* By what makes the layout, with one line that names the file. */
static void check_refused(struct test *t, const struct config *config)
{
    struct layout layout;
    struct error err = {0};
    int ranks = world_size(t->c.world), rc;
    rc = layout_resolve(&layout, config, ranks, ranks, DEVICE_CPU, &err);
    CHECK(&t->c, rc);
    CHECK(&t->c, !rc || (strstr(err.text, t->path) && !strchr(err.text, '\n')));
    if (!rc)
        layout_release(&layout);
}

/* The schedule of a case that failed. */
static void print_file(const struct test *t)
{
    FILE *file = fopen(t->path, "r");
    for (int c; file && (c = getc(file)) != EOF;)
        putc(c, stderr);
    if (file)
        fclose(file);
}

static void try(struct test *t, int number)
{
    struct any any = any_case("any schedule run", number);
    struct any_schedule drawn;
    char text[ANY_TEXT], more[ANY_TEXT / 2];
    const char *change = NULL;
    int failed = t->c.failed, ranks = world_size(t->c.world);
    any_schedule(&any, ranks, &drawn);
    int model = any_pick(&any, MODELS);
    snprintf(more, sizeof more, SCHEDULES_DEVICE " parallel.pipeline=%d recompute=%s", ranks,
             recomputes[any_pick(&any, 4)]);
    if (any_pick(&any, 2))
        change = any_schedule_change(&any, &drawn);
    int is_right = schedule_judge(&drawn);
    settings_of(text, model, drawn.micros, more);
    struct config config = rig_config(text);
    memcpy(config.parallel.schedule, t->path, sizeof t->path);
    if (!world_rank(t->c.world))
        CHECK(&t->c, !any_schedule_write(&any, &drawn, t->path));
    world_barrier(t->c.world);
    if (is_right)
        run(t, &config, of_one_rank(t, model, drawn.micros));
    else
        check_refused(t, &config);
    if (t->c.failed > failed) {
        fprintf(stderr, "rank %d of %d, case %d, change: %s: the judge finds it %s\n",
                world_rank(t->c.world), ranks, number, change ? change : "none",
                is_right ? "right" : "wrong");
        print_file(t);
    }
    world_barrier(t->c.world);
    t->ran += is_right;
    t->changed += is_right && change;
    t->refused += !is_right;
}

static int number_of(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* A directory of rank 0's, for the file. */
static void open_directory(struct test *t)
{
    strcpy(t->dir, "/tmp/trireme-schedules-XXXXXX");
    if (!world_rank(t->c.world))
        CHECK(&t->c, mkdtemp(t->dir) != NULL);
    world_broadcast(t->c.world, t->dir, sizeof t->dir, 0);
    snprintf(t->path, sizeof t->path, "%s/case.csv", t->dir);
}

int main(void)
{
    struct test t = {0};
    if (checks_start(&t.c))
        return 1;
    open_directory(&t);
    t.idle = t.c.mem;
    signal(SIGALRM, on_alarm);
    int from = number_of("FROM", 100000 * world_size(t.c.world));
    int cases = number_of("SCHEDULES", SCHEDULES_CASES);
    for (int i = from; i < from + cases; i++) {
        snprintf(current, sizeof current, "case %d does not end\n", i);
        alarm(MOST_SECONDS);
        try(&t, i);
    }
    alarm(0);
    world_barrier(t.c.world);
    if (!world_rank(t.c.world)) {
        printf(
            "# %d ranks: %d schedules by chance: %d run, of which %d changed, %d refused; losses "
            "within %.2g, norms within %.2g of one rank's\n",
            world_size(t.c.world), cases, t.ran, t.changed, t.refused, t.worst_loss, t.worst_norm);
        CHECK(&t.c, !disk_remove(t.dir, NULL));
    }
    return checks_finish(&t.c);
}
