/* metrics.c - for each finished step: warnings, its line of metrics.jsonl (line_file.h: whole
 * lines, kept in memory while the disk is full), and where it is due the progress line.  What costs
 * time to know, as the GPU's clocks, is asked only when a progress line is due. */
#include "train/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "device/self_check.h"
#include "device/shape_check.h"
#include "segment/units_frozen.h"
#include "simulate/machine_file.h"
#include "train/metrics_resume.h"

enum { REFRESH_NS = 100000000 }; /* between two writes of the live line */

/* The peak operations per second of a run's GPUs; 0, not known, where ranks share them. */
static double peak_flops(const struct session *s)
{
    struct machine machine;
    if (s->config.comm.share_gpu || machine_of_gpu(&machine, s->device->name))
        return 0;
    double peak = world_size(s->world) * machine_peak(&machine, s->layout.dtype);
    machine_free(&machine);
    return peak;
}

int metrics_open(struct metrics *m, const struct session *s, const char *path, int64_t step,
                 struct error *err)
{
    *m = (struct metrics){
        .s = s,
        .peak_flops = peak_flops(s),
        .step_tokens = (double)layout_step_tokens(&s->layout, &s->config),
        .flops = units_flops_per_token(s->units, s->config.data.seq_len),
        .live = progress_is_live(),
        .first = step + 1,
        .speed = {.window = s->config.run.log_every},
    };
    if (metrics_resume(path, step, s->log, err))
        return -1;
    return line_file_open(&m->file, path, err);
}

void metrics_close(struct metrics *m)
{
    int64_t missing = line_file_close(&m->file);
    if (missing)
        log_warn(m->s->log, "%lld lines of metrics.jsonl could not be written and are lost",
                 (long long)missing);
}

/* Is a progress line due after this step? */
static int line_due(const struct metrics *m, int64_t step)
{
    return step == m->first || step == m->s->config.train.steps ||
           step % m->s->config.run.log_every == 0;
}

int metrics_want_breakdown(const struct metrics *m, int64_t step)
{
    return m->file.is_open && (!m->s->device->asynchronous || line_due(m, step));
}

/* Note the GPU's bytes in use.  Called only when a line is due, because the driver takes a while to
 * answer. */
static void sample_gpu(struct metrics *m)
{
    size_t total, left;
    if (m->s->device->kind != DEVICE_CUDA || device_memory(m->s->device, &total, &left, NULL))
        return;
    if (total - left > m->gpu_peak_bytes)
        m->gpu_peak_bytes = total - left;
}

/* Add a number rounded to a multiple of 1/digits: more digits would not be more exact. */
static void add_rounded(struct js *js, const char *key, double value, double digits)
{
    js_add_real(js, key, round(value * digits) / digits);
}

/* The operations per second of steps that take step_ms each.  Masked tokens are computed, too. */
static double flops_per_s(const struct metrics *m, double step_ms, double flops_per_token)
{
    return step_ms > 0 ? m->step_tokens * flops_per_token / step_ms * 1000 : 0;
}

/* The share of the GPUs' peak that steps of step_ms use; 0: the peak is unknown. */
static double mfu(const struct metrics *m, double step_ms, double flops_per_token)
{
    return m->peak_flops > 0 ? flops_per_s(m, step_ms, flops_per_token) / m->peak_flops : 0;
}

static void add_speed(struct js *js, const struct metrics *m, const struct metrics_step *step)
{
    double ms = step->step_ms, tokens_per_s = ms > 0 ? step->output.targets / ms * 1000 : 0;
    add_rounded(js, "tokens_per_s", tokens_per_s, 10);
    add_rounded(js, "step_ms", ms, 1000);
    add_rounded(js, "gflops_per_s", flops_per_s(m, ms, m->flops.causal) / 1e9, 100);
    add_rounded(js, "gflops_per_s_full_attention", flops_per_s(m, ms, m->flops.full) / 1e9, 100);
    if (m->peak_flops <= 0)
        return;
    add_rounded(js, "mfu", mfu(m, ms, m->flops.causal), 1e4);
    add_rounded(js, "mfu_full_attention", mfu(m, ms, m->flops.full), 1e4);
}

static void add_breakdown(struct js *js, const struct metrics *m, const struct breakdown *b)
{
    const struct config_offload *offload = &m->s->config.offload;
    if (!b)
        return;
    add_rounded(js, "data_ms", b->ms[BREAKDOWN_DATA], 1000);
    add_rounded(js, "forward_ms", b->ms[BREAKDOWN_FORWARD], 1000);
    add_rounded(js, "backward_ms", b->ms[BREAKDOWN_BACKWARD], 1000);
    add_rounded(js, "update_ms", b->ms[BREAKDOWN_UPDATE], 1000);
    add_rounded(js, "comm_exposed_ms", b->ms[BREAKDOWN_COMM], 1000);
    if (offload->optimizer || offload->params || offload->gradients)
        add_rounded(js, "offload_exposed_ms", b->ms[BREAKDOWN_OFFLOAD], 1000);
}

static void add_memory(struct js *js, const struct metrics *m)
{
    js_add_int(js, "mem_peak_bytes", (int64_t)mem_bytes(m->s->mem->peak_bytes));
    if (m->gpu_peak_bytes)
        js_add_int(js, "gpu_peak_bytes", (int64_t)m->gpu_peak_bytes);
    size_t resident = mem_resident_bytes();
    if (resident)
        js_add_int(js, "resident_bytes", (int64_t)(resident - world_mapped_bytes(m->s->world)));
    else
        js_add_null(js, "resident_bytes");
}

/* Add the epochs of each of several files that are mixed. */
static void add_files(struct js *js, const struct metrics_step *step)
{
    if (!step->data || !step->data->is_mixed || step->data->files < 2)
        return;
    struct js *files = js_array();
    for (int f = 0; f < step->data->files; f++)
        add_rounded(files, NULL, dataset_epochs(step->data, f, step->samples), 1e6);
    js_add(js, "file_epochs", files);
}

static void add_experts(struct js *js, const struct step_experts *load)
{
    if (load->routers == 0)
        return;
    add_rounded(js, "expert_load", load->mean, 1e6);
    add_rounded(js, "expert_load_most", load->most, 1e6);
    js_add_int(js, "experts_idle", load->idle);
}

static void add_evaluation(struct js *js, const struct metrics_step *step)
{
    js_add_real(js, "eval_loss", step->eval_loss);
    js_add_real(js, "eval_ppl", exp(step->eval_loss));
    js_add_int(js, "eval_tokens", (int64_t)step->eval_tokens);
}

/* What the first line of a process alone has. */
static void add_start(struct js *js, const struct session *s)
{
    char replaced[512];
    js_add_real(js, "since_exec_ms", round((double)clock_since_exec_ns() / 1e6));
    if (device_attention_name(s->device)[0])
        js_add_string(js, "attention", device_attention_name(s->device));
    if (s->device->replaced)
        js_add_string(js, "replaced",
                      self_check_replaced(s->device->replaced, replaced, sizeof replaced));
    if (!s->wrong_shape_count)
        return;
    struct js *shapes = js_array();
    for (int i = 0; i < s->wrong_shape_count; i++)
        js_add_string(shapes, NULL, s->wrong_shapes[i].name);
    js_add(js, "replaced_shapes", shapes);
}

/* Make the line of a step.  metrics_resume() relies on "step" being the first key. */
static struct js *make_line(const struct metrics *m, const struct metrics_step *step)
{
    char time[CLOCK_TIME_OF_DAY];
    struct js *js = js_object();
    js_add_int(js, "step", step->step);
    js_add_string(js, "time", clock_time_of_day(time));
    js_add_real(js, "loss", step->output.loss);
    js_add_real(js, "grad_norm", step->output.grad_norm);
    js_add_real(js, "lr", step->lr);
    add_experts(js, &step->output.experts);
    js_add_int(js, "tokens", (int64_t)step->output.targets);
    js_add_int(js, "tokens_total", (int64_t)step->tokens_total);
    add_rounded(js, "epoch", step->epoch, 1e6);
    add_files(js, step);
    if (step->epoch_s > 0)
        add_rounded(js, "epoch_s", step->epoch_s, 1e3);
    add_speed(js, m, step);
    add_breakdown(js, m, step->breakdown);
    add_memory(js, m);
    if (step->loss_scale > 0) {
        js_add_real(js, "loss_scale", step->loss_scale);
        js_add_int(js, "skipped_steps", step->skipped_steps);
    }
    if (step->output.skipped)
        js_add_bool(js, "skipped", 1);
    if (step->evaluated)
        add_evaluation(js, step);
    if (step->compared)
        js_add(js, "compared", step->compared);
    if (step->step == m->first)
        add_start(js, m->s);
    return js;
}

static void write_line(struct metrics *m, struct js *js)
{
    char *text = js_text(js, JS_ONE_LINE, NULL);
    js_free(js);
    switch (text ? line_file_append(&m->file, text) : LINE_FILE_KEPT) {
    case LINE_FILE_FAILED:
        log_warn(m->s->log,
                 "metrics.jsonl cannot be written (%s); its lines are kept in memory until it can, "
                 "training goes on",
                 strerror(m->file.why));
        break;
    case LINE_FILE_RESUMED: log_info(m->s->log, "metrics.jsonl is written again"); break;
    default: break;
    }
    free(text);
}

/* Show the progress line.  On a terminal it replaces itself, and stays when it reports an
 * evaluation or the end; else, and in the log, there is one every log_every steps. */
static void show_progress(struct metrics *m, const struct metrics_step *step, int due)
{
    char text[PROGRESS_TEXT];
    struct progress progress = {
        .last = step,
        .steps = m->s->config.train.steps,
        .tokens_per_s = speed_tokens_per_s(&m->speed),
        .step_ms = speed_ms(&m->speed),
        .mfu = mfu(m, speed_ms(&m->speed), m->flops.causal),
        .left_s = speed_left_s(&m->speed, m->s->config.train.steps - step->step),
    };
    int lasting = step->evaluated || step->step == m->s->config.train.steps;
    if (due)
        log_print(m->s->log, m->live && !lasting ? LOG_RECORD : LOG_INFO, "%s",
                  progress_text(&progress, 0, text));
    int64_t now_ns = clock_ns();
    if (!m->live || lasting || (!due && now_ns - m->shown_ns < REFRESH_NS))
        return;
    log_live(progress_text(&progress, progress_columns() - 1, text));
    m->shown_ns = now_ns;
}

/* Is the n-th of a kind, of which every step may have one, reported?  The first ten are, then the
 * 100th, the 1000th and so on. */
static int is_reported(int64_t n)
{
    if (n <= 10)
        return 1;
    while (n % 10 == 0)
        n /= 10;
    return n == 1;
}

static void warn_step(struct metrics *m, const struct metrics_step *step)
{
    struct log *log = m->s->log;
    if (step->output.skipped && step->loss_scale > 0)
        log_warn(log,
                 "step %lld: gradients overflow fp16 at a loss scale of %g; nothing was updated "
                 "(%lld steps so far)",
                 (long long)step->step, step->loss_scale, (long long)step->skipped_steps);
    else if (step->output.skipped)
        log_warn(log, "step %lld: the gradient is not finite; nothing was updated",
                 (long long)step->step);
    if (step->output.targets <= 0 && is_reported(++m->masked))
        log_warn(log,
                 "step %lld: no targets: all its tokens are masked (loss_mask of data.train); it "
                 "has no loss, and its gradient is zero (%lld step%s so far%s)",
                 (long long)step->step, (long long)m->masked, m->masked > 1 ? "s" : "",
                 m->masked == 10 ? "; further ones are reported at the 100th, the 1000th and so on"
                                 : "");
    if (step->evaluated && step->eval_tokens <= 0)
        log_warn(log, "step %lld: no targets in data.valid: there is no loss of it",
                 (long long)step->step);
}

void metrics_write(struct metrics *m, const struct metrics_step *step)
{
    if (!m->file.is_open)
        return;
    int due = step->evaluated || line_due(m, step->step);
    speed_add(&m->speed, step->step_ms, step->output.targets, clock_ns());
    if (due)
        sample_gpu(m);
    write_line(m, make_line(m, step));
    warn_step(m, step);
    if (due || m->live)
        show_progress(m, step, due);
}

void metrics_write_evaluation(struct metrics *m, const struct metrics_step *step)
{
    char time[CLOCK_TIME_OF_DAY];
    if (!m->file.is_open)
        return;
    struct js *js = js_object();
    js_add_int(js, "step", step->step);
    js_add_string(js, "time", clock_time_of_day(time));
    add_evaluation(js, step);
    write_line(m, js);
    log_info(m->s->log, "the evaluation of step %lld, which a stop had interrupted: valid %.4f",
             (long long)step->step, step->eval_loss);
}
