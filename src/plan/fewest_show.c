/* fewest_show.c - the fewest ranks, for people and for programs. */
#include "plan/fewest.h"
#include "plan/show.h"

static void print_row(const struct fewest_row *row, int on_gpu, FILE *out)
{
    enum { INDENT = 4 };
    char device[32] = "", node[32], step[32], billion[32];
    if (!row->found) {
        fprintf(out, "%-16s more than %d ranks\n", row->kept, FEWEST_RANKS_MOST);
        return;
    }
    if (on_gpu)
        show_bytes((double)row->takes.device_bytes, device, sizeof device);
    show_bytes((double)row->takes.host_bytes * machine_ranks_per_node(row->ranks, row->nodes), node,
               sizeof node);
    fprintf(out, "%-16s %6d %6d %12s %12s %10s %10.0f %12s\n", row->kept, row->ranks, row->nodes,
            device, node, show_time(row->step_s, step), row->tokens_per_s,
            show_time(1e9 / row->tokens_per_s, billion));
    if (row->settings[0]) {
        fprintf(out, "%*s", INDENT, "");
        show_wrapped(out, INDENT, INDENT, row->settings);
    }
}

void fewest_print(const struct fewest *fewest, const struct fewest_request *request, FILE *out)
{
    const struct config *config = request->config;
    const struct machine *machine = request->machine;
    int on_gpu = machine->gpu[0] != 0;
    char memory[32], precision[CONFIG_TEXT];
    fprintf(out, "%s: %lld parameters, %s, sequences of %lld tokens, global batch %lld\n",
            config->model.preset[0] ? config->model.preset : "model", (long long)fewest->params,
            config_value(config, "precision", precision), (long long)config->data.seq_len,
            (long long)config->train.global_batch);
    fprintf(out, "the fewest ranks of %s that hold it: %s each, %d a node\n\n", machine->name,
            show_bytes((double)machine->memory_bytes, memory, sizeof memory), machine->per_node);
    fprintf(out, "%-16s %6s %6s %12s %12s %10s %10s %12s\n", "in host memory", "ranks", "nodes",
            on_gpu ? "of a GPU" : "", "of a node", "a step", "tokens/s", "10^9 tokens");
    for (int i = 0; i < fewest->rows; i++)
        print_row(&fewest->row[i], on_gpu, out);
    if (on_gpu && !request->node_bytes)
        fprintf(out, "\nthe nodes' memory was not limited: --node-memory GIB does\n");
}

struct js *fewest_json(const struct fewest *fewest)
{
    struct js *js = js_object(), *rows = js_array();
    js_add_int(js, "parameters", fewest->params);
    for (int i = 0; i < fewest->rows; i++) {
        const struct fewest_row *row = &fewest->row[i];
        struct js *one = js_object();
        js_add_string(one, "kept", row->kept);
        js_add_bool(one, "found", row->found);
        if (row->found) {
            js_add_int(one, "ranks", row->ranks);
            js_add_int(one, "nodes", row->nodes);
            js_add_string(one, "settings", row->settings);
            js_add_int(one, "device_bytes", (int64_t)row->takes.device_bytes);
            js_add_int(one, "host_bytes", (int64_t)row->takes.host_bytes);
            js_add_real(one, "step_ms", 1e3 * row->step_s);
            js_add_real(one, "tokens_per_s", row->tokens_per_s);
        }
        js_add(rows, NULL, one);
    }
    js_add(js, "row", rows);
    return js;
}
