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

static void files_are_named(void **state)
{
    static const struct {
        const char *text, *program, *words;
    } files[] = {
        {"compute_environment: LOCAL_MACHINE\nmixed_precision: bf16\n", "Accelerate",
         "mixed_precision is precision=bf16"},
        {"{ \"zero_optimization\": { \"stage\": 3 }, \"betas\": [0.9, 0.95] }", "DeepSpeed",
         "zero_optimization.stage is parallel.strategy"},
        {"{ \"zero_optimization\": { \"stage\": 3 }, \"gradient_accumulation_steps\": 4 }",
         "DeepSpeed",
         "gradient_accumulation_steps is train.global_batch (train.micro_batch times these steps "
         "times ranks)"},
        {"per_device_train_batch_size: 4\nwarmup_ratio: 0.1\n", "Trainer",
         "warmup_ratio is train.warmup_steps (in steps, not a share of them)"},
        {"per_device_train_batch_size: 4\nmax_grad_norm: 1\n", "Trainer",
         "max_grad_norm is train.clip=1"},
        {"[training]\nlocal_batch_size = 4\n", "torchtitan",
         "local_batch_size is train.micro_batch (train.global_batch is that of all ranks)"},
        {"[training]\nlocal_batch_size = 4\n[activation_checkpoint]\nmode = \"selective\"\n",
         "torchtitan", "activation_checkpoint.mode is recompute"},
        {"[training]\nlocal_batch_size = 4\nselective_ac_option = 'op'\n", "torchtitan",
         "selective_ac_option is recompute (op is selective; "},
        {"stage: sft\nfinetuning_type: lora\nlora_rank: 8\n", "LLaMA-Factory",
         ". Here lora_rank is lora.r=8, finetuning_type is lora.r ("},
        {"base_model: m\ndatasets:\n  - path: a.jsonl\n    type: chat_template\nsequence_len: "
         "4096\n"
         "sample_packing: true\n",
         "axolotl", "datasets is data.train"},
        {"language_model:\n  num_layers: 24\n  kv_channels: null\n  hidden_size: 1024\n",
         "Megatron-LM", ". Here num_layers is model.layers=24, hidden_size is model.hidden=1024. "},
        {"tensor_model_parallel_size: 2\nrampup_batch_size: [32, 32, 1000]\ntrain_iters: 9\n",
         "Megatron-LM",
         ". Here tensor_model_parallel_size is parallel.tensor=2, train_iters is train.steps=9. "},
        {"# it's ours\nnum_train_epochs: 3\nseed: 42\nreport_to: [a, b]\nname: it's\n", "Trainer",
         ". Here num_train_epochs is train.epochs=3, seed is seed=42. "},
        {"[model]\nname = \"llama3\" # it's\n[checkpoint]\ninterval = 5\n[job]\n"
         "dump_folder = \"./outputs: x\"\n",
         "torchtitan", "dump_folder is run.dir"},
        {"[model]\nname = \"llama3\"\n[training]\nsteps = 5\n[parallelism]\n"
         "tensor_parallel_degree = 2\n",
         "torchtitan", "tensor_parallel_degree is parallel.tensor"},
        {"base_model: m\nfsdp:\nfsdp_config:\n", "axolotl", "base_model is model.path"},
        {"base_model: m\nfsdp_config:\n  fsdp_offload_params: true\n", "axolotl",
         "fsdp_offload_params is offload.params"},
        {"[train]  # ours?\nsteps = 5\n[a.b]\nc = [1, 2]\n",
         "is TOML; a configuration here is YAML", ""},
        {"model:\n  _component_: torchtune.models.llama3_2.llama3_2_1b\ntokenizer:\n"
         "  path: t.model\ndevice: cuda\nbatch_size: 4\nlist: [a, b]\n",
         "torchtune", "batch_size is train.global_batch"},
        {"{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 4096}", "Hugging Face model",
         "hidden_size is model.hidden"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct error err = {0};
        answer_file(files[i].text, &err);
        if (!strstr(err.text, files[i].program) || !strstr(err.text, files[i].words))
            fail_msg("%s", err.text);
    }
}

/* Files as others write them; in `words` what is said, beside every key, and in `lacks` what is
 * not.
 */
static const struct {
    const char *text, *words[9], *lacks[3];
} whole[] = {
    {"base_model: x\nadapter: lora\nlora_r: 32\nlora_alpha: 64  # twice\nlora_target_linear: true\n"
     "peft_use_dora: true\nweight_decay: 0.0\nwarmup_steps: 10\nlearning_rate: \"0.0002\"\n"
     "lora_modules_to_save: [a]\nliger_rope: true\nneftune_noise_alpha: 5\ngroup_by_length: "
     "false\n",
     {"lora_r is lora.r=32, ", "lora_alpha is lora.alpha=64, ", "lora_target_linear is lora.target",
      "peft_use_dora is lora.use_dora=true, ", "weight_decay is train.weight_decay=0.0",
      "warmup_steps is train.warmup_steps=10", "learning_rate is train.lr=0.0002, ",
      ". trireme config KEY=VALUE answers: neftune_noise_alpha. Not answered: liger_rope, "
      "group_by_length. What the file leaves out is here train.beta2=0.95; "},
     {"weight_decay=0.1"}},
    {"stage: sft\nfinetuning_type: lora\nlora_rank: 8\nlora_target: all\nmax_samples: 9\n"
     "lr_scheduler_type: linear\nadam_beta2: auto\nuse_galore: false\nval_size: 0.1\n",
     {"lora_target is lora.target_modules (LLaMA-Factory's all is all-linear)",
      "max_samples is data.train (FILE.h5:samples=N", "use_galore is train.optimizer (adamw, ",
      "lr_scheduler_type is train.schedule=linear, adam_beta2 is train.beta2, ",
      ". What the file leaves out is here train.weight_decay=0.1, lora.alpha=8; "},
     {"Not answered"}},
    {"model:\n  _component_: a.b\n  lora_alpha: 16\n  apply_lora_to_mlp: True\ndataset:\n  path: "
     "a\n"
     "  split: s\noptimizer:\n  _component_: AdamW\n  weight_decay: 0.01\n  lr: 3e-4\n"
     "max_steps_per_epoch: null\nlog: http://a:1\nlist:\n  - one\n",
     {"lora_alpha is lora.alpha=16", "weight_decay is train.weight_decay=0.01",
      "lr is train.lr=3e-4",
      ". Not answered: _component_, path, log, list. What the file leaves out is here "
      "train.beta2=0.95, train.clip=1; "},
     {"max_steps_per_epoch", "http", "model.path"}},
    {"{\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 1e9}, \"fp16\": {\"enabled\": "
     "\"auto\", "
     "\"hysteresis\": 2},\n \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-4, "
     "\"betas\": [0.9, 0.9]}}}",
     {"optimizer.type is train.optimizer=AdamW, ", "optimizer.params.lr is train.lr=3e-4",
      "hysteresis is train.hysteresis=2", "zero_optimization.stage is parallel.strategy (",
      ". Not answered: sub_group_size; "}},
    {"[model]\nname = \"llama3\"\n[optimizer]\nname = \"AdamW\"\nlr = 8e-4\n[training]\n"
     "local_batch_size = 1\nsteps = 10\n[experimental]\ncustom_import = \"\"\n",
     {"model.name is model.preset", "optimizer.name is train.optimizer", "lr is train.lr=8e-4",
      "steps is train.steps=10", ". Not answered: custom_import; "}},
};

static void no_key_is_passed_over(void **state)
{
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        struct error err = {0};
        answer_file(whole[i].text, &err);
        for (const char *const *word = whole[i].words; *word; word++)
            if (!strstr(err.text, *word))
                fail_msg("no \"%s\" in: %s", *word, err.text);
        for (const char *const *word = whole[i].lacks; *word; word++)
            if (strstr(err.text, *word))
                fail_msg("\"%s\" in: %s", *word, err.text);
    }
}

/* Of a file with more keys than an answer has space for, they are counted. */
static void what_there_is_no_space_for_is_counted(void **state)
{
    char text[32768] = "base_model: m\n";
    struct error err = {0};
    for (int i = 0; i < 300; i++)
        text_append(text, sizeof text, "unknown_key_%d: %d\n", i, i);
    for (int i = 0; i < foreign_count; i++)
        text_append(text, sizeof text, "%.*s: 1\n", (int)strcspn(foreign_names[i].names, "|"),
                    foreign_names[i].names);
    answer_file(text, &err);
    int unknown = -1, more = -1, listed = 0;
    const char *known = strstr(err.text, "KEY=VALUE answers: ");
    const char *others = strstr(err.text, "Not answered: unknown_key_0, ");
    assert_non_null(known);
    assert_non_null(others);
    assert_int_equal(sscanf(strstr(known, " and "), " and %d more. Not answered", &more), 1);
    assert_int_equal(sscanf(strstr(others, " and "), " and %d more.", &unknown), 1);
    for (const char *at = others; (at = strstr(at, "unknown_key_")); at++)
        listed++;
    assert_int_equal(listed + unknown, 300);
    assert_true(more > 100);
    assert_non_null(strstr(err.text, "; trireme config --show lists the keys"));
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
        cmocka_unit_test(no_key_is_passed_over),
        cmocka_unit_test(what_there_is_no_space_for_is_counted),
        cmocka_unit_test(a_mistake_is_not_another_program),
    };
    return cmocka_run_group_tests_name("foreign", tests, NULL, NULL);
}
