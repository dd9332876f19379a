/* test_config.c - properties of src/config: what is accepted, what is refused, and how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "config/config.h"
#include "config/schema.h"

static char path[64]; /* the file of the test that runs */

static int setup(void **state)
{
    strcpy(path, "/tmp/trireme-config-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || close(fd);
}

static int teardown(void **state)
{
    return unlink(path);
}

static void put(const char *text, size_t bytes)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
}

#define LOAD(config, file, ...) \
    load(config, file, (const char *const[]){__VA_ARGS__, NULL}, __FILE__, __LINE__)

static void load(struct config *config, const char *file, const char *const *overrides,
                 const char *source, int line)
{
    struct error err = {0};
    int count = 0;
    while (overrides[count])
        count++;
    if (config_load(config, file, overrides, count, &err)) {
        print_error("%s\n", err.text);
        _fail(source, line);
    }
}

/* A text in memory is refused as the file with it is. */
static void refused_from_memory(const char *text, const char *override, const char *said)
{
    struct config config;
    struct error err = {0};
    assert_int_equal(config_load_text(&config, path, text, &override, override != NULL, &err), -1);
    assert_string_equal(err.text, said);
}

/* The load of file (or none) and one override (or none) fails and says every one of words. */
static void refused(const char *text, const char *override, const char *const *words)
{
    struct config config;
    struct error err = {0};
    if (text)
        put(text, strlen(text));
    int rc = config_load(&config, text ? path : NULL, &override, override != NULL, &err);
    if (!rc)
        print_error("accepted: %s%s\n", text ? text : "", override ? override : "");
    assert_int_equal(rc, -1);
    assert_int_equal(err.code, EXIT_USAGE);
    assert_null(strchr(err.text, '\n'));
    for (; *words; words++) {
        if (!strstr(err.text, *words))
            print_error("\"%s\" is not in: %s\n", *words, err.text);
        assert_non_null(strstr(err.text, *words));
    }
    if (text)
        refused_from_memory(text, override, err.text);
}

#define REFUSED(text, override, ...) \
    refused(text, override, (const char *const[]){__VA_ARGS__, NULL})

static void defaults_are_complete(void **state)
{
    struct config c;
    LOAD(&c, NULL, "model.preset=llama-tiny", "data.train=f.h5");
    assert_string_equal(c.data.train, "f.h5");
    assert_int_equal(c.model.layers, 2);
    assert_int_equal(c.model.head_dim, 16);
    assert_int_equal(c.data.seq_len, 128);
    assert_int_equal(c.precision, PRECISION_FP32);
    assert_int_equal(c.parallel.strategy, STRATEGY_FULL_SHARD);
    assert_int_equal(c.parallel.backward_prefetch, PREFETCH_BACKWARD_PRE);
    assert_int_equal(c.parallel.replicate, 1);
    assert_int_equal(c.parallel.shard, 0);
    assert_int_equal(c.train.schedule, SCHEDULE_COSINE);
    assert_int_equal(c.train.decay_steps, 0);
    assert_true(c.train.beta2 == 0.95 && c.train.lr == 3e-4 && c.train.weight_decay == 0.1);
    assert_string_equal(c.checkpoint.resume, "auto");
    assert_int_equal(c.checkpoint.keep, 2);
    assert_string_equal(c.run.dir, "runs/default");
}

/* Every default is a legal value of its own row, written as it is printed. */
static void rows_are_sound(void **state)
{
    assert_true(key_count() <= 160);
    const struct key *key;
    for (int i = 0; (key = key_at(i)); i++) {
        struct config c = {0};
        struct error err = {0};
        char buffer[CONFIG_TEXT];
        assert_ptr_equal(key_find(key->name), key);
        assert_false(key_is_group(key->name));
        assert_int_equal(key_set(&c, key, key->initial, &err), 0);
        assert_string_equal(key_text(&c, key, buffer), key->initial);
        assert_true(strlen(key->help) > 10);
        assert_true(key->type != KEY_INT || key->bytes == sizeof(int64_t));
        assert_true(key->type != KEY_REAL || key->bytes == sizeof(double));
    }
}

static void preset_comes_first_overrides_last(void **state)
{
    struct config c;
    const char *text = "model:\n  hidden: 96\n  preset: LLAMA_TINY\ntrain: {steps: 7, lr: 1e-2}\n"
                       "data.train: 'a b'\nrun:\n";
    put(text, strlen(text));
    LOAD(&c, path, "train.steps=8", "train.steps=9");
    assert_string_equal(c.model.preset, "llama-tiny");
    assert_int_equal(c.model.hidden, 96);
    assert_int_equal(c.model.head_dim, 24);
    assert_int_equal(c.train.steps, 9);
    assert_true(c.train.lr == 0.01);
    assert_string_equal(c.data.train, "a b");
    LOAD(&c, NULL, "model.preset=llama-tiny", "data.train=a b.h5:0.5 , b.h5:0.5,  c.h5:1 ",
         "run.dir= a, b");
    assert_string_equal(c.data.train, "a b.h5:0.5,b.h5:0.5,c.h5:1");
    assert_string_equal(c.run.dir, " a, b");
    LOAD(&c, NULL, "model.preset=llama-tiny", "train.freeze=, embed ,,layers.0.* ,");
    assert_string_equal(c.train.freeze, ",embed,,layers.0.*,");
    LOAD(&c, path, "model.kv_heads=0", "model.heads=3", "model.preset=llama-10m",
         "model.hidden=96");
    assert_string_equal(c.model.preset, "llama-10m");
    assert_int_equal(c.model.hidden, 96);
    assert_int_equal(c.model.layers, 8);
    assert_int_equal(c.model.kv_heads, 3);
    /* Of a preset with as many as heads they stay as many. */
    LOAD(&c, NULL, "model.preset=gpt2", "model.heads=6");
    assert_int_equal(c.model.kv_heads, 6);
}

static void names_people_know_are_taken(void **state)
{
    static const struct {
        const char *text;
        int strategy;
    } rows[] = {
        {"no_shard", STRATEGY_NO_SHARD}, {"DDP", STRATEGY_NO_SHARD},
        {"stage0", STRATEGY_NO_SHARD},   {"Full_Shard", STRATEGY_FULL_SHARD},
        {"zero3", STRATEGY_FULL_SHARD},  {"STAGE3", STRATEGY_FULL_SHARD},
        {"zero1", STRATEGY_SHARD_OPTIM}, {"2", STRATEGY_SHARD_GRAD_OP},
        {"hsdp", STRATEGY_HYBRID_SHARD}, {"hybrid_shard_zero2", STRATEGY_HYBRID_SHARD_ZERO2},
    };
    struct error err = {0};
    struct config c = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(config_set(&c, "parallel.strategy", rows[i].text, &err), 0);
        assert_int_equal(c.parallel.strategy, rows[i].strategy);
    }
    assert_int_equal(config_set(&c, "precision", "BF16", &err), 0);
    assert_int_equal(c.precision, PRECISION_BF16);
    assert_int_equal(config_set(&c, "parallel.forward_prefetch", "No", &err), 0);
    assert_int_equal(c.parallel.forward_prefetch, 0);
    assert_int_equal(config_set(&c, "train.schedule", "WarmupDecayLR", &err), 0);
    assert_int_equal(c.train.schedule, SCHEDULE_LINEAR);
    assert_int_equal(config_set(&c, "train.schedule", "WSD", &err), 0);
    assert_int_equal(c.train.schedule, SCHEDULE_WSD);
    assert_int_equal(config_set(&c, "train.schedule", "warmup_stable_decay", &err), 0);
    assert_int_equal(c.train.schedule, SCHEDULE_WSD_COSINE);
    assert_int_equal(config_set(&c, "train.schedule", "wsd_minus_sqrt", &err), 0);
    assert_int_equal(c.train.schedule, SCHEDULE_WSD_SQRT);
    assert_int_equal(config_set(&c, "device", "GPU", &err), 0);
    assert_int_equal(c.device, CONFIG_DEVICE_CUDA);
    assert_int_equal(config_set(&c, "recompute", "Full", &err), 0);
    assert_int_equal(c.recompute, RECOMPUTE_FULL);
    assert_int_equal(config_set(&c, "comm.reduce_dtype", "bfloat16", &err), 0);
    assert_int_equal(c.comm.reduce_dtype, DTYPE_BF16);
    assert_int_equal(config_set(&c, "comm.inter_node", "MPI", &err), 0);
    assert_int_equal(c.comm.inter_node, CONFIG_INTER_NODE_MPI);
    assert_int_equal(config_set(&c, "comm.share_gpu", "yes", &err), 0);
    assert_int_equal(c.comm.share_gpu, 1);
    /* a prefix of an alias is not the alias */
    assert_int_equal(config_set(&c, "parallel.strategy", "stage", &err), -1);
    assert_int_equal(config_set(&c, "parallel.strategy", "dd", &err), -1);
}

static void unknown_keys_name_the_nearest(void **state)
{
    REFUSED(NULL, "train.stpes=4", "unknown key \"train.stpes\"", "train.steps?");
    REFUSED(NULL, "train.stpes", "argument \"train.stpes\"", "key=value");
    REFUSED(NULL, "parallel.stratgy=x", "parallel.strategy?");
    REFUSED(NULL, "lr=1", "train.lr?");
    REFUSED(NULL, "optimizer.lr=1", "train.lr?");
    REFUSED(NULL, "qqqqqqqqqqqq=1", "config --show");
    REFUSED("train:\n  lr: 1\n  stesp: 2\n", NULL, path, ":3:", "train.steps?");
    REFUSED("trian:\n  steps: 2\n", NULL, ":1:", "unknown group \"trian\"");
    REFUSED("foo: {}\n", NULL, ":1:", "unknown key \"foo\"");
    REFUSED("foo:\n", NULL, ":1:", "unknown key \"foo\"");
    REFUSED("train:\n  stesp: 2\n  lr: 1\n  clpi: 1\nfoo: 1\nmodle:\n  layers: 2\n", NULL,
            ":2: unknown key \"train.stesp\"; did you mean train.steps?; ",
            ":4: unknown key \"train.clpi\"; did you mean train.clip?; ",
            ":5: unknown key \"foo\"; ", ":6: unknown group \"modle\"");
    REFUSED("k1: 1\nk2: 1\nk3: 1\nk4: 1\nk5: 1\nk6: 1\nk7: 1\nk8: 1\nk9: 1\nk10: 1\nk11: 1\n", NULL,
            "\"k9\"; and 2 more unknown keys");
    REFUSED("model.preset: lama3-8b\n", NULL, ":1:", "llama3-8b?");
    REFUSED(NULL, "parallel.strategy=FULL_SHRD", "FULL_SHARD?", "NO_SHARD");
    REFUSED(NULL, "=3", "key=value");
    REFUSED(NULL, "run.yaml", "key=value", "run.yaml");
}

static void distance_counts_edits(void **state)
{
    assert_int_equal(nearest_distance("", "abc"), 3);
    assert_int_equal(nearest_distance("abc", ""), 3);
    assert_int_equal(nearest_distance("train.steps", "TRAIN.steps"), 0);
    assert_int_equal(nearest_distance("stpes", "steps"), 1);
    assert_int_equal(nearest_distance("kitten", "sitting"), 3);
    char a[200], b[201];
    memset(a, 'a', sizeof a);
    memset(b, 'a', sizeof b);
    a[199] = b[200] = '\0';
    assert_true(nearest_distance(a, b) > 100); /* past the table nothing is near */
}

static void types_are_checked(void **state)
{
    REFUSED(NULL, "train.steps=ten", "train.steps", "\"ten\"", "whole number");
    REFUSED(NULL, "train.steps=1.5", "whole number");
    REFUSED(NULL, "train.steps=", "whole number");
    REFUSED(NULL, "train.steps=-", "whole number");
    REFUSED(NULL, "train.steps= 5", "whole number");
    REFUSED(NULL, "train.lr=fast", "not a number");
    REFUSED(NULL, "train.lr=nan", "not a number");
    REFUSED(NULL, "train.lr=0x1p3", "not a number");
    REFUSED(NULL, "train.lr=1e999", "out of range");
    REFUSED(NULL, "parallel.forward_prefetch=maybe", "neither true nor false");
    REFUSED("train:\n  steps:\n", NULL, ":2:", "train.steps has no value");
    REFUSED("train: 5\n", NULL, ":1:", "train is a group");
    REFUSED("seed: {a: 1}\n", NULL, ":1:", "seed takes a value");
    REFUSED("seed: [1, 2]\n", NULL, ":1:", "seed", "lists are not understood");
    REFUSED("- seed\n", NULL, ":1:", "lists are not understood");
    REFUSED("seed\n", NULL, ":1:", "key: value");
}

static void whole_numbers_are_read_as_written(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"1e6", 1000000}, {"5e3", 5000},   {"1_000", 1000}, {"1_000_000", 1000000},
                {"2.0", 2},       {"1.5e3", 1500}, {"+7", 7},       {"1E2", 100}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct config c;
        struct error err = {0};
        LOAD(&c, NULL, "model.preset=llama-tiny");
        assert_int_equal(config_set(&c, "train.steps", good[i].text, &err), 0);
        assert_int_equal(c.train.steps, good[i].value);
    }
    static const char *const bad[] = {"train.steps=1.5",  "train.steps=1e-1", "train.steps=_1",
                                      "train.steps=1_",   "train.steps=1__0", "train.steps=0x10",
                                      "train.steps=1e6x", "train.steps=nan",  "train.steps=inf"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        REFUSED(NULL, bad[i], "whole number");
    REFUSED(NULL, "train.steps=1e30", "out of range");
    REFUSED("train:\n  steps: 1e2x\n", NULL, ":2:", "whole number");
}

static void ranges_are_stated(void **state)
{
    REFUSED(NULL, "checkpoint.keep=1", "checkpoint.keep", "1 is out of range", "2 to ");
    REFUSED(NULL, "train.micro_batch=-1", "0 to ");
    REFUSED(NULL, "train.steps=-1", "0 to ");
    REFUSED(NULL, "train.steps=99999999999999999999", "out of range");
    REFUSED(NULL, "train.beta1=1", "0 to 0.999999");
    REFUSED(NULL, "train.lr=-1", "out of range");
    REFUSED(NULL, "run.trace=2147483648", "out of range");
}

/* Names that exist elsewhere are not called unknown, and never fall back to something else. */
static void later_things_are_said_to_be_absent(void **state)
{
    REFUSED(NULL, "model.rope_scaling=longrope", "not in this version of trireme");
    REFUSED(NULL, "parallel.tensor=0", "out of range");
    REFUSED(NULL, "parallel.pipeline=0", "out of range");
}

static void impossible_combinations_are_refused(void **state)
{
    static const struct {
        const char *lines, *word;
    } rows[] = {
        {"model.kv_heads: 3", "model.kv_heads"},
        {"model.heads: 3\nmodel.kv_heads: 1", "model.hidden (64)"},
        {"model.head_dim: 7", "even"},
        {"model.heads: 64\nmodel.kv_heads: 0", "head_dim is 1"},
        {"data.seq_len: 129", "model.max_seq_len (128)"},
        {"model.family: gpt2", "model.kv_heads is 2"},
        {"model.family: gpt2\nmodel.heads: 3\nmodel.kv_heads: 3\nmodel.head_dim: 7", "even"},
        {"model.family: gpt2\nmodel.kv_heads: 4\nmodel.rope_theta: 5e5", "model.rope_theta"},
        {"model.family: gpt2\nmodel.kv_heads: 4\nmodel.rope_scaling: llama3", "model.rope_scaling"},
        {"model.family: gpt2\nmodel.kv_heads: 4\nmodel.rope_original_len: 4", "rope_original_len"},
        {"parallel.strategy: ddp\nparallel.shard: 2", "NO_SHARD"},
        {"parallel.replicate: 2", "HYBRID_SHARD"},
        {"parallel.strategy: stage2\noffload.params: host", "FULL_SHARD or HYBRID_SHARD"},
        {"parallel.strategy: ddp\noffload.gradients: host", "SHARD_GRAD_OP, FULL_SHARD"},
        {"parallel.strategy: ddp\noffload.gradients: disk", "offload.gradients needs"},
        {"parallel.tensor: 2\ntrain.optimizer: muon", "muon needs whole matrices"},
        {"parallel.pipeline: 2\nmodel.tie_embeddings: true\noffload.gradients: host",
         "tied embeddings"},
        {"parallel.strategy: stage1\noffload.gradients: host", "SHARD_GRAD_OP, FULL_SHARD"},
        {"parallel.strategy: stage1\noffload.gradients: disk", "offload.gradients needs"},
        {"offload.gradients: host\noffload.path: /tmp", "nothing is offloaded to disk"},
        {"offload.path: /tmp", "offload.path"},
        {"train.min_lr: 1", "train.min_lr"},
        {"train.warmup_min_lr: 1", "train.warmup_min_lr"},
        {"train.warmup_min_lr: 1e-5", "train.warmup_steps"},
        {"train.decay_steps: 5", "train.schedule wsd, wsd_cosine and wsd_sqrt; linear and cosine"},
        {"train.schedule: constant\ntrain.decay_steps: 5", "constant does not decay"},
        {"train.schedule: wsd\ntrain.decay_steps: 101", "of the run's 100 steps 100 come after"},
        {"train.schedule: wsd_sqrt\ntrain.warmup_steps: 91\ntrain.decay_steps: 10",
         "train.decay_steps is 10, but of the run's 100 steps 9 come after train.warmup_steps "
         "(91)"},
        {"train.momentum: 0.5", "train.optimizer sgd"},
        {"train.optimizer: sgd\ntrain.beta1: 0.5", "train.optimizer adamw"},
        {"train.muon_momentum: 0.5", "train.optimizer muon"},
        {"train.muon_adjust_lr: match_rms_adamw", "train.optimizer muon"},
        {"train.muon_dtype: bf16", "train.optimizer muon"},
        {"train.optimizer: muon\ntrain.muon_dtype: fp16", "fp32, bf16"},
        {"train.optimizer: muon\ntrain.momentum: 0.5", "train.muon_momentum"},
        {"train.optimizer: muon\ntrain.overlap_update: true", "leave it at false"},
        {"train.optimizer: muon\nprecision: bf16_pure", "train.optimizer adamw"},
        {"train.optimizer: muon\ncomm.inter_node: mpi", "leave it at nccl"},
        {"device: cpu\ncomm.max_ctas: 4", "comm.max_ctas is of transfers between GPUs"},
        {"comm.max_ctas: 4\ncomm.min_ctas: 5", "comm.min_ctas (5) is above"},
        {"comm.nvls: true", "train.reproducible=false"},
        {"comm.copy_engines: true\ncomm.share_gpu: true", "comm.share_gpu"},
        {"comm.copy_engines: true\ntrain.optimizer: muon", "the same memory"},
        {"comm.copy_engines: true\nparallel.strategy: NO_SHARD", "there are none"},
        {"parallel.wrap: layers", "parallel.layers_per_unit"},
        {"parallel.layers_per_unit: 2", "parallel.wrap layers"},
        {"parallel.wrap: SIZE_BASED_WRAP", "parallel.min_num_params"},
        {"parallel.wrap: layers\nparallel.layers_per_unit: 2\nparallel.min_num_params: 5", "size"},
        {"recompute_every: 2", "recompute is none"},
        {"parallel.strategy: ddp\nparallel.persist_below: 9", "NO_SHARD"},
        {"parallel.strategy: ddp\nparallel.prefetch_units: 2", "NO_SHARD, which gathers no"},
        {"parallel.backward_prefetch: none\nparallel.forward_prefetch: false\n"
         "parallel.prefetch_units: 2",
         "nothing is gathered ahead"},
        {"model.loading: node", "model.path, and that is empty"},
        {"data.seq_len: 16\ntrain.global_batch_tokens: 40", "48 is"},
        {"train.steps: 7\ntrain.epochs: 2", "train.epochs (2) both say"},
        {"train.early_stop: 3", "set train.eval_every and data.valid"},
        {"train.early_stop_delta: 0.1", "neither train.early_stop nor"},
        {"checkpoint.keep_best: true", "checkpoint.keep_best"},
        {"checkpoint.async: true", "set checkpoint.every"},
        {"train.eval_micro_batch: 2", "train.eval_micro_batch"},
        {"train.eval_batches: 2", "train.eval_batches is 2"},
        {"data.seq_len: 16\ntrain.global_batch_tokens: 48\ntrain.global_batch: 4", "3 sequences"},
        {"data.seq_len: 16\ntrain.global_batch_tokens: 48\ntrain.split_batches: false", "each"},
        {"train.eval_every: 5", "data.valid"},
        {"run.dir:", "run.dir"},
        {"device: cuda\ncomm.reduce_dtype: bf16\nparallel.strategy: ddp", "NO_SHARD"},
        {"device: cuda\ncomm.inter_node: mpi", "one copy"},
        {"model.rope_scaling: llama3\nmodel.rope_low_freq_factor: 4", "rope_high_freq_factor"},
        {"model.rope_factor: 4", "model.rope_factor is of model.rope_scaling linear, llama3 or"},
        {"model.rope_low_freq_factor: 3", "rope_low_freq_factor is of model.rope_scaling llama3;"},
        {"model.rope_scaling: linear\nmodel.rope_original_len: 77", "rope_original_len is of"},
        {"model.rope_scaling: yarn\nmodel.rope_high_freq_factor: 9", "high_freq_factor is of"},
        {"model.rope_beta_fast: 3", "model.rope_beta_fast is of model.rope_scaling yarn"},
    };
    char text[300];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(text, sizeof text, "model.preset: llama-tiny\n%s\n", rows[i].lines);
        REFUSED(text, NULL, rows[i].word);
    }
    REFUSED(NULL, NULL, "model.layers", "model.preset=llama-tiny");
    REFUSED("", "model.layers=3", "model.hidden");
}

static void duplicates_are_refused(void **state)
{
    REFUSED("seed: 1\nseed: 1\n", NULL, ":2:", "seed was already set in line 1");
    REFUSED("train:\n  steps: 1\ntrain.steps: 2\n", NULL, ":3:", "line 2");
    REFUSED("train:\n  steps: 1\ntrain:\n  lr: 2\n", NULL, ":3:", "train was already begun");
    REFUSED("model.preset: llama-tiny\nmodel.preset: llama-10m\n", NULL, ":2:", "line 1");
}

static void syntax_errors_have_line_and_column(void **state)
{
    REFUSED("seed: 1\ntrain: steps: 2\n", NULL, ":2:13:");
    REFUSED("seed: \"abc\n", NULL, path, ":2:1:");
    REFUSED("train:\n\tsteps: 1\n", NULL, ":2:1:");
    REFUSED("a: *b\n", NULL, "aliases");
    REFUSED("seed: !!int 4\n", NULL, ":1:", "tags");
    REFUSED("seed: 1\n---\nseed: 2\n", NULL, ":2:", "second document");
    REFUSED("{[a]: 1}\n", NULL, "lists");
    REFUSED("{{a: 1}: 1}\n", NULL, "map cannot be a key");
    REFUSED("{a: {a: {a: {a: {a: {a: {a: {a: {a: 1}}}}}}}}}\n", NULL, "nested");
    REFUSED("seed: \"\xff\"\n", NULL, "not a text file");
    REFUSED("data.train: \"a\\nb\"\n", NULL, "byte 2", "printable");
    REFUSED("{}\n", "data.train=a.h5, ~/b.h5", "~/b.h5", "not expanded");
    REFUSED("{}\n", "train.freeze=,", "train.freeze: the list \",\" names nothing");
    REFUSED("train.freeze: \" , ,\"\n", NULL, "train.freeze: the list \" , ,\" names nothing");
    REFUSED("{}\n", "lora.target_modules=  ", "lora.target_modules: the list", "names nothing");
    REFUSED("{}\n", "lora.modules_to_save=,", "lora.modules_to_save: the list", "names nothing");
    REFUSED("{}\n", "parallel.stages=,,", "parallel.stages: the list", "names nothing");
    REFUSED("{}\n", "data.valid=, ", "data.valid: the list", "names nothing");
}

static void files_that_are_no_configuration(void **state)
{
    static const char hdf5[] = "\211HDF\r\n\032\n\0\0";
    struct config c;
    struct error err = {0};
    put(hdf5, sizeof hdf5);
    assert_int_equal(config_load(&c, path, NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "not a text file"));
    put("seed: 1\n\0x", 10);
    assert_int_equal(config_load(&c, path, NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "0x00 at offset 8"));
    assert_int_equal(truncate(path, (off_t)1 << 30), 0); /* a hole: 1 GB that takes no room */
    assert_int_equal(config_load(&c, path, NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "1073741824 bytes"));
    assert_int_equal(config_load(&c, "/nonexistent/x.yaml", NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "/nonexistent/x.yaml: No such file"));
    assert_int_equal(config_load(&c, "/tmp", NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "/tmp is not a file"));
    assert_int_equal(config_load(&c, "/dev/zero", NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "not a file"));
}

/* Anything a byte can do to a good file is either read or refused with one line. */
static void damaged_files_never_crash(void **state)
{
    static const char good[] = "model: {preset: llama-tiny}\ntrain:\n  lr: 1e-3 # x\n"
                               "data:\n  train: \"a\\\"b\"\n";
    static const char bytes[] = "\0\xff:{}[]\"'\\\n\t#&*!%@`-?|> \x80\xe2";
    char text[sizeof good];
    int read = 0, bad = 0;
    for (size_t at = 0; at < sizeof good - 1; at++)
        for (size_t b = 0; b < sizeof bytes - 1; b++) {
            struct config c;
            struct error err = {0};
            memcpy(text, good, sizeof good);
            text[at] = bytes[b];
            put(text, sizeof good - 1);
            int rc = config_load(&c, path, NULL, 0, &err);
            assert_true(rc == 0 || (rc == -1 && err.text[0] && !strchr(err.text, '\n')));
            *(rc ? &bad : &read) += 1;
        }
    assert_true(read > 10 && bad > 100);
}

static void texts_have_limits(void **state)
{
    struct config c = {0};
    struct error err = {0};
    char text[CONFIG_TEXT + 1];
    memset(text, 'x', sizeof text);
    text[CONFIG_TEXT] = '\0';
    assert_int_equal(config_set(&c, "offload.path", text, &err), -1);
    assert_non_null(strstr(err.text, "longer than 511"));
    text[CONFIG_TEXT - 1] = '\0';
    assert_int_equal(config_set(&c, "offload.path", text, &err), 0);
    assert_string_equal(c.offload.path, text);
    assert_int_equal(config_set(&c, "offload.path", "", &err), 0);
    assert_string_equal(c.offload.path, "");
    static const char *const bad[] = {
        "a\tb",     "a\x7f",        "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80",
        "\xc2\x85", "\xef\xbb\xbf", "\xe2\x82"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(config_set(&c, "offload.path", bad[i], &err), -1);
    assert_int_equal(config_set(&c, "offload.path", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\xa3", &err),
                     0);
}

static void show_has_every_key(void **state)
{
    for (int format = CONFIG_TEXT_TABLE; format <= CONFIG_MAN; format++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        config_show(out, format, NULL);
        assert_int_equal(fclose(out), 0);
        const struct key *key;
        for (int i = 0; (key = key_at(i)); i++)
            assert_non_null(strstr(text, key->name));
        for (int i = 0; i < config_preset_count; i++)
            assert_non_null(strstr(text, config_presets[i].preset) || format == CONFIG_MAN);
        free(text);
    }
    FILE *out = fopen("/dev/null", "w");
    assert_int_equal(config_show(out, CONFIG_TEXT_TABLE, NULL), key_count());
    assert_int_equal(config_show(out, CONFIG_TEXT_TABLE, "train.lr"), 1);
    assert_int_equal(config_show(out, CONFIG_TEXT_TABLE, "data"), 4);
    assert_int_equal(config_show(out, CONFIG_TEXT_TABLE, "dat"), 0);
    assert_int_equal(config_show(out, CONFIG_TEXT_TABLE, ""), 0);
    fclose(out);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* An argument takes the place of the file's other way to say the same; two in one place are
 * refused.
 */
static void arguments_replace_their_rivals(void **state)
{
    static const char *const epochs[] = {"train.epochs=2"}, *const both[] = {"train.epochs=2",
                                                                             "train.steps=7"};
    static const char *const none[] = {"train.epochs=0"}, *const tokens[] = {
                                                              "train.global_batch_tokens=1024"};
    const char *text = "model:\n  preset: llama-tiny\ntrain:\n  steps: 5\n  global_batch: 4\n"
                       "data:\n  seq_len: 64\n";
    struct config c;
    struct error err = {0};
    assert_int_equal(config_load_text(&c, "f.yaml", text, epochs, 1, &err), 0);
    assert_true(c.train.epochs == 2 && c.train.global_batch == 4);
    assert_int_equal(config_load_text(&c, "f.yaml", text, none, 1, &err), 0);
    assert_int_equal(c.train.steps, 5);
    assert_int_equal(config_load_text(&c, "f.yaml", text, tokens, 1, &err), 0);
    assert_int_equal(c.train.global_batch, 16);
    assert_int_equal(config_load_text(&c, "f.yaml", text, both, 2, &err), -1);
    assert_non_null(strstr(err.text, "train.steps (7)"));
    err.text[0] = 0;
    assert_int_equal(config_load_text(&c, "f.yaml",
                                      "model:\n  preset: llama-tiny\ntrain:\n"
                                      "  steps: 5\n  epochs: 2\n",
                                      NULL, 0, &err),
                     -1);
    assert_non_null(strstr(err.text, "leave one out"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_complete),
        TEST(rows_are_sound),
        TEST(preset_comes_first_overrides_last),
        TEST(names_people_know_are_taken),
        TEST(unknown_keys_name_the_nearest),
        TEST(distance_counts_edits),
        TEST(types_are_checked),
        TEST(whole_numbers_are_read_as_written),
        TEST(ranges_are_stated),
        TEST(later_things_are_said_to_be_absent),
        TEST(impossible_combinations_are_refused),
        TEST(duplicates_are_refused),
        TEST(syntax_errors_have_line_and_column),
        TEST(files_that_are_no_configuration),
        TEST(damaged_files_never_crash),
        TEST(texts_have_limits),
        TEST(show_has_every_key),
        cmocka_unit_test(arguments_replace_their_rivals),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
