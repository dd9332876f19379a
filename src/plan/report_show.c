/* report_show.c - a report for people, report_print(), and for programs, report_json().
 *
 * For people: the model and its batches; the memory of each rank, once for neighbouring ranks that
 * are alike; the pipeline (report_pipeline.c); what pools hold; checkpoints; what was verified; the
 * forecast (report_time.c).  For programs: the same facts, of every rank that was measured.
 */
#include <stddef.h>
#include <string.h>

#include "base/nf4.h"
#include "base/round.h"
#include "base/text.h"
#include "plan/checkpoint_size.h"
#include "plan/report.h"
#include "plan/report_pipeline.h"
#include "plan/report_time.h"
#include "plan/show.h"

/* Are two ranks alike in all but their coordinates? */
static int alike(const struct report_rank *a, const struct report_rank *b)
{
    size_t from = offsetof(struct report_rank, need);
    return !memcmp((const char *)a + from, (const char *)b + from, sizeof *a - from);
}

static void print_bytes(const char *what, size_t bytes, FILE *out)
{
    char text[32];
    fprintf(out, "  %-16s %12s  %16zu bytes\n", what, show_bytes((double)bytes, text, sizeof text),
            bytes);
}

/* Is the pool of parameters empty, where it is, because each gather rounds the masters, so that no
 * 16-bit shards are kept? */
static int params_are_masters(const struct report *report)
{
    return report->layout.dtype != DTYPE_F32 && report->config.offload.params == OFFLOAD_NONE;
}

/* What a pool holds, as users read it; mem.h has it for the source. */
static const char *pool_meaning(const struct report *report, int pool, size_t bytes)
{
    static const char *const meanings[POOL_COUNT] = {
        [POOL_PARAMS] = "what a rank keeps of the parameters the model computes with",
        [POOL_GRADS] = "the sums of gradients a rank keeps: its shard, or all of them",
        [POOL_OPTIMIZER] = "the optimizer's moments, and fp32 masters of 16-bit parameters",
        [POOL_UNSHARDED] = "units gathered whole for their use, and gradients not yet reduced",
        [POOL_ACTIVATIONS] = "what forward keeps for backward, and what units hand to each other",
        [POOL_WORKSPACE] = "temporaries of the ops (logits, attention, products), and inputs",
        [POOL_COMM] = "buffers that transfers between ranks pass through",
        [POOL_HOST] = "offloaded state, the copy that checkpoints are written from, inputs, logits "
                      "to draw from, in the node's memory",
        [POOL_DISK] = "offloaded state in a file: no memory",
    };
    if (pool == POOL_UNSHARDED && report->nf4)
        return "units gathered whole, and what is made of 4 bits, for their use, and gradients not "
               "yet reduced";
    if (pool == POOL_ACTIVATIONS && layout_grads_pass(&report->layout))
        return "what forward keeps for backward, what units hand to each other, and gradients, "
               "which backward makes while it frees what forward kept";
    if (pool != POOL_PARAMS || bytes)
        return meanings[pool];
    return params_are_masters(report)
               ? "none: each gather rounds a rank's fp32 masters, which count as optimizer, and "
                 "what it makes is unsharded"
               : "none here: they are offloaded, see host and disk";
}

/* Print the pools that any rank uses, and the memory beside them. */
static void print_legend(const struct report *report, FILE *out)
{
    enum { INDENT = 19 };
    fprintf(out, "\nwhat these are\n");
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        size_t most = 0;
        for (int r = 0; r < report->measured; r++)
            most = max_bytes(most, report->rank[r].need.pool_bytes[pool]);
        if (!most && pool != POOL_PARAMS)
            continue;
        fprintf(out, "  %-16s ", mem_pool_name(pool));
        show_wrapped(out, INDENT, INDENT, pool_meaning(report, pool, most));
    }
    if (report->on_gpu)
        fprintf(out,
                "  %-16s CUDA's context, kernels and libraries, estimated\n"
                "  %-16s all but host, with the reserve\n",
                "reserve", "device memory");
    /* As measured beside the predictions of doc/performance.md, "Loading a model". */
    fprintf(out,
            "  %-16s program, libraries and MPI take 28 to 43 MiB of the node besides%s,\n"
            "  %-16s 0.1 MiB more for each layer, and 1.5 KB for each instruction of a step\n",
            "each process", report->on_gpu ? ", CUDA more" : "", "");
}

/* Print the bytes that offloaded state moves in a step. */
static void print_moved(const int64_t moved_bytes[STREAMS], FILE *out)
{
    static const char *const ways[STREAMS] = {
        [STREAM_FETCH] = "fetched from the host",
        [STREAM_SPILL] = "spilled to the host",
        [STREAM_READ] = "read from disk",
        [STREAM_WRITE] = "written to disk",
    };
    char line[256] = "offloaded state of a step:", bytes[32];
    size_t empty = strlen(line);
    for (int s = 0; s < STREAMS; s++)
        if (ways[s] && moved_bytes[s])
            text_append(line, sizeof line, "%s %s %s", line[empty] ? "," : "",
                        show_bytes((double)moved_bytes[s], bytes, sizeof bytes), ways[s]);
    if (!line[empty])
        return;
    fputs("  ", out);
    show_wrapped(out, 2, 4, line);
}

/* Print ranks first to last, which are alike. */
static void print_rank(const struct report *report, int first, int last, FILE *out)
{
    const struct report_rank *r = &report->rank[first];
    char text[32];
    if (first == last)
        fprintf(out, "\nrank %d\n", first);
    else
        fprintf(out, "\nranks %d to %d, each\n", first, last);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        if (r->need.pool_bytes[pool] || pool == POOL_PARAMS)
            print_bytes(mem_pool_name(pool), r->need.pool_bytes[pool], out);
    print_bytes("total", r->need.total_bytes, out);
    if (report->on_gpu) {
        print_bytes("reserve", report->rank[0].need.reserve_bytes, out);
        print_bytes("device memory", r->need.device_bytes, out);
    }
    fprintf(out, "  %d instructions, %d transfers, %s sent a step\n", r->instrs, r->transfers,
            show_bytes((double)r->sent_bytes, text, sizeof text));
    print_moved(r->moved_bytes, out);
}

/* Print whether what the ranks need at most fits on `what`, which has `limit` bytes; lack: how many
 * bytes more it would have to have. */
static void print_verdict(const char *what, size_t limit, size_t most, size_t lack, FILE *out)
{
    char text[32], rest[32];
    show_bytes((double)limit, text, sizeof text);
    show_bytes((double)(lack ? lack : limit - most), rest, sizeof rest);
    if (lack)
        fprintf(out, "does not fit on %s (%s): short by %s\n", what, text, rest);
    else
        fprintf(out, "fits on %s (%s): %s left\n", what, text, rest);
}

void report_verdicts(const struct report *report, FILE *out)
{
    struct memory_limits lack = report_lack(report, &report->limits);
    struct memory_limits most = report_most(report);
    struct error taken = {0};
    char text[32];
    if (report->limits.device_bytes)
        print_verdict(report->machine, report->limits.device_bytes, most.device_bytes,
                      lack.device_bytes, out);
    if (report->attention_bytes)
        fprintf(out,
                "  of which training gives %s to attention's backward (train.attention_bytes)\n",
                show_bytes((double)report->attention_bytes, text, sizeof text));
    if (report_check_node(report, &taken))
        show_wrapped(out, fprintf(out, "does not fit: "), 2, taken.text);
    else if (report->limits.host_bytes)
        print_verdict("a rank's share of the node, without its process", report->limits.host_bytes,
                      most.host_bytes, lack.host_bytes, out);
}

static void print_head(const struct report *report, FILE *out)
{
    const int *degree = report->layout.shape.degree;
    char precision[CONFIG_TEXT];
    fprintf(out, "%s: %lld parameters, %s%s, sequences of %lld tokens, on %s\n",
            report->config.model.preset[0] ? report->config.model.preset : "model",
            (long long)report->params, config_value(&report->config, "precision", precision),
            report->fp8_note, (long long)report->config.data.seq_len,
            report->on_gpu ? "one GPU a rank" : "CPUs");
    const struct config_experts *experts = &report->config.model.experts;
    if (experts->count)
        fprintf(out, "a token goes through %lld of them: %lld of %lld experts in each block\n",
                (long long)report->params_per_token, (long long)experts->per_token,
                (long long)experts->count);
    if (report->frozen)
        fprintf(out, "%lld of them are frozen: no gradients, no masters, no optimizer state\n",
                (long long)report->frozen);
    if (report->nf4)
        fprintf(out, "%lld of these are kept in 4 bits (nf4), %.2f bits each with their scales\n",
                (long long)report->nf4, 8.0 * NF4_BYTES / NF4_BLOCK);
    fprintf(out, "%d rank%s", report->ranks, report->ranks == 1 ? "" : "s");
    if (report->nodes > 1)
        fprintf(out, " on %d nodes", report->nodes);
    fputc(':', out);
    for (int axis = 0; axis < MESH_AXES; axis++)
        fprintf(out, "%s %s %d", axis ? " x" : "", mesh_axis_name(axis), degree[axis]);
    fprintf(out, "\n");
    if (degree[MESH_TENSOR] > 1)
        fprintf(out, "tensor ranks exchange rows in %d chunk%s%s\n", report->layout.row_chunks,
                report->layout.row_chunks > 1 ? "s, beside their products" : "",
                report->layout.tensor_fp32 ? ", and terms of sums in fp32" : "");
    fprintf(out, "global batch %lld = %d data ranks x %d micro-batches x %lld sequences%s\n",
            (long long)report->layout.global_batch, report->layout.data_ranks,
            report->layout.micros, (long long)report->layout.micro_batch,
            report->layout.data_ranks * report->layout.micros * report->layout.micro_batch >
                    report->layout.global_batch
                ? ", the rest masked"
                : "");
    fprintf(out, "%.3f TFLOP a step (6 per weight and token%s, causal attention)\n",
            report->flops / 1e12, report->config.lora.r ? ", 4 beside adapters" : "");
}

/* Ranks that are alike are printed once. */
static void print_ranks(const struct report *report, FILE *out)
{
    for (int first = 0, last; first < report->measured; first = last + 1) {
        for (last = first;
             last + 1 < report->measured && alike(&report->rank[first], &report->rank[last + 1]);)
            last++;
        print_rank(report, first, last, out);
    }
}

static void print_verification(const struct report *report, FILE *out)
{
    if (!report->verified) {
        fprintf(out, "\nNOT VERIFIED: %s\n", report->verdict.text);
        return;
    }
    fprintf(out,
            "\nverified: every gradient summed over each micro-batch and rank once, no race, "
            "no early reuse,\nevery transfer matched on all %d rank%s, no deadlock\n",
            report->compiled, report->compiled > 1 ? "s" : "");
    if (report->compiled < report->ranks)
        fprintf(out, "of %d; each of the others does what one of these does\n", report->ranks);
}

/* How many checkpoints of the run there may be on disk at once. */
static int64_t checkpoints_at_once(const struct report *report)
{
    int64_t steps = report->steps ? report->steps : INT64_MAX;
    return checkpoint_size_more_of_run(&report->config, 0, steps, 0);
}

static void print_checkpoints(const struct report *report, FILE *out)
{
    char one[32], all[32], text[256];
    double bytes = (double)report->checkpoint_bytes;
    int64_t count = checkpoints_at_once(report);
    if (!count)
        return;
    snprintf(text, sizeof text, "a checkpoint takes %s on disk, all ranks together",
             show_bytes(bytes, one, sizeof one));
    if (count > 1)
        text_append(text, sizeof text,
                    "; %lld may be there at once (checkpoint.keep=%lld, one being written, and "
                    "the best): %s",
                    (long long)count, (long long)report->config.checkpoint.keep,
                    show_bytes(bytes * (double)count, all, sizeof all));
    fputc('\n', out);
    show_wrapped(out, 0, 2, text);
}

void report_print(const struct report *report, FILE *out)
{
    print_head(report, out);
    print_ranks(report, out);
    report_pipeline_print(report, out);
    print_legend(report, out);
    print_checkpoints(report, out);
    print_verification(report, out);
    report_time_print(report, out);
}

void report_rank_json(const struct report *report, const struct report_rank *rank, struct js *to)
{
    struct js *pools = js_object();
    for (int pool = 0; pool < POOL_COUNT; pool++)
        js_add_int(pools, mem_pool_name(pool), (int64_t)rank->need.pool_bytes[pool]);
    js_add(to, "pool_bytes", pools);
    js_add_int(to, "total_bytes", (int64_t)rank->need.total_bytes);
    if (report->on_gpu)
        js_add_int(to, "device_bytes", (int64_t)rank->need.device_bytes);
    js_add_int(to, "instructions", rank->instrs);
    js_add_int(to, "transfers", rank->transfers);
    js_add_int(to, "sent_bytes_per_step", rank->sent_bytes);
    js_add_int(to, "sent_numbers_per_step", rank->sent_elems);
    js_add_int(to, "fetched_bytes_per_step", rank->moved_bytes[STREAM_FETCH]);
    js_add_int(to, "spilled_bytes_per_step", rank->moved_bytes[STREAM_SPILL]);
    js_add_int(to, "read_bytes_per_step", rank->moved_bytes[STREAM_READ]);
    js_add_int(to, "written_bytes_per_step", rank->moved_bytes[STREAM_WRITE]);
    js_add_real(to, "computed_flops_per_step", rank->flops);
}

static void judgement_json(const struct report *report, struct js *to)
{
    struct memory_limits lack = report_lack(report, &report->limits);
    if (report->limits.device_bytes) {
        js_add_string(to, "machine", report->machine);
        js_add_int(to, "machine_bytes", (int64_t)report->limits.device_bytes);
        js_add_int(to, "short_bytes", (int64_t)lack.device_bytes);
        js_add_int(to, "attention_bytes", (int64_t)report->attention_bytes);
    }
    if (report->limits.host_bytes) {
        js_add_int(to, "host_bytes", (int64_t)report->limits.host_bytes);
        js_add_int(to, "short_host_bytes", (int64_t)lack.host_bytes);
    }
}

struct js *report_json(const struct report *report)
{
    struct js *js = js_object(), *ranks = js_array();
    js_add_int(js, "parameters", report->params);
    js_add_int(js, "frozen", report->frozen);
    js_add_int(js, "nf4", report->nf4);
    js_add_int(js, "checkpoint_bytes", report->checkpoint_bytes);
    js_add_int(js, "checkpoints_at_once", checkpoints_at_once(report));
    js_add_int(js, "ranks", report->ranks);
    js_add_int(js, "nodes", report->nodes);
    js_add_int(js, "micro_batch", report->layout.micro_batch);
    js_add_int(js, "micro_batches", report->layout.micros);
    js_add_real(js, "flops_per_step", report->flops);
    js_add_int(js, "row_chunks", report->layout.row_chunks);
    js_add_string(js, "device", report->on_gpu ? "cuda" : "cpu");
    if (report->on_gpu)
        js_add_int(js, "reserve_bytes", (int64_t)report->rank[0].need.reserve_bytes);
    judgement_json(report, js);
    js_add_bool(js, "verified", report->verified);
    if (!report->verified)
        js_add_string(js, "verdict", report->verdict.text);
    for (int r = 0; r < report->measured; r++) {
        struct js *rank = js_object();
        report_rank_json(report, &report->rank[r], rank);
        js_add(ranks, NULL, rank);
    }
    js_add(js, "rank", ranks);
    report_pipeline_json(report, js);
    report_time_json(report, js);
    return js;
}
