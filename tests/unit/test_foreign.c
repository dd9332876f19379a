/* test_foreign.c - the words of other trainers lead to keys that exist, and mean one thing each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/text.h"
#include "config/foreign.h"
#include "config/schema.h"

/* Call with every name of every row. */
static void for_each_name(void (*visit)(const struct foreign *row, const char *name))
{
    for (int i = 0; i < foreign_count; i++) {
        char names[1024], *rest = names, *name;
        assert_true(strlen(foreign_names[i].names) < sizeof names);
        snprintf(names, sizeof names, "%s", foreign_names[i].names);
        while ((name = strsep(&rest, "|")))
            visit(&foreign_names[i], name);
    }
}

static void leads_to_its_row(const struct foreign *row, const char *name)
{
    if (foreign_find(name) != row)
        fail_msg("%s is found in another row", name);
    if (row->here && !key_find(row->here))
        fail_msg("%s: there is no key %s", name, row->here);
    if (key_find(name))
        fail_msg("%s is a key of trireme's", name);
    assert_true(row->here || row->note);
}

static void every_name_leads_to_a_key(void **state)
{
    assert_true(foreign_count > 60);
    for_each_name(leads_to_its_row);
}

static void spelling_does_not_matter(void **state)
{
    static const struct {
        const char *typed, *here;
    } cases[] = {
        {"gradient_clipping", "train.clip"},
        {"--max-grad-norm", "train.clip"},
        {"training.max_norm", "train.clip"},
        {"Learning-Rate", "train.lr"},
        {"deepspeed.zero_optimization.stage", "parallel.strategy"},
        {"zero_optimization.offload_param.device", "offload.params"},
        {"fsdp_config.fsdp_auto_wrap_policy", "parallel.wrap"},
        {"--tensor-model-parallel-size", "parallel.tensor"},
        {"bf16.enabled", "precision"},
        {"-b", "train.micro_batch"},
        {"cp", "parallel.context"},
        {"parallel.tp", "parallel.tensor"},
        {"pp", "parallel.pipeline"},
        {"train.grad_accum", "train.global_batch"},
        {"-z", "parallel.strategy"},
        {"model.num_experts", "model.experts"},
        {"num_local_experts", "model.experts"},
        {"--moe-router-topk", "model.experts_per_token"},
        {"moe_intermediate_size", "model.ffn"},
        {"--moe-aux-loss-coeff", "model.router_aux_loss_coef"},
        {"lora_target_linear", "lora.target_modules"},
        {"apply_lora_to_mlp", "lora.target_modules"},
        {"additional_target", "lora.modules_to_save"},
        {"peft_use_dora", "lora.use_dora"},
        {"unfrozen_parameters", "train.freeze"},
        {"max_samples", "data.train"},
        {"enable_activation_checkpointing", "recompute"},
        {"cosine_min_lr_ratio", "train.min_lr"},
        {"evals_per_epoch", "train.eval_every"},
        {"saves_per_epoch", "checkpoint.every"},
        {"use_galore", "train.optimizer"},
        {"lora.rank", "lora.r"},
        {"--lora-rank", "lora.r"},
        {"adapter", "lora.r"},
        {"load_in_4bit", "lora.quantize_base"},
        {"bnb_4bit_use_double_quant", "lora.quantize_base"},
        {"--double-quant", "lora.quantize_base"},
        {"quantization_config", "lora.quantize_base"},
        {"--data", "data.train"},
        {"activation_checkpoint.selective_ac_option", "recompute"},
        {"num_decay_steps", "train.decay_steps"},
        {"lr_scheduler.decay_ratio", "train.decay_steps"},
        {"--lr-wsd-decay-iters", "train.decay_steps"},
        {"--lr-wsd-decay-style", "train.schedule"},
        {"parallelism.pipeline_parallel_schedule", "parallel.schedule"},
        {"--num-virtual-stages-per-pipeline-rank", "parallel.virtual_stages"},
        {"--pipeline-model-parallel-layout", "parallel.stages"},
        {"parallelism.enable_async_tensor_parallel", "parallel.tensor_overlap"},
        {"--recompute-method", "recompute_every"},
        {"training.dataset", "data.train"},
        {"validation.dataset", "data.valid"},
        {"validation.dataset_path", "data.valid"},
        {"validation.steps", "train.eval_batches"},
        {"--lr-warmup-init", "train.warmup_min_lr"},
        {"checkpoint.initial_load_path", "model.path"},
        {"--finetune", "model.path"},
        {"debug.deterministic", "train.reproducible"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct foreign *f = foreign_find(cases[i].typed);
        assert_non_null(f);
        assert_string_equal(f->here, cases[i].here);
    }
    assert_null(foreign_find("b"));
    assert_null(foreign_find("train.stpes"));
    assert_null(foreign_find(""));
    assert_null(foreign_find("--"));
    assert_null(foreign_find("lip"));
}

/* What trireme does not have is said to be absent; the nearest key would be none that helps
 * ("parallel.expert": parallel.layout, "ema": train.eps). */
static void what_is_absent_is_no_other_key(void **state)
{
    static const char *const typed[] = {
        "parallel.expert", "model.z_loss",    "train.label_smoothing", "train.ema",
        "run.time_limit",  "wandb.project",   "model.hf_assets_path",  "--vocab-file",
        "--split",         "train_on_inputs", "train_on_prompt",       "assistant_only_loss",
        "chat_template",   "template",        "val_set_size",          "val_size",
        "mask_history",    "loss_type",       "relora_steps",
    };
    for (size_t i = 0; i < sizeof typed / sizeof typed[0]; i++) {
        struct error err = {0};
        assert_int_equal(key_unknown(typed[i], &err), -1);
        assert_null(strstr(err.text, "did you mean"));
        assert_null(strstr(err.text, "lists the keys"));
    }
}

/* Optimizers and schedules that others have are known by name. */
static void values_of_others_are_known(void **state)
{
    static const struct {
        const char *key, *value, *text; /* NULL: taken */
    } cases[] = {
        {"train.optimizer", "adamw_torch", NULL},
        {"train.optimizer", "adamw_torch_fused", NULL},
        {"train.optimizer", "paged_adamw_8bit",
         "paged_adamw_8bit is not in this version of trireme, which has adamw8bit, "
         "and offload.optimizer=host"},
        {"train.optimizer", "paged_adamw_32bit", "which has adamw, and offload.optimizer=host"},
        {"train.optimizer", "adamw_bnb_8bit", NULL},
        {"train.schedule", "cosine_with_min_lr", NULL},
        {"train.schedule", "warmup_stable_decay", NULL},
        {"train.schedule", "WSD", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char setting[80];
        const char *settings[] = {"model.preset=llama-tiny", setting};
        struct config config;
        struct error err = {0};
        snprintf(setting, sizeof setting, "%s=%s", cases[i].key, cases[i].value);
        assert_int_equal(config_load(&config, NULL, settings, 2, &err), cases[i].text ? -1 : 0);
        assert_true(!cases[i].text || strstr(err.text, cases[i].text));
    }
}

static void keys_of_trireme_are_not_shadowed(void **state)
{
    const struct key *key;
    for (int i = 0; (key = key_at(i)); i++)
        assert_ptr_equal(key_find(key->name), key);
    assert_string_equal(key_meant("optimizer.lr"), "train.lr");
    assert_string_equal(key_meant("train.stpes"), "train.steps");
    assert_null(key_meant("zzzzzzzzzzzz"));
    assert_null(key_meant("pabc")); /* two of four letters of "path" are no likeness */
}

/* Load a file that has the text, which is refused, as a user would. */
static void answer_file(const char *text, struct error *err)
{
    char path[] = "/tmp/trireme-foreign-XXXXXX";
    struct config config;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    assert_int_equal(config_load(&config, path, NULL, 0, err), -1);
    unlink(path);
}

/* Translate a text with single blanks for runs of them; "" where it is not recognised. */
static void translate(const char *text, char *to, size_t size)
{
    struct foreign_source source;
    char *written = NULL;
    size_t bytes = 0, used = 0;
    FILE *out = open_memstream(&written, &bytes);
    foreign_recognise(&source, "t.yaml", text);
    if (source.program)
        foreign_write(out, &source);
    fclose(out);
    foreign_free(&source);
    for (const char *at = written; *at && used + 1 < size; at++)
        if (*at != ' ' || at[1] != ' ')
            to[used++] = *at;
    to[used] = 0;
    free(written);
}

static void files_are_named(void **state)
{
    static const struct {
        const char *text, *program, *words;
    } files[] = {
        {"compute_environment: LOCAL_MACHINE\nmixed_precision: bf16\n", "Accelerate",
         "\nprecision: bf16 # mixed_precision\n"},
        {"{ \"zero_optimization\": { \"stage\": 3 }, \"betas\": [0.9, 0.95] }", "DeepSpeed",
         "\nparallel.strategy: FULL_SHARD # zero_optimization.stage: 3\n# betas is train.beta1"},
        {"{ \"zero_optimization\": { \"stage\": 3 }, \"gradient_accumulation_steps\": 4 }",
         "DeepSpeed",
         "\n# gradient_accumulation_steps: 4 is train.global_batch here (train.micro_batch times "
         "these steps"},
        {"per_device_train_batch_size: 4\nwarmup_ratio: 0.1\n", "Hugging Face's Trainer",
         "\n# warmup_ratio: 0.1 is train.warmup_steps here (in steps, not a share of them)"},
        {"per_device_train_batch_size: 4\nmax_grad_norm: 1\n", "Hugging Face's Trainer",
         "\ntrain.micro_batch: 4 # per_device_train_batch_size\ntrain.clip: 1 # max_grad_norm\n"},
        {"[training]\nlocal_batch_size = 4\n", "torchtitan",
         "\ntrain.micro_batch: 4 # local_batch_size\n"},
        {"[training]\nlocal_batch_size = 4\n[activation_checkpoint]\nmode = \"selective\"\n",
         "torchtitan", "\nrecompute: selective # activation_checkpoint.mode\n"},
        {"[training]\nlocal_batch_size = 4\nselective_ac_option = 'op'\n", "torchtitan",
         "\nrecompute: selective # selective_ac_option: op\n"},
        {"stage: sft\nfinetuning_type: lora\nlora_rank: 8\n", "LLaMA-Factory",
         "is lora.r here, which another line sets (the rank of adapters for lora; 0\n"},
        {"base_model: m\ndatasets:\n  - path: a.jsonl\n    type: chat_template\nsequence_len: "
         "4096\n"
         "sample_packing: true\n",
         "axolotl", "\ndata.packing: documents # sample_packing: true\n"},
        {"language_model:\n  num_layers: 24\n  kv_channels: null\n  hidden_size: 1024\n",
         "Megatron-LM",
         "\nmodel.layers: 24 # num_layers\nmodel.hidden: 1024 # hidden_size\n# Not set above"},
        {"tensor_model_parallel_size: 2\nrampup_batch_size: [32, 32, 1000]\ntrain_iters: 9\n",
         "Megatron-LM",
         "\nparallel.tensor: 2 # tensor_model_parallel_size\n# rampup_batch_size - "},
        {"# it's ours\nnum_train_epochs: 3\nseed: 42\nreport_to: [a, b]\nname: it's\n",
         "Hugging Face's Trainer", "\ntrain.epochs: 3 # num_train_epochs\nseed: 42 # seed\n"},
        {"[model]\nname = \"llama3\" # it's\n[checkpoint]\ninterval = 5\n[job]\n"
         "dump_folder = \"./outputs: x\"\n",
         "torchtitan", "\n# dump_folder: ./outputs: x is run.dir here\n"},
        {"[model]\nname = \"llama3\"\n[training]\nsteps = 5\n[parallelism]\n"
         "tensor_parallel_degree = 2\n",
         "torchtitan", "\nparallel.tensor: 2 # tensor_parallel_degree\n"},
        {"base_model: m\nfsdp:\nfsdp_config:\n", "axolotl", "\nmodel.path: m # base_model\n"},
        {"base_model: m\nfsdp_config:\n  fsdp_offload_params: true\n", "axolotl",
         "\n# fsdp_offload_params: true is offload.params here (with offload.gradients and "},
        {"model:\n  _component_: torchtune.models.llama3_2.llama3_2_1b\ntokenizer:\n"
         "  path: t.model\ndevice: cuda\nbatch_size: 4\nlist: [a, b]\n",
         "torchtune", "\n# batch_size: 4 is train.global_batch here"},
        {"{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 4096}",
         "a Hugging Face model", "\nmodel.hidden: 4096 # hidden_size\n"},
        {"max_duration: 10ba\nglobal_train_batch_size: 64\noptimizer:\n  name: decoupled_adamw\n",
         "LLM Foundry", "\ntrain.global_batch: 64 # global_train_batch_size\n"},
        {"eval_iters = 200\nblock_size = 1024\nwandb_log = True\n", "nanoGPT",
         "\ndata.seq_len: 1024 # block_size\n"},
        {"#!/bin/sh\nARGS=(--num-layers 24 \\\n --bf16 --train-iters=500 # --lr 1\n  --lr "
         "\"3e-4\")\n"
         "--micro-batch-size $B --bf16-x",
         "Megatron-LM",
         "\nmodel.layers: 24 # num_layers\nprecision: bf16 # bf16: true\ntrain.steps: 500 # "
         "train_iters\ntrain.lr: 3e-4 # lr\n# micro_batch_size: $B is train.micro_batch here"},
        {"mpirun -np 8 ./train_gpt2cu -e \"d12\" -b 64 -z 1 -l 0.0006 -h 1", "llm.c",
         "\nmodel.preset: gpt2 # -e: d12\ntrain.micro_batch: 64 # -b\nparallel.strategy: "
         "SHARD_OPTIM # -z: 1\ntrain.lr: 0.0006 # -l\n# Without an answer: -h\n"},
    };
    static char written[65536];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char head[128];
        struct error err = {0};
        translate(files[i].text, written, sizeof written);
        snprintf(head, sizeof head, "# t.yaml, a configuration of %s, by trireme's keys.\n",
                 files[i].program);
        if (strncmp(written, head, strlen(head)) != 0 || !strstr(written, files[i].words))
            fail_msg("%s", written);
        answer_file(files[i].text, &err);
        snprintf(head, sizeof head,
                 " is a configuration of %s, not of trireme; trireme config "
                 "--translate /tmp",
                 files[i].program);
        if (!strstr(err.text, head))
            fail_msg("%s", err.text);
    }
}

static void toml_is_named(void **state)
{
    struct error err = {0};
    answer_file("[train]  # ours?\nsteps = 5\n[a.b]\nc = [1, 2]\n", &err);
    assert_non_null(strstr(err.text, "is TOML; a configuration here is YAML"));
}

/* Files as others write them; in `words` what is said, beside every key, and in `lacks` what is
 * not.
 */
static const struct {
    const char *text, *words[9], *lacks[3];
} whole[] = {
    {"base_model: x\nadapter: lora\nlora_r: 32\nlora_alpha: 64  # twice\nlora_target_linear: true\n"
     "peft_use_dora: true\nweight_decay: 0.0\nwarmup_steps: 10\nlearning_rate: \"0.0002\"\n"
     "lora_modules_to_save: [a]\nliger_rope: true\nneftune_noise_alpha: 5\nz_loss: 1\n",
     {"lora.r: 32 # lora_r\n", "lora.alpha: 64 # lora_alpha\n",
      "lora.target_modules: all-linear # lora_target_linear: true\n",
      "lora.use_dora: true # peft_use_dora\n", "train.weight_decay: 0.0 # weight_decay\n",
      "train.warmup_steps: 10 # warmup_steps\n",
      "# neftune_noise_alpha: 5 - noise on embeddings is not in this version of trireme\n# z_loss: "
      "1 - the loss is",
      "\n# Without an answer: liger_rope\n# Not set above, and usually another value in "
      "axolotl:\ntrain.beta2: 0.95\n"},
     {"train.weight_decay: 0.1"}},
    {"stage: sft\nfinetuning_type: lora\nlora_rank: 8\nlora_target: all\nmax_samples: 9\n"
     "lr_scheduler_type: linear\nadam_beta2: auto\nuse_galore: false\nval_size: 0.1\n",
     {"lora.target_modules: all-linear # lora_target: all\n",
      "# max_samples: 9 is data.train here (FILE.h5:samples=N",
      "# use_galore: false is "
      "train.optimizer here (adamw, ",
      "train.schedule: linear # lr_scheduler_type\n# adam_beta2: auto is train.beta2 here\n",
      "in LLaMA-Factory:\ntrain.weight_decay: 0.1\ntrain.beta2: 0.95\nlora.alpha: 8\n"},
     {"Without an answer"}},
    {"model:\n  _component_: a.b\n  lora_alpha: 16\n  apply_lora_to_mlp: True\ndataset:\n  path: "
     "a\n"
     "  split: s\noptimizer:\n  _component_: AdamW\n  weight_decay: 0.01\n  lr: 3e-4\n"
     "max_steps_per_epoch: null\nlog: http://a:1\nlist:\n  - one\n",
     {"lora.alpha: 16 # lora_alpha\n", "train.weight_decay: 0.01 # ", "train.lr: 3e-4 # ",
      "\n# Without an answer: _component_, path, _component_, log, list\n# Not set above, and "
      "usually "
      "another value in torchtune:\ntrain.beta2: 0.95\ntrain.clip: 1\ntrain.schedule: "
      "cosine\n"},
     {"max_steps_per_epoch", "http", "model.path"}},
    {"{\"zero_optimization\": {\"stage\": 2, \"unknown\": 1e9}, \"fp16\": {\"enabled\": "
     "\"auto\", "
     "\"hysteresis\": 2},\n \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-4, "
     "\"betas\": [0.9, 0.9]}}, \"scheduler\": {\"type\": \"WarmupLR\"}}",
     {"train.optimizer: AdamW # optimizer.type\n", "train.lr: 3e-4 # optimizer.params.lr\n",
      "train.hysteresis: 2 # ", "parallel.strategy: SHARD_GRAD_OP # zero_optimization.stage: 2\n",
      "train.schedule: WarmupLR # scheduler.type\n", "\n# Without an answer: unknown\n",
      "# fp16.enabled: auto is precision here"}},
    {"[model]\nname = \"llama3\"\n[optimizer]\nname = \"AdamW\"\nlr = 8e-4\n[training]\n"
     "local_batch_size = 1\nsteps = 10\n[experimental]\ncustom_import = \"\"\n",
     {"# model.name: llama3 is model.preset here", "train.optimizer: AdamW # optimizer.name\n",
      "train.lr: 8e-4 # ", "train.steps: 10 # steps\n", "\n# Without an answer: custom_import\n",
      "in torchtitan:\ntrain.schedule: cosine\ntrain.warmup_steps: 0\n"}},
    {"{\"zero_optimization\": {\"offload_optimizer\": {\"pin_memory\": true}, \"stage\": 3, "
     "\"offload_param\": {\"device\": \"cpu\"}}, \"fp16\": {\"hysteresis\": 2}, \"bf16\": "
     "{\"enabled\": "
     "true}}",
     {"offload.params: host # offload_param.device: cpu\n",
      "precision: bf16 # bf16.enabled: true\n",
      "parallel.strategy: FULL_SHARD # zero_optimization.stage: 3\n"},
     {"offload.optimizer: host", "# fp16.enabled"}},
    {"optimizer:\n  name: adamw\n  inner:\n    a: 1\n  lr: 1e-3\nscheduler:\n  type: cosine\n"
     "model_type: x\nnum_train_epochs: 1\n",
     {"train.optimizer: adamw # optimizer.name\n", "train.schedule: cosine # scheduler.type\n"}},
    {"num_train_epochs: 3\nbf16: auto\nfsdp_offload_params: false\nnum_processes: 8\nnum_machines: "
     "2\ngradient_checkpointing: true\n"
     "fsdp: x\nfsdp_config:\n  fsdp_reshard_after_forward: false\nload_in_4bit: true\n",
     {"# bf16: auto is precision here (", "offload.params: none # fsdp_offload_params: false\n",
      "# num_processes: 8, num_machines: 2 - the launcher", "recompute: full # gradient_check",
      "parallel.strategy: SHARD_GRAD_OP # fsdp_reshard_after_forward: false\n",
      "lora.quantize_base: nf4 # load_in_4bit: true\n"}},
};

static void no_key_is_passed_over(void **state)
{
    static char written[65536];
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        translate(whole[i].text, written, sizeof written);
        for (const char *const *word = whole[i].words; *word; word++)
            if (!strstr(written, *word))
                fail_msg("no \"%s\" in: %s", *word, written);
        for (const char *const *word = whole[i].lacks; *word; word++)
            if (strstr(written, *word))
                fail_msg("\"%s\" in: %s", *word, written);
    }
}

/* Copy the first of names "a|b".  Is it one that a file has at its top level, and that is no group
 * of trireme's? */
static int is_plain(const char *names, char name[128])
{
    snprintf(name, 128, "%.*s", (int)strcspn(names, "|"), names);
    return !strchr(name, '.') && *name != '-' && !key_is_group(name);
}

/* Every name of every row is in the translation of a file with all of them, and the file with what
 * is not a comment is a configuration that trireme reads. */
static void every_name_is_answered(void **state)
{
    static char text[65536] = "base_model: m\n", written[131072];
    char name[128];
    struct config config;
    struct error err = {0};
    for (int i = 0; i < 300; i++)
        text_append(text, sizeof text, "unknown_key_%d: %d\n", i, i);
    for (int i = 0; i < foreign_count; i++)
        for (const char *n = foreign_names[i].names; n; n = strchr(n, '|')) {
            n += *n == '|';
            if (is_plain(n, name))
                text_append(text, sizeof text, "%s: 7\n", name);
        }
    translate(text, written, sizeof written);
    for (int i = 0; i < foreign_count; i++)
        for (const char *n = foreign_names[i].names; n; n = strchr(n, '|')) {
            n += *n == '|';
            if (is_plain(n, name) && !strstr(written, name))
                fail_msg("no %s in: %s", name, written);
        }
    assert_non_null(strstr(written, "unknown_key_299\n"));
    const char *settings[] = {"model.preset=llama-tiny"};
    translate("base_model: m\nlearning_rate: 0.25\ngradient_checkpointing: true\n", written,
              sizeof written);
    assert_int_equal(config_load_text(&config, "t", written, settings, 1, &err), 0);
    assert_true(config.train.lr == 0.25);
}

/* A file of trireme's keys keeps the answer to its own mistake, whatever words of other programs
 * are in its comments, its texts, or one of its lines. */
static void a_mistake_is_not_another_program(void **state)
{
    static const struct {
        const char *text, *words[3];
    } files[] = {
        {"# HF: num_train_epochs: 3\nmodel:\n  preset: llama-tiny\ntrain:\n  lr: 1e-3\n"
         "  warmup_step: 5\n",
         {"t.yaml:6:", "train.warmup_steps"}},
        {"# converted from torchtitan (dump_folder: outputs)\nmodel.preset: llama-tiny\n"
         "parallel:\n  strategy: FUL_SHARD\n",
         {"t.yaml:4:", "FULL_SHARD"}},
        {"model:\n  preset: llama-tiny\nper_device_train_batch_size: 4\n",
         {"t.yaml:3:", "train.micro_batch"}},
        {"run:\n  dir: \"runs/num_train_epochs: 3\"  # dump_folder: x\ntrain:\n  lrr: 1\n",
         {"t.yaml:4:", "train.lr"}},
        {"{\"model\": {\"preset\": \"llama-tiny\"}, \"train\": {\"num_train_epochs\": 3}}",
         {"t.yaml:1:", "train.epochs"}},
        {"# cutoff_len: 5\nstepz: 5\n", {"t.yaml:2:", "stepz"}},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct config config;
        struct error err = {0};
        assert_int_equal(config_load_text(&config, "t.yaml", files[i].text, NULL, 0, &err), -1);
        for (const char *const *word = files[i].words; *word; word++)
            if (!strstr(err.text, *word) || strstr(err.text, "configuration of"))
                fail_msg("no %s: %s", *word, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_leads_to_a_key),
        cmocka_unit_test(spelling_does_not_matter),
        cmocka_unit_test(what_is_absent_is_no_other_key),
        cmocka_unit_test(values_of_others_are_known),
        cmocka_unit_test(keys_of_trireme_are_not_shadowed),
        cmocka_unit_test(files_are_named),
        cmocka_unit_test(toml_is_named),
        cmocka_unit_test(no_key_is_passed_over),
        cmocka_unit_test(every_name_is_answered),
        cmocka_unit_test(a_mistake_is_not_another_program),
    };
    return cmocka_run_group_tests_name("foreign", tests, NULL, NULL);
}
