/* programs.c - see programs.h. */
#include "tests/unit/programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "program/compile.h"
#include "tests/unit/translator.h"
#include "verify/verify.h"

struct config programs_config(int bits, const char *more)
{
    char text[768];
    snprintf(text, sizeof text,
             "model.layers=3 model.hidden=12 model.heads=2 model.kv_heads=1 model.ffn=20 "
             "model.vocab=23 data.seq_len=7 train.global_batch=6 train.micro_batch=1 "
             "model.tie_embeddings=%s parallel.forward_prefetch=%s parallel.backward_prefetch=%s "
             "%s%s",
             bits & 1 ? "true" : "false", bits & 2 ? "true" : "false",
             bits & 4 ? "BACKWARD_PRE" : "none", more,
             bits & 6 ? "" : " parallel.prefetch_units=1"); /* no other number without a prefetch */
    return rig_config(text);
}

#define DORA "lora.r=2 lora.use_dora=true lora.target_modules=q_proj,o_proj,gate_proj,down_proj "

/* Matrices that are large enough for moments of 8 bits. */
#define CODED "train.optimizer=adamw8bit model.ffn=512 "

/* Frozen matrices of 4 bits beside adapters. */
#define QLORA "lora.r=2 lora.quantize_base=nf4 lora.target_modules=q_proj,down_proj model.ffn=64 "

#define EXPERTS "model.experts=3 model.router_aux_loss_coef=0.1 "

#define OVERLAP "train.overlap_update=true "

/* One micro-batch: gradients pass in the memory of activations. */
#define PASSING(ranks) "train.global_batch=" #ranks " "

/* Memory of the host is the device's, or apart: as on a GPU. */
enum memory { ONE_MEMORY, HOST_APART };

static void check_one(void (*check)(struct program *), const struct config *config,
                      struct model *model, int ranks, int rank, enum memory memory)
{
    struct fleet fleet;
    fleet_open_model(&fleet, config, model, ranks, PROGRAM_TRAIN);
    assert_in_range(fleet.layout.micros, 1, 2);
    if (memory == HOST_APART) {
        fleet.layout.host_apart = 1;
        program_destroy(fleet.program[rank]);
        state_destroy(fleet.state[rank]);
        struct units *units = fleet.variant[rank % layout_variants(&fleet.layout)];
        fleet.state[rank] = state_create(units, &fleet.layout, 1, rank);
        fleet.program[rank] = program_create(fleet.state[rank], PROGRAM_TRAIN);
    }
    check(fleet.program[rank]);
    fleet_close(&fleet);
}

/* Programs of an encoder-decoder, whose units read what several read, and of two sequences. */
static void check_translators(void (*check)(struct program *))
{
    static const struct {
        int ranks;
        enum memory memory;
        const char *text;
    } strategies[] = {
        {3, ONE_MEMORY, "parallel.strategy=FULL_SHARD"},
        {3, ONE_MEMORY, "parallel.strategy=NO_SHARD parallel.schedule=zb_h1 recompute=full"},
        {3, ONE_MEMORY, "parallel.strategy=SHARD_GRAD_OP parallel.schedule=gpipe"},
        {3, HOST_APART,
         "parallel.strategy=FULL_SHARD parallel.schedule=zb_h1 offload.optimizer=host "
         "offload.gradients=host offload.params=host precision=bf16"},
        {3, ONE_MEMORY, "parallel.strategy=FULL_SHARD train.freeze=encoder.*,decoder.0.*"},
        {3, ONE_MEMORY, "parallel.strategy=SHARD_OPTIM train.freeze=embed,encoder.*"},
    };
    for (int i = 0; i < (int)(sizeof strategies / sizeof strategies[0]); i++) {
        char text[256];
        snprintf(text, sizeof text, "%s model.layers=2", strategies[i].text);
        struct config config = programs_config(i & 6, text);
        check_one(check, &config, translator_model(&config, TRANSLATOR_CHAIN), strategies[i].ranks,
                  i % strategies[i].ranks, strategies[i].memory);
    }
}

/* Bits i & 7 of settings with strategy i / 8: all eight, or two, not the same with the next. */
static int is_taken(int i)
{
    return !rig_is_short() || (5 * (i & 7) + i / 8) % 8 < 2;
}

static void check_bits(void (*check)(struct program *), int i, int ranks, enum memory memory,
                       const char *text)
{
    struct config config = programs_config(i & 7, text);
    struct error err = {0};
    struct model *model;
    assert_int_equal(layout_model(&model, &config, &err), 0);
    check_one(check, &config, model, ranks, i % ranks, memory);
}

static const struct {
    int ranks;
    enum memory memory;
    const char *text;
} strategies[] = {
    {3, ONE_MEMORY, "parallel.strategy=FULL_SHARD"},
    {3, ONE_MEMORY, "parallel.strategy=NO_SHARD parallel.reduce_bucket_bytes=0"},
    {3, ONE_MEMORY, "parallel.strategy=NO_SHARD parallel.reduce_bucket_bytes=5000"},
    {3, ONE_MEMORY, "parallel.strategy=SHARD_OPTIM"},
    {3, ONE_MEMORY, "parallel.strategy=SHARD_GRAD_OP parallel.prefetch_units=2"},
    {3, ONE_MEMORY, "parallel.strategy=FULL_SHARD parallel.accumulate=local"},
    {3, ONE_MEMORY,
     "parallel.strategy=FULL_SHARD precision=bf16 train.freeze=layers.0.*,layers.2.attn.*"},
    {3, HOST_APART,
     "parallel.strategy=SHARD_OPTIM offload.optimizer=host train.freeze=embed,layers.0.*"},
    {3, ONE_MEMORY, "parallel.strategy=FULL_SHARD precision=bf16 comm.reduce_dtype=bf16"},
    {3, ONE_MEMORY, "parallel.strategy=FULL_SHARD train.optimizer=muon"},
    {3, ONE_MEMORY, "parallel.strategy=FULL_SHARD " CODED},
    {3, HOST_APART, "parallel.strategy=SHARD_OPTIM offload.optimizer=host " CODED},
    {3, ONE_MEMORY, "parallel.strategy=NO_SHARD train.optimizer=muon precision=bf16"},
    {4, HOST_APART,
     "parallel.strategy=HYBRID_SHARD_ZERO2 parallel.shard=2 train.global_batch=8 "
     "train.optimizer=muon offload.gradients=host parallel.persist_below=1000"},
    {3, ONE_MEMORY, "parallel.strategy=FULL_SHARD precision=bf16 parallel.persist_below=1000"},
    {3, ONE_MEMORY,
     "parallel.strategy=FULL_SHARD offload.optimizer=disk offload.params=disk precision=bf16"},
    {3, HOST_APART,
     "parallel.strategy=FULL_SHARD offload.optimizer=disk offload.params=host precision=bf16"},
    {4, ONE_MEMORY, "parallel.strategy=HYBRID_SHARD parallel.shard=2 train.global_batch=8"},
    {4, HOST_APART,
     "parallel.strategy=HYBRID_SHARD_ZERO2 parallel.shard=2 train.global_batch=8 "
     "offload.optimizer=host recompute=full train.optimizer=sgd"},
    {3, ONE_MEMORY,
     "parallel.strategy=FULL_SHARD offload.gradients=disk precision=bf16 "
     "parallel.persist_below=1000"},
    {3, HOST_APART,
     "parallel.strategy=SHARD_GRAD_OP offload.gradients=host offload.optimizer=host"},
    {3, HOST_APART,
     "parallel.strategy=FULL_SHARD offload.gradients=disk offload.params=host "
     "parallel.accumulate=local"},
    {3, HOST_APART,
     "parallel.strategy=HYBRID_SHARD parallel.shard=1 offload.gradients=host "
     "offload.optimizer=disk"},
    {3, ONE_MEMORY, "parallel.strategy=FULL_SHARD parallel.schedule=gpipe"},
    {3, HOST_APART,
     "parallel.strategy=SHARD_GRAD_OP parallel.schedule=gpipe recompute=full "
     "offload.gradients=host offload.optimizer=host"},
    {3, ONE_MEMORY, "parallel.strategy=NO_SHARD parallel.schedule=zb_h1"},
    {3, ONE_MEMORY,
     "parallel.strategy=FULL_SHARD parallel.schedule=zb_h1 recompute=full precision=bf16 "
     "train.freeze=layers.0.*,layers.2.attn.*"},
    {2, ONE_MEMORY, "parallel.pipeline=2 train.global_batch=2"},
    {3, ONE_MEMORY, "parallel.pipeline=3 train.global_batch=2 parallel.schedule=zb_h1"},
    {3, HOST_APART,
     "parallel.pipeline=3 train.global_batch=2 parallel.schedule=gpipe recompute=full "
     "offload.optimizer=host precision=bf16"},
    {2, ONE_MEMORY, "parallel.pipeline=2 train.global_batch=2 parallel.schedule=interleaved_1f1b"},
    {2, ONE_MEMORY,
     "parallel.pipeline=2 train.global_batch=2 parallel.schedule=zb_v recompute=full"},
    {2, HOST_APART, OVERLAP "parallel.pipeline=2 train.global_batch=2 parallel.schedule=zb_v"},
    {4, ONE_MEMORY, "parallel.pipeline=2 train.global_batch=4 parallel.strategy=FULL_SHARD"},
    {4, ONE_MEMORY,
     "parallel.pipeline=2 train.global_batch=4 parallel.strategy=FULL_SHARD "
     "parallel.pipeline_reshard=true"},
    {4, ONE_MEMORY, "parallel.pipeline=2 train.global_batch=4 parallel.strategy=NO_SHARD"},
    {2, ONE_MEMORY, "parallel.tensor=2 train.global_batch=2"},
    {4, ONE_MEMORY, "parallel.tensor=2 parallel.pipeline=2 train.global_batch=2"},
    {4, ONE_MEMORY,
     "parallel.tensor=2 train.global_batch=4 parallel.strategy=FULL_SHARD precision=bf16 "
     "parallel.schedule=zb_h1 recompute=gathered"},
    {2, ONE_MEMORY,
     "parallel.tensor=2 train.global_batch=2 data.seq_len=8 parallel.tensor_overlap=2 "
     "precision=bf16 parallel.tensor_reduce_dtype=fp32 recompute=gathered"},
    {4, ONE_MEMORY,
     "parallel.tensor=2 parallel.pipeline=2 train.global_batch=2 data.seq_len=8 "
     "parallel.tensor_overlap=2 parallel.schedule=zb_h1 recompute=full"},
    {4, ONE_MEMORY, DORA "parallel.tensor=2 train.global_batch=4"},
    {3, ONE_MEMORY, QLORA "parallel.strategy=FULL_SHARD precision=bf16"},
    {3, HOST_APART, QLORA "parallel.strategy=FULL_SHARD offload.params=host recompute=full"},
    {2, ONE_MEMORY, QLORA "parallel.pipeline=2 train.global_batch=2 parallel.strategy=NO_SHARD"},
    {3, ONE_MEMORY, EXPERTS "parallel.strategy=FULL_SHARD recompute=full"},
    {4, ONE_MEMORY,
     EXPERTS "parallel.tensor=2 parallel.pipeline=2 train.global_batch=2 parallel.schedule=zb_h1"},
    {2, ONE_MEMORY, EXPERTS "parallel.tensor=2 parallel.wrap=none train.global_batch=2"},
    {2, ONE_MEMORY,
     "parallel.context=2 parallel.strategy=FULL_SHARD data.seq_len=12 train.global_batch=2"},
    {4, ONE_MEMORY,
     "parallel.context=2 parallel.strategy=NO_SHARD data.seq_len=12 train.global_batch=4 "
     "recompute=full"},
    {4, HOST_APART,
     "parallel.context=2 parallel.strategy=SHARD_GRAD_OP data.seq_len=12 train.global_batch=4 "
     "offload.gradients=host offload.optimizer=host parallel.persist_below=1000"},
    {4, HOST_APART,
     "parallel.strategy=HYBRID_SHARD parallel.shard=2 train.global_batch=8 precision=bf16 "
     "comm.reduce_dtype=bf16 offload.gradients=disk offload.optimizer=host "
     "parallel.persist_below=1000"},
    {2, HOST_APART, PASSING(2) "parallel.strategy=FULL_SHARD train.optimizer=muon"},
    {3, ONE_MEMORY, PASSING(3) "parallel.strategy=NO_SHARD parallel.reduce_bucket_bytes=5000"},
    {3, HOST_APART, PASSING(3) "parallel.strategy=SHARD_OPTIM precision=bf16 recompute=full"},
    {4, HOST_APART,
     PASSING(4) "parallel.strategy=HYBRID_SHARD parallel.shard=2 offload.optimizer=host "
                "precision=bf16 parallel.persist_below=1000"},
    {2, ONE_MEMORY,
     PASSING(1) "parallel.tensor=2 data.seq_len=8 parallel.tensor_overlap=2 precision=bf16"},
    {1, HOST_APART, OVERLAP "train.global_batch=2"},
    {3, ONE_MEMORY, OVERLAP "parallel.strategy=FULL_SHARD precision=bf16"},
    {3, HOST_APART, OVERLAP EXPERTS "parallel.strategy=SHARD_OPTIM precision=bf16"},
    {3, HOST_APART,
     OVERLAP "parallel.strategy=FULL_SHARD parallel.persist_below=1000 train.freeze=embed"},
    {3, HOST_APART,
     OVERLAP "parallel.strategy=SHARD_GRAD_OP offload.optimizer=host offload.gradients=host"},
    {3, ONE_MEMORY,
     OVERLAP "parallel.strategy=FULL_SHARD offload.optimizer=disk offload.params=disk "
             "precision=bf16"},
    {3, ONE_MEMORY, OVERLAP "parallel.strategy=FULL_SHARD parallel.accumulate=local"},
    {4, HOST_APART,
     OVERLAP "parallel.pipeline=2 train.global_batch=4 parallel.strategy=FULL_SHARD"},
};

void programs_everywhere(void (*check)(struct program *))
{
    for (int i = 0; i < 8 * (int)(sizeof strategies / sizeof strategies[0]); i++) {
        if (is_taken(i))
            check_bits(check, i, strategies[i / 8].ranks, strategies[i / 8].memory,
                       strategies[i / 8].text);
    }
    check_translators(check);
}

void assert_right(const struct program *program)
{
    struct error err = {0};
    if (verify_program(program, &err))
        fail_msg("%s", err.text);
}

void assert_refused(verdict_fn *verdict, const struct program *program, const char *names,
                    const char *what, int i)
{
    struct error err = {0};
    char text[128] = "", copy[128], *rest = copy;
    instr_text(program, i, text, sizeof text);
    if (!verdict(program, &err))
        fail_msg("%s at instruction %d (%s) was not noticed", what, i, text);
    snprintf(copy, sizeof copy, "%s", names);
    for (char *name; (name = strtok_r(rest, "|", &rest));)
        if (strstr(err.text, name))
            return;
    fail_msg("%s at instruction %d (%s): wanted \"%s\", got \"%s\"", what, i, text, names,
             err.text);
}

void assert_wrong(const struct program *program, const char *names, const char *what, int i)
{
    assert_refused(verify_program, program, names, what, i);
}
