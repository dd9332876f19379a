/* foreign.c - trireme's keys for the settings of other programs; foreign_text.c has whole files.
 *
 * One row for each meaning: the names other tools have for it, the key here, and where the values
 * differ a note, or a table of theirs and ours; a value that is in no table is the user's to
 * choose.  Names with a dot match the end of a dotted name ("optimizer.params.lr"), names of one
 * letter the options of llm.c ("-b").  Case and '-' for '_' make no difference.
 */
#include "config/foreign.h"

#include <ctype.h>
#include <string.h>

const struct foreign foreign_names[] = {
    /* ---- numbers ---- */
    {.names = "mixed_precision|torch_dtype|params_dtype|mixed_precision_param|dtype",
     .here = "precision"},
    {.names = "bf16.enabled|bf16",
     .here = "precision",
     .note = "bf16 or fp16; without it fp32",
     .values = "true=bf16"},
    {.names = "fp16.enabled|fp16",
     .here = "precision",
     .note = "bf16 or fp16; without it fp32",
     .values = "true=fp16"},
    {.names = "fp8|fp8_format|fp8_recipe|fp8_hybrid|fp8_recipe_handler|float8|float8.recipe_name|"
              "quantize.linear.float8.recipe_name",
     .here = "precision",
     .note = "fp8 is E4M3 with a scale for each block of 128 numbers, DeepSeek-V3's"},
    {.names = "tf32|allow_tf32", .here = "precision", .note = "fp32 is computed in fp32"},
    {.names = "mixed_precision_reduce|communication_data_type|reduce_dtype|fsdp_reduce_dtype",
     .here = "comm.reduce_dtype"},
    {.names = "grad_reduce_in_bf16",
     .here = "comm.reduce_dtype",
     .note = "fp32 or bf16",
     .values = "true=bf16|false=fp32"},
    {.names = "exp_avg_dtype|state_dtype", .here = "train.optimizer_dtype"},

    /* ---- sharding ---- */
    {.names = "zero_stage|zero_optimization.stage|zero|data_parallel_sharding_strategy|-z",
     .here = "parallel.strategy",
     .note = "stage 3 is FULL_SHARD, 2 SHARD_GRAD_OP, 1 SHARD_OPTIM",
     .values = "3=FULL_SHARD|2=SHARD_GRAD_OP|1=SHARD_OPTIM|0=NO_SHARD"},
    {.names = "stage",
     .note = "ZeRO's is parallel.strategy, FULL_SHARD for 3, SHARD_GRAD_OP for 2, SHARD_OPTIM for "
             "1; leave LLaMA-Factory's sft or pt out: the data says what is learned"},
    {.names = "fsdp_sharding_strategy|sharding_strategy|zero_optimization",
     .here = "parallel.strategy"},
    {.names = "fsdp_reshard_after_forward|reshard_after_forward",
     .here = "parallel.strategy",
     .note = "FULL_SHARD does, SHARD_GRAD_OP does not",
     .values = "true=FULL_SHARD|false=SHARD_GRAD_OP"},
    {.names = "use_distributed_optimizer",
     .here = "parallel.strategy",
     .note = "SHARD_OPTIM; without it NO_SHARD",
     .values = "true=SHARD_OPTIM|false=NO_SHARD"},
    {.names = "distributed_type|fsdp|deepspeed|fsdp_version|fsdp_config|deepspeed_config",
     .here = "parallel.strategy",
     .note = "FSDP and ZeRO-3 are FULL_SHARD, ZeRO-2 SHARD_GRAD_OP, ZeRO-1 SHARD_OPTIM, DDP "
             "NO_SHARD",
     .values = "MULTI_GPU=NO_SHARD|MULTI_CPU=NO_SHARD|FSDP=FULL_SHARD"},
    {.names = "data_parallel_shard_degree|dp_shard|mics_shard_size|zero_hpz_partition_size",
     .here = "parallel.shard"},
    {.names = "data_parallel_replicate_degree|dp_replicate", .here = "parallel.replicate"},
    {.names = "tensor_parallel_degree|tensor_model_parallel_size|tp_size|tensor_parallel_size|"
              "tensor_parallel|tp",
     .here = "parallel.tensor"},
    {.names =
         "pipeline_parallel_degree|pipeline_model_parallel_size|pp_size|pipeline_parallel_size|"
         "pipeline_parallel|pp",
     .here = "parallel.pipeline"},
    {.names = "pipeline_parallel_schedule", .here = "parallel.schedule"},
    {.names = "pipeline_parallel_microbatch_size", .here = "train.micro_batch"},
    {.names = "num_virtual_stages_per_pipeline_rank|num_layers_per_virtual_pipeline_stage",
     .here = "parallel.virtual_stages",
     .note = "stages of a rank, with schedule interleaved_1f1b"},
    {.names = "pipeline_model_parallel_layout|pipeline_parallel_split_points|"
              "decoder_first_pipeline_num_layers|decoder_last_pipeline_num_layers",
     .here = "parallel.stages",
     .note = "units of each stage: 3,2,2,1"},
    {.names = "enable_async_tensor_parallel",
     .here = "parallel.tensor_overlap",
     .note = "auto, off, or how many chunks"},
    {.names = "context_parallel_degree|context_parallel_size|cp_size|context_parallel|cp",
     .here = "parallel.context"},
    {.names = "sequence_parallel|sp|parallel.sequence",
     .here = "parallel.tensor",
     .note = "whose ranks always divide the rows that norms work on"},
    {.names = "data_parallel_size|data_parallel|dp_size|dp",
     .note = "all ranks that the other axes leave share the batch; parallel.strategy says what "
             "each keeps of the model"},
    {.names = "expert_parallel_degree|expert_model_parallel_size|expert_parallel|ep_size|ep|"
              "parallel.expert",
     .note = "expert parallelism is not in this version of trireme: parallel.tensor divides each "
             "expert, and parallel.strategy shards all of them"},
    {.names = "fsdp_auto_wrap_policy|auto_wrap_policy|fsdp_transformer_layer_cls_to_wrap|"
              "transformer_layer_cls_to_wrap",
     .here = "parallel.wrap"},
    {.names = "fsdp_min_num_params", .here = "parallel.min_num_params"},
    {.names = "fsdp_backward_prefetch|fsdp_backward_prefetch_policy",
     .here = "parallel.backward_prefetch"},
    {.names = "fsdp_forward_prefetch", .here = "parallel.forward_prefetch"},
    {.names = "limit_all_gathers|stage3_prefetch_bucket_size|stage3_max_live_parameters",
     .here = "parallel.prefetch_units",
     .note = "in units, such as blocks"},
    {.names = "stage3_param_persistence_threshold", .here = "parallel.persist_below"},
    {.names = "reduce_bucket_size|allgather_bucket_size|bucket_cap_mb|ddp_bucket_cap_mb",
     .here = "parallel.reduce_bucket_bytes",
     .note = "in bytes"},
    {.names = "no_sync", .here = "parallel.accumulate"},
    {.names = "overlap_comm|contiguous_gradients|overlap_grad_reduce|overlap_param_gather|"
              "fsdp_use_orig_params|use_orig_params|zero3_init_flag|round_robin_gradients",
     .note = "leave it out: nothing has to be switched on for it here"},
    {.names = "fsdp_sync_module_states|sync_module_states",
     .here = "model.sync_module_states",
     .note = "weights are the same on any number of ranks without it; it compares them"},
    {.names = "fsdp_cpu_ram_efficient_loading|cpu_ram_efficient_loading|low_cpu_mem_usage",
     .here = "model.loading",
     .note = "node has one rank of each node read and send; with each, ranks read no more than "
             "their own parts"},
    {.names = "activation_checkpoint.mode|recompute_granularity", .here = "recompute"},
    {.names = "gradient_checkpointing|activation_checkpointing|fsdp_activation_checkpointing|"
              "partition_activations|use_recompute|enable_activation_checkpointing|-r",
     .here = "recompute",
     .note = "none, selective or full",
     .values = "true=full|false=none"},
    {.names = "selective_ac_option",
     .here = "recompute",
     .note = "op is selective; a number N is full with recompute_every=N",
     .values = "op=selective"},
    {.names = "recompute_num_layers|recompute_method",
     .here = "recompute_every",
     .note = "one unit in so many recomputes"},
    {.names = "offload_optimizer_device|offload_optimizer.device|offload_optimizer|"
              "cpu_offload|optimizer_cpu_offload",
     .here = "offload.optimizer",
     .note = "with offload.gradients, a key of its own here",
     .values = "cpu=host|nvme=disk|true=host|false=none|none=none"},
    {.names = "offload_param_device|offload_param.device|offload_param|offload_params",
     .here = "offload.params",
     .values = "cpu=host|nvme=disk|true=host|false=none|none=none"},
    {.names = "fsdp_offload_params|enable_cpu_offload",
     .here = "offload.params",
     .note = "with offload.gradients and offload.optimizer, as FSDP moves all three",
     .values = "false=none"},
    {.names = "nvme_path|offload_optimizer_nvme_path|offload_param_nvme_path",
     .here = "offload.path"},

    /* ---- the run ---- */
    {.names = "max_steps|train_iters|total_num_steps|num_steps|max_iters|num_iterations|"
              "train_steps|-x",
     .here = "train.steps"},
    {.names = "num_train_epochs|num_epochs|epochs", .here = "train.epochs"},
    {.names = "max_duration",
     .here = "train.steps",
     .note = "10ba are 10 steps; 2ep are train.epochs=2"},
    {.names = "train_samples",
     .here = "train.steps",
     .note = "steps times global_batch sequences are read"},
    {.names = "max_train_samples|max_samples",
     .here = "data.train",
     .note = "FILE.h5:samples=N uses the first N"},
    {.names = "max_eval_samples",
     .here = "data.valid",
     .note = "FILE.h5:samples=N uses the first N"},
    {.names = "sample_packing|neat_packing|multipack",
     .here = "data.packing",
     .note = "documents packs whole ones, padded has one in each sequence, stream cuts them",
     .values = "true=documents|false=padded"},
    {.names = "packing|packed|eval_packing|eval_sample_packing",
     .here = "data.packing",
     .note = "documents packs whole ones, padded has one in each sequence, stream cuts them"},
    {.names = "load_best_model_at_end|save_best_model", .here = "checkpoint.keep_best"},
    {.names = "early_stopping_patience|patience", .here = "train.early_stop"},
    {.names = "early_stopping_threshold", .here = "train.early_stop_delta"},
    {.names =
         "output_dir|out_dir|output|save_dir|project_dir|logging_dir|dump_folder|checkpoint.folder|"
         "save|-o",
     .here = "run.dir",
     .values = "*"},
    {.names = "overwrite_output_dir", .here = "run.fresh"},
    {.names = "logging_steps|log_interval|log_every_n_steps|log_steps|log_freq|steps_per_print|"
              "print_freq",
     .here = "run.log_every"},
    {.names = "report_to|tensorboard_dir|wandb_project|enable_tensorboard|enable_wandb|log_with|"
              "wandb|wandb.project|tensorboard|run_name|wandb_log|wandb_run_name",
     .note = "metrics.jsonl in run.dir has a line for each step, and trireme tensorboard shows it"},
    {.names = "ddp_timeout|train_timeout_seconds|init_timeout_seconds", .here = "run.hang_seconds"},
    {.names = "distributed_timeout_minutes", .here = "run.hang_seconds", .note = "in seconds"},
    {.names =
         "wall_clock_breakdown|profile_freq|enable_profiling|profile|profiling.enable_profiling",
     .here = "run.trace",
     .note = "the number of the step that is traced"},
    {.names = "dataloader_num_workers|num_workers|dataloader_pin_memory",
     .note =
         "leave it out: each rank reads its tokens three steps ahead, without loader processes"},
    {.names = "data_seed|random_seed|training.seed", .here = "seed"},
    {.names = "num_processes|num_machines|machine_rank|nproc_per_node|nnodes|num_gpus|num_nodes|"
              "world_size|local_rank|main_process_ip|main_process_port|rdzv_backend|master_port",
     .note = "the launcher starts the ranks: mpirun -n N, or srun --mpi=pmix --ntasks=N"},
    {.names = "debug.deterministic|deterministic_mode", .here = "train.reproducible"},
    {.names = "gpu_ids",
     .note = "each rank takes a GPU by itself; CUDA_VISIBLE_DEVICES hides some"},
    {.names = "use_cpu|no_cuda|accelerator",
     .here = "device",
     .note = "cpu or cuda",
     .values = "true=cpu|cpu=cpu|gpu=cuda"},
    {.names = "exit_duration_in_mins|max_time|time_limit",
     .note = "the job's own limit counts: state is saved on SIGUSR1, which #SBATCH "
             "--signal=USR1@600 sends ten minutes before it"},
    {.names = "async_save|async_mode", .here = "checkpoint.async", .note = "true or false"},
    {.names = "shuffle|data.shuffle|dataloader_shuffle",
     .note = "each epoch reads the data in another order, which follows from seed alone"},
    {.names = "group_by_length|length_column_name",
     .note = "leave it out: data.packing=documents fills sequences with whole documents"},
    {.names = "moe_grouped_gemm", .note = "leave it out: products of experts are grouped"},
    {.names = "compute_environment|main_training_function|same_network|torch_adam|adam_w_mode|"
              "allgather_partitions|reduce_scatter|sub_group_size|stage3_max_reuse_distance|"
              "pin_memory|transformer_impl|backend",
     .note = "leave it out: nothing has to be set for it here"},
    {.names = "pad_to_sequence_len|trust_remote_code|save_safetensors|do_train|plot_loss|"
              "save_only_model",
     .note = "leave it out: nothing that is trained depends on it here"},
    {.names = "torch_compile|compile|dynamo_backend|training.compile|compile.enable",
     .note = "nothing has to be compiled: the kernels are built in"},

    /* ---- the model ---- */
    {.names = "model_name_or_path|pretrained_model_name_or_path|model_name|base_model|"
              "tokenizer_name_or_path",
     .here = "model.path",
     .note = "a folder or a name of Hugging Face's hub, weights and tokenizer; without weights: "
             "model.preset",
     .values = "*"},
    {.names = "model_revision|revision", .here = "model.path", .note = "ORG/NAME@REVISION"},
    {.names = "flash_attention|flash_attn|use_flash_attn|attn_implementation|attention_backend|"
              "use_liger_kernel|enable_liger_kernel",
     .note = "leave it out: attention never holds all scores, and the loss not all logits"},
    {.names = "load_in_4bit|quantization_bit|quantization_method|quantization_config|use_qlora|"
              "qlora|quantize_base|bnb_4bit_quant_type|quant_type",
     .here = "lora.quantize_base",
     .note = "nf4, beside adapters (lora.r)",
     .values = "true=nf4|4=nf4|nf4=nf4|false=none"},
    {.names = "bnb_4bit_compute_dtype", .here = "precision"},
    {.names = "bnb_4bit_use_double_quant|double_quantization|double_quant",
     .here = "lora.quantize_base",
     .note = "nf4 keeps the scale of each 64 weights in fp32: 4.5 bits a weight"},
    {.names = "bnb_4bit_quant_storage",
     .note = "leave it out: weights of 4 bits (lora.quantize_base) are sharded and gathered as "
             "they are"},
    {.names = "load_in_8bit",
     .here = "lora.quantize_base",
     .note = "nf4; weights of 8 bits are not in this version of trireme"},
    {.names = "-e",
     .here = "model.preset",
     .values = "d12=gpt2|d24=gpt2-medium|d36=gpt2-large|d48=gpt2-xl"},
    {.names = "model.name|model.flavor|model_type",
     .here = "model.preset",
     .note = "a model with its weights: model.path"},
    {.names = "num_layers|num_hidden_layers|n_layer|n_layers", .here = "model.layers"},
    {.names = "hidden_size|n_embd|d_model|dim", .here = "model.hidden"},
    {.names = "num_attention_heads|n_head|n_heads", .here = "model.heads"},
    {.names = "num_key_value_heads|num_query_groups|n_kv_heads", .here = "model.kv_heads"},
    {.names = "group_query_attention",
     .here = "model.kv_heads",
     .note = "how many heads keys and values have"},
    {.names = "kv_channels", .here = "model.head_dim"},
    {.names = "intermediate_size|ffn_hidden_size|n_inner|d_ff", .here = "model.ffn"},
    {.names = "num_experts|num_local_experts|num_moe_experts", .here = "model.experts"},
    {.names = "num_experts_per_tok|moe_router_topk", .here = "model.experts_per_token"},
    {.names = "moe_intermediate_size|moe_ffn_hidden_size", .here = "model.ffn"},
    {.names = "moe_aux_loss_coeff|moe_aux_loss_coef",
     .here = "model.router_aux_loss_coef",
     .note = "theirs times the layers: here it weighs the mean over layers, as in transformers"},
    {.names = "output_router_logits",
     .here = "model.router_aux_loss_coef",
     .note = "0 is without the loss"},
    {.names = "vocab_size|padded_vocab_size", .here = "model.vocab"},
    {.names = "max_position_embeddings|n_positions|n_ctx", .here = "model.max_seq_len"},
    {.names = "rms_norm_eps|layer_norm_epsilon|layernorm_epsilon|norm_epsilon",
     .here = "model.norm_eps"},
    {.names = "rotary_base", .here = "model.rope_theta"},
    {.names = "initializer_range|init_method_std", .here = "model.init_std"},
    {.names = "embd_pdrop", .here = "model.embed_dropout"},
    {.names = "resid_pdrop|hidden_dropout", .here = "model.residual_dropout"},
    {.names = "attn_pdrop", .here = "model.attention_dropout"},
    {.names = "dropout",
     .here = "model.residual_dropout",
     .note = "model.embed_dropout and model.attention_dropout are keys of their own, and so is "
             "lora.dropout"},
    {.names = "lora_dropout", .here = "lora.dropout"},
    {.names = "use_lora|use_peft",
     .here = "lora.r",
     .note = "the rank of adapters, such as 16; at 0 there are none"},
    {.names = "adapter|lora.adapter",
     .here = "lora.r",
     .note = "the rank of adapters, such as 16; of qlora also lora.quantize_base=nf4"},
    {.names = "lora_rank|lora.rank|lora_r", .here = "lora.r"},
    {.names = "rank",
     .here = "lora.r",
     .note = "that of adapters; the launcher numbers the ranks of a job"},
    {.names = "finetuning_type",
     .here = "lora.r",
     .note = "the rank of adapters for lora; 0 trains the whole model"},
    {.names = "lora_target",
     .here = "lora.target_modules",
     .note = "LLaMA-Factory's all is all-linear",
     .values = "all=all-linear"},
    {.names = "lora_target_modules", .here = "lora.target_modules"},
    {.names = "lora_attn_modules",
     .here = "lora.target_modules",
     .note = "torchtune's output_proj is o_proj"},
    {.names = "lora_target_linear",
     .here = "lora.target_modules",
     .note = "all-linear is every linear layer of the blocks",
     .values = "true=all-linear"},
    {.names = "apply_lora_to_mlp",
     .here = "lora.target_modules",
     .note = "gate_proj, up_proj and down_proj, beside those of attention"},
    {.names = "additional_target", .here = "lora.modules_to_save"},
    {.names = "lora_model_dir|adapter_name_or_path", .here = "lora.path"},
    {.names = "peft_use_dora", .here = "lora.use_dora"},
    {.names = "loraplus_lr_ratio|loraplus_lr_embedding|pissa_init|relora|relora_steps|"
              "init_lora_weights",
     .note =
         "adapters begin and learn as peft's own LoRA, rsLoRA and DoRA do; other ways are not in "
         "this version of trireme"},
    {.names = "unfrozen_parameters|freeze_trainable_layers|freeze_trainable_modules|"
              "freeze_extra_modules",
     .here = "train.freeze",
     .note = "names what is frozen, not what is trained"},
    {.names = "tie_word_embeddings", .here = "model.tie_embeddings"},
    {.names = "untie_embeddings_and_output_weights",
     .here = "model.tie_embeddings",
     .note = "the opposite: true there is false here",
     .values = "true=false|false=true"},
    {.names = "add_qkv_bias", .here = "model.qkv_bias"},
    {.names = "normalization|position_embedding_type|swiglu|gated_linear_unit|activation_func|"
              "add_bias_linear",
     .here = "model.family",
     .note = "llama has RMSNorm, rotary positions and SwiGLU, gpt2 LayerNorm, learned positions, "
             "GELU and biases"},

    /* ---- data ---- */
    {.names = "validation.dataset|validation.dataset_path",
     .here = "data.valid",
     .note = "a token file of trireme tokenize"},
    {.names = "train_file|dataset|dataset_name|dataset_path|data_path|train_data_path|"
              "train_dataset|train_data|datasets|data|data.path|-i",
     .here = "data.train",
     .note = "a token file of trireme tokenize"},
    {.names = "validation_file|valid_data_path|eval_dataset|-j", .here = "data.valid"},
    {.names = "block_size|max_seq_length|max_length|seq_length|sequence_length|context_length|"
              "sequence_len|model_max_length|cutoff_len|-t",
     .here = "data.seq_len"},
    {.names =
         "tokenizer|tokenizer_type|tokenizer_model|tokenizer_name|tokenizer_path|hf_assets_path|"
         "vocab_file|merge_file",
     .note = "trireme tokenize TEXT --tokenizer FOLDER -o FILE.h5 makes the token files that "
             "data.train names"},
    {.names = "train_on_inputs|train_on_prompt|assistant_only_loss|completion_only_loss",
     .note = "trireme tokenize --loss completion learns the answers alone, --loss all everything"},
    {.names = "mask_history",
     .note = "\"train\": false in a message leaves it out of what is learned"},
    {.names = "chat_template|template",
     .note = "trireme tokenize --chat-template NAME; without it that of the tokenizer's folder"},
    {.names = "dataset_prepared_path|overwrite_cache|preprocessing_num_workers|dataset_processes|"
              "dataset_num_proc",
     .note = "trireme tokenize makes token files once, and data.train names them"},
    {.names = "split|val_set_size|val_size",
     .note = "trireme tokenize TEXT --valid FILE.h5 --valid-fraction F puts some texts aside for "
             "data.valid"},

    /* ---- batches ---- */
    {.names = "train_batch_size|global_batch_size|global_train_batch_size",
     .here = "train.global_batch"},
    {.names = "batch_size|batch",
     .here = "train.global_batch",
     .note = "of all ranks; what a rank computes at once is train.micro_batch"},
    {.names = "total_batch_size|global_batch_tokens|-d", .here = "train.global_batch_tokens"},
    {.names =
         "per_device_train_batch_size|train_micro_batch_size_per_gpu|local_batch_size|"
         "micro_batch_size|per_device_batch_size|device_batch_size|device_train_microbatch_size|-b",
     .here = "train.micro_batch",
     .note = "train.global_batch is that of all ranks",
     .values = "*"},
    {.names = "gradient_accumulation_steps|grad_acc_steps|accumulate_grad_batches|"
              "gradient_accumulation|grad_accum|grad_accum_steps|grad_accumulation_steps|"
              "accumulation_steps",
     .here = "train.global_batch",
     .note = "train.micro_batch times these steps times ranks"},
    {.names = "train.accumulate|train.accumulation",
     .here = "train.global_batch",
     .note =
         "train.micro_batch times the micro-batches times ranks; how their gradients are summed "
         "is parallel.accumulate"},
    {.names = "rampup_batch_size",
     .note = "the batch has one size from the first step to the last"},
    {.names = "split_batches", .here = "train.split_batches"},
    {.names = "per_device_eval_batch_size|eval_batch_size", .here = "train.eval_micro_batch"},

    /* ---- the optimizer ---- */
    {.names = "learning_rate|max_lr|base_lr|peak_lr|warmup_max_lr|optimizer.params.lr|-l",
     .here = "train.lr"},
    {.names = "min_lr_factor|min_lr_ratio|cosine_min_lr_ratio|lr_end|end_lr|-q",
     .here = "train.min_lr",
     .note = "a learning rate, not a share of one"},
    {.names = "lr_scheduler_type|lr_scheduler|lr_decay_style|scheduler.type|scheduler",
     .here = "train.schedule"},
    {.names = "decay_type|lr_wsd_decay_style",
     .here = "train.schedule",
     .note = "wsd is linear, wsd_cosine cosine, wsd_sqrt 1-sqrt and minus_sqrt"},
    {.names = "lr_scheduler_kwargs",
     .here = "train.schedule",
     .note = "num_decay_steps is train.decay_steps, min_lr train.min_lr, and decay_type is in the "
             "schedule's name"},
    {.names = "num_decay_steps|lr_decay_steps|lr_wsd_decay_iters",
     .here = "train.decay_steps",
     .note = "with train.schedule wsd, wsd_cosine or wsd_sqrt"},
    {.names = "decay_ratio|lr_wsd_decay_samples",
     .here = "train.decay_steps",
     .note = "in steps, with train.schedule wsd, wsd_cosine or wsd_sqrt"},
    {.names = "num_stable_steps|lr_decay_starting_step",
     .here = "train.decay_steps",
     .note = "how many of the last steps decay: steps before these do not"},
    {.names = "warmup_ratio|lr_warmup_fraction",
     .here = "train.warmup_steps",
     .note = "in steps, not a share of them"},
    {.names = "lr_warmup_samples",
     .here = "train.warmup_steps",
     .note = "in steps of global_batch samples"},
    {.names = "warmup_num_steps|num_warmup_steps|lr_warmup_iters|warmup_iters|warmup|"
              "lr_scheduler.warmup_steps|-u",
     .here = "train.warmup_steps"},
    {.names = "lr_warmup_init", .here = "train.warmup_min_lr"},
    {.names = "lr_decay_iters|lr_decay_samples",
     .here = "train.steps",
     .note = "schedules end at the last step"},
    {.names = "optim|optimizer_type|optimizer_name|optimizer.type|optimizer.name|optimizer",
     .here = "train.optimizer"},
    {.names = "adam_beta1", .here = "train.beta1"},
    {.names = "adam_beta2", .here = "train.beta2"},
    {.names = "betas|adam_betas|optimizer.params.betas",
     .here = "train.beta1",
     .note = "and train.beta2"},
    {.names = "adam_epsilon|adam_eps|optimizer.params.eps", .here = "train.eps"},
    {.names = "wd|optimizer.params.weight_decay|-c", .here = "train.weight_decay"},
    {.names = "gradient_clipping|max_grad_norm|clip_grad|grad_clip|gradient_clip_val|max_norm|"
              "grad_norm_clip|clip_grad_norm",
     .here = "train.clip"},
    {.names = "label_smoothing|label_smoothing_factor|z_loss|z_loss_weight",
     .note = "the loss is the mean cross-entropy; there is none with this term"},
    {.names = "neftune_noise_alpha",
     .note = "noise on embeddings is not in this version of trireme"},
    {.names = "loss_type", .note = "the loss is the mean cross-entropy of what is to be learned"},
    {.names = "use_galore|use_apollo|use_badam|use_muon",
     .here = "train.optimizer",
     .note = "adamw, adamw8bit, muon or sgd"},
    {.names = "ema|ema_decay|use_ema",
     .note = "means of weights over steps are not in this version of trireme"},
    {.names = "eval_steps|eval_interval|validation.freq|-v", .here = "train.eval_every"},
    {.names = "evaluation_strategy|eval_strategy|do_eval|evals_per_epoch",
     .here = "train.eval_every",
     .note = "in steps"},
    {.names = "eval_iters|max_eval_steps|-m", .here = "train.eval_batches"},
    {.names = "validation.steps", .here = "train.eval_batches", .note = "0 is all of data.valid"},

    /* ---- checkpoints ---- */
    {.names =
         "save_steps|save_interval|checkpoint.interval|checkpointing_steps|save_freq|save_every|-n",
     .here = "checkpoint.every"},
    {.names = "saves_per_epoch|save_strategy", .here = "checkpoint.every", .note = "in steps"},
    {.names = "save_total_limit|keep_latest_k|max_checkpoints|keep_last",
     .here = "checkpoint.keep"},
    {.names = "resume_from_checkpoint|load_checkpoint|checkpoint.load_step|load|init_from|-y",
     .here = "checkpoint.resume"},
    {.names = "initial_load_path|finetune|no_load_optim",
     .here = "model.path",
     .note = "a run or checkpoint: its weights alone; checkpoint.resume takes all of it"},
    {.names = "fsdp_state_dict_type|state_dict_type|stage3_gather_16bit_weights_on_model_save|"
              "dist_ckpt_format",
     .note = "leave it out: a checkpoint holds every tensor whole, whatever the layout"},
};

const int foreign_count = sizeof foreign_names / sizeof foreign_names[0];

enum { NAME_CHARS = 128 }; /* of a name in lower case, with its end */

/* "--Learning-Rate" to "learning_rate". */
static void normalize(const char *name, char text[NAME_CHARS])
{
    int used = 0;
    for (name += strspn(name, "-"); *name && used < NAME_CHARS - 1; name++)
        text[used++] = *name == '-' ? '_' : (char)tolower((unsigned char)*name);
    text[used] = 0;
}

/* 1 where name, or what follows a dot of it, is one of names "a|b". */
static int is_one_of(const char *names, const char *name)
{
    for (const char *part = name; part; part = strchr(part, '.')) {
        part += *part == '.';
        size_t length = strlen(part);
        for (const char *n = names; n; n = strchr(n, '|')) {
            n += *n == '|';
            if (length && strcspn(n, "|") == length && !strncmp(n, part, length))
                return 1;
        }
    }
    return 0;
}

const struct foreign *foreign_find(const char *name)
{
    char text[NAME_CHARS];
    int letter = name[0] == '-' && name[1] && !name[2]; /* an option of llm.c: "-b" */
    normalize(name, text);
    for (int i = 0; i < foreign_count; i++)
        if (is_one_of(foreign_names[i].names, letter ? name : text))
            return &foreign_names[i];
    return NULL;
}
