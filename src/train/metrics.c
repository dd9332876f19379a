/* metrics.c - see metrics.h. */
#include "train/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "device/machine.h"

/* Copy the lines up to a step.  A line that a kill tore apart ends the file too. */
static int copy_until(FILE *from, FILE *to, int64_t step)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    while ((length = getline(&line, &size, from)) > 0) {
        struct js *js = js_parse(line, NULL);
        int64_t at = js ? js_get_int(js, "step", INT64_MAX) : INT64_MAX;
        js_free(js);
        if (at > step || line[length - 1] != '\n')
            break;
        fwrite(line, 1, (size_t)length, to);
    }
    free(line);
    return ferror(to);
}

static int keep_until(const char *path, int64_t step, struct error *err)
{
    FILE *from = fopen(path, "r");
    if (!from)
        return 0;
    char beside[CONFIG_TEXT + 64];
    snprintf(beside, sizeof beside, "%s.partial", path);
    FILE *to = fopen(beside, "w");
    int rc = to ? 0 : error_errno(err, "cannot create %s", beside);
    if (!rc && copy_until(from, to, step))
        rc = error_errno(err, "cannot write %s", beside);
    fclose(from);
    if (to && fclose(to) && !rc)
        rc = error_errno(err, "cannot write %s", beside);
    if (!rc && rename(beside, path))
        rc = error_errno(err, "cannot rename %s to %s", beside, path);
    return rc;
}

/* What the GPUs of a run could do; not known where ranks share them. */
static double peak_flops(const struct session *s)
{
    const struct machine *machine = machine_of_gpu(s->device->name);
    if (!machine || s->config.comm.share_gpu)
        return 0;
    return world_size(s->world) * machine_peak(machine, s->layout.dtype);
}

int metrics_open(struct metrics *m, const struct session *s, const char *path, int64_t step,
                 struct error *err)
{
    *m = (struct metrics){
        .log = s->log,
        .mem = s->mem,
        .device = s->device,
        .peak_flops = peak_flops(s),
        .flops = model_flops_per_token(s->model, s->config.data.seq_len),
        .ranks = world_size(s->world),
        .steps = s->config.train.steps,
        .log_every = s->config.run.log_every,
        .terminal = isatty(STDERR_FILENO),
        .first = step + 1,
        .begin_ns = clock_ns(),
    };
    if (keep_until(path, step, err))
        return -1;
    m->file = fopen(path, "a");
    return m->file ? 0 : error_errno(err, "cannot open %s", path);
}

void metrics_close(struct metrics *m)
{
    if (m->file)
        fclose(m->file);
    m->file = NULL;
}

static size_t peak_bytes(const struct mem *mem)
{
    return mem_bytes(mem->peak_bytes);
}

/* Asked only when a line is due: the question is not free. */
static void sample_gpu(struct metrics *m)
{
    size_t total, left;
    if (m->device->kind != DEVICE_CUDA || device_memory(m->device, &total, &left, NULL))
        return;
    if (total - left > m->gpu_peak_bytes)
        m->gpu_peak_bytes = total - left;
}

/* The share of what the GPUs could do that went into the model. */
static void add_share(struct js *js, const struct metrics *m, double rate)
{
    if (m->peak_flops <= 0)
        return;
    js_add_real(js, "mfu", round(rate * m->flops.causal / m->peak_flops * 1e4) / 1e4);
    js_add_real(js, "mfu_full_attention", round(rate * m->flops.full / m->peak_flops * 1e4) / 1e4);
}

static void write_json(struct metrics *m, const struct metrics_step *step, double rate)
{
    struct js *js = js_object();
    js_add_int(js, "step", step->step);
    js_add_real(js, "loss", step->loss);
    js_add_real(js, "grad_norm", step->grad_norm);
    js_add_real(js, "lr", step->lr);
    js_add_int(js, "tokens", (int64_t)step->tokens);
    js_add_real(js, "tokens_per_s", round(rate * 10) / 10);
    js_add_real(js, "step_ms", round(step->step_ms * 1000) / 1000);
    js_add_real(js, "gflops_per_s", round(rate * m->flops.causal / 1e7) / 100);
    js_add_real(js, "gflops_per_s_full_attention", round(rate * m->flops.full / 1e7) / 100);
    add_share(js, m, rate);
    js_add_int(js, "mem_peak_bytes", (int64_t)peak_bytes(m->mem));
    if (m->gpu_peak_bytes)
        js_add_int(js, "gpu_peak_bytes", (int64_t)m->gpu_peak_bytes);
    js_add_int(js, "resident_bytes", (int64_t)mem_resident_bytes());
    if (step->loss_scale > 0) {
        js_add_real(js, "loss_scale", step->loss_scale);
        js_add_int(js, "skipped_steps", step->skipped_steps);
    }
    if (step->skipped)
        js_add_bool(js, "skipped", 1);
    if (!isnan(step->valid_loss))
        js_add_real(js, "valid_loss", step->valid_loss);
    if (step->step == m->first)
        js_add_real(js, "since_exec_ms", round((double)clock_since_exec_ns() / 1e6));
    char *text = js_text(js, JS_ONE_LINE, NULL);
    if (text) {
        fputs(text, m->file);
        fflush(m->file);
    }
    free(text);
    js_free(js);
}

static const char *duration(double seconds, char *text, size_t size)
{
    long s = lround(seconds);
    if (s < 60)
        snprintf(text, size, "%lds", s);
    else if (s < 3600)
        snprintf(text, size, "%ldm%02lds", s / 60, s % 60);
    else
        snprintf(text, size, "%ldh%02ldm", s / 3600, s / 60 % 60);
    return text;
}

static void say(struct metrics *m, const struct metrics_step *step, double rate)
{
    char eta[32], line[256], valid[48] = "";
    double left = (double)(m->steps - step->step) * m->mean_ms / 1000;
    if (!isnan(step->valid_loss))
        snprintf(valid, sizeof valid, "  valid %.4f", step->valid_loss);
    snprintf(line, sizeof line,
             "step %lld/%lld  loss %.4f%s  grad %.3f  lr %.2e  %.0f tokens/s  %.1f ms  ETA %s",
             (long long)step->step, (long long)m->steps, step->loss, valid, step->grad_norm,
             step->lr, rate, step->step_ms, duration(left, eta, sizeof eta));
    int lasting = !isnan(step->valid_loss) || step->step == m->steps;
    if (!m->terminal)
        log_info(m->log, "%s", line);
    else if (lasting)
        fprintf(stderr, "\r%s\033[K\n", line);
    else
        fprintf(stderr, "\r%s\033[K", line);
}

static void warn_skipped(struct log *log, const struct metrics_step *step)
{
    if (step->loss_scale > 0)
        log_warn(log,
                 "step %lld: gradients overflow fp16 at a loss scale of %g; nothing was updated "
                 "(%lld steps so far)",
                 (long long)step->step, step->loss_scale, (long long)step->skipped_steps);
    else
        log_warn(log, "step %lld: the gradient is not finite; nothing was updated",
                 (long long)step->step);
}

void metrics_write(struct metrics *m, const struct metrics_step *step)
{
    if (!m->file)
        return;
    double rate = step->step_ms > 0 ? step->tokens / step->step_ms * 1000 : 0;
    int fresh = step->step <= m->first + 1; /* the first step also warms caches */
    m->mean_ms = fresh ? step->step_ms : 0.9 * m->mean_ms + 0.1 * step->step_ms;
    int due = m->terminal || step->step == m->first || step->step == m->steps ||
              step->step % m->log_every == 0 || !isnan(step->valid_loss);
    if (due)
        sample_gpu(m);
    write_json(m, step, rate);
    if (step->skipped)
        warn_skipped(m->log, step);
    if (due)
        say(m, step, rate);
}
