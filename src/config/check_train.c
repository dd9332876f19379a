/* check_train.c - keys of training: what follows from other keys, and combinations that cannot
 * work. */
#include "config/schema.h"

#include <math.h>

/* Set train.global_batch from train.global_batch_tokens where that was given, or to its default. */
static int finish_batch(struct config *config, struct error *err)
{
    enum { UNASKED = 8 };
    struct config_train *t = &config->train;
    int64_t seq = config->data.seq_len, given = t->global_batch;
    int64_t batch = t->global_batch_tokens / seq;
    if (t->global_batch_tokens % seq)
        return error_set(
            err,
            "train.global_batch_tokens is %lld, not a multiple of data.seq_len (%lld); "
            "%lld is",
            (long long)t->global_batch_tokens, (long long)seq, (long long)((batch + 1) * seq));
    if (given && batch && given != batch)
        return error_set(err,
                         "train.global_batch (%lld) and train.global_batch_tokens (%lld, which are "
                         "%lld sequences of %lld) are both set; leave one out",
                         (long long)given, (long long)t->global_batch_tokens, (long long)batch,
                         (long long)seq);
    if (batch && !t->split_batches)
        return error_set(err, "train.global_batch_tokens is for all ranks together, but "
                              "train.split_batches is false; set train.global_batch, the "
                              "sequences of each rank");
    t->global_batch = given ? given : batch ? batch : UNASKED;
    return 0;
}

/* Refuse keys of other optimizers that are not at their defaults. */
static int check_optimizer(const struct config *config, struct error *err)
{
    const struct config_train *t = &config->train;
    const char *name = config_first_set(config, &t->muon, sizeof t->muon);
    if (t->optimizer != OPTIMIZER_MUON && name)
        return error_set(err, "%s is of train.optimizer muon; leave it out, or set that", name);
    if (t->optimizer != OPTIMIZER_SGD && config_first_set(config, &t->momentum, sizeof t->momentum))
        return error_set(err, "train.momentum is %g, but it is of train.optimizer sgd; %s",
                         t->momentum,
                         t->optimizer == OPTIMIZER_MUON ? "muon has train.muon_momentum"
                                                        : "adamw has train.beta1");
    if (t->optimizer == OPTIMIZER_SGD && (config_first_set(config, &t->beta1, sizeof t->beta1) ||
                                          config_first_set(config, &t->beta2, sizeof t->beta2) ||
                                          config_first_set(config, &t->eps, sizeof t->eps)))
        return error_set(err,
                         "train.beta1, train.beta2 and train.eps are of train.optimizer adamw; "
                         "sgd has train.momentum");
    return 0;
}

static int computes_in_bf16(const struct config *config)
{
    return config->precision == PRECISION_BF16 || config->precision == PRECISION_BF16_PURE ||
           config->precision == PRECISION_FP8;
}

/* Refuse train.grad_dtype bf16 where products are not in bf16, whose results such gradients are,
 * and with muon, which needs them in fp32. */
static int check_grad_dtype(const struct config *config, struct error *err)
{
    const struct config_train *t = &config->train;
    if (t->grad_dtype == DTYPE_F32)
        return 0;
    if (!computes_in_bf16(config))
        return error_set(err, "train.grad_dtype bf16 is of products in bf16: of precision bf16, "
                              "bf16_pure or fp8; with others leave it at fp32");
    if (t->optimizer == OPTIMIZER_MUON)
        return error_set(err, "train.grad_dtype bf16: train.optimizer muon makes its step in place "
                              "of the gradient, in fp32; leave it at fp32, or use adamw");
    return 0;
}

/* Refuse train.overlap_update with muon: an update beside forward treats each element by itself. */
static int check_overlap_update(const struct config *config, struct error *err)
{
    if (!config->train.overlap_update || config->train.optimizer != OPTIMIZER_MUON)
        return 0;
    return error_set(err,
                     "train.overlap_update: train.optimizer muon exchanges matrices and "
                     "multiplies them, which is not done beside forward; leave it at false, or "
                     "use adamw");
}

static int check_precision(const struct config *config, struct error *err)
{
    const struct config_train *t = &config->train;
    if (check_grad_dtype(config, err) || check_overlap_update(config, err))
        return -1;
    if (t->logits_dtype == DTYPE_BF16 && !computes_in_bf16(config))
        return error_set(err, "train.logits_dtype bf16 is of precision bf16, bf16_pure and fp8, "
                              "whose activations are bf16; leave it at fp32");
    if (t->optimizer == OPTIMIZER_ADAMW || t->optimizer == OPTIMIZER_ADAMW8BIT)
        return 0;
    if (t->optimizer_dtype != DTYPE_F32)
        return error_set(err,
                         "train.optimizer_dtype bf16 is of train.optimizer adamw and adamw8bit; "
                         "leave it at fp32");
    if (config->precision == PRECISION_BF16_PURE)
        return error_set(err, "precision bf16_pure needs train.optimizer adamw or adamw8bit, which "
                              "round stochastically; use precision bf16");
    if (t->optimizer == OPTIMIZER_MUON && config->parallel.tensor > 1)
        return error_set(err, "train.optimizer muon needs whole matrices, and parallel.tensor "
                              "divides them; leave it at 1, or use adamw");
    if (t->optimizer == OPTIMIZER_MUON && config->comm.inter_node == CONFIG_INTER_NODE_MPI &&
        config->device != CONFIG_DEVICE_CPU)
        return error_set(err, "comm.inter_node mpi only sums, and train.optimizer muon sends "
                              "matrices from rank to rank; leave it at nccl");
    return 0;
}

static int check_loss_scale(const struct config *config, struct error *err)
{
    const struct config_loss_scale *c = &config->train.loss_scale;
    const char *name = NULL;
    if (config->precision != PRECISION_FP16)
        name = config_first_set(config, c, sizeof *c);
    if (name)
        return error_set(err, "%s is of precision fp16; other precisions need no loss scale", name);
    if (c->fixed > 0)
        name = config_first_set(config, &c->dynamic, sizeof c->dynamic);
    if (name)
        return error_set(err,
                         "%s is of a dynamic loss scale, but train.loss_scale fixes it at %g; "
                         "leave one out",
                         name, c->fixed);
    if (c->dynamic.least > ldexp(1, (int)c->dynamic.initial_power))
        return error_set(err,
                         "train.min_loss_scale (%g) is above where the loss scale begins, 2^%lld "
                         "(train.initial_scale_power)",
                         c->dynamic.least, (long long)c->dynamic.initial_power);
    return 0;
}

/* Refuse keys of evaluations and of texts beside them where there are no evaluations. */
static int check_evaluation(const struct config *config, struct error *err)
{
    const struct config_train *t = &config->train;
    if (t->early_stop_delta > 0 && !t->early_stop && !config->checkpoint.keep_best)
        return error_set(err,
                         "train.early_stop_delta is %g, but neither train.early_stop nor "
                         "checkpoint.keep_best is set",
                         t->early_stop_delta);
    if (t->early_stop && !t->eval_every)
        return error_set(err,
                         "train.early_stop is %lld evaluations, but there are none while training "
                         "goes on; set train.eval_every and data.valid",
                         (long long)t->early_stop);
    if (config->generate.min_tokens > config->generate.tokens)
        return error_set(err, "generate.min_tokens (%lld) is above generate.tokens (%lld)",
                         (long long)config->generate.min_tokens,
                         (long long)config->generate.tokens);
    if (config->generate.samples && !config->data.valid[0])
        return error_set(err, "generate.samples continues texts of data.valid, and that names no "
                              "token file; set it, or generate.samples=0");
    if (config->generate.samples && config->parallel.context > 1)
        return error_set(err,
                         "generate.samples continues texts, whose next token is in no part of a "
                         "sequence; with parallel.context %lld set generate.samples=0",
                         (long long)config->parallel.context);
    if (config->checkpoint.keep_best && !config->data.valid[0])
        return error_set(err, "checkpoint.keep_best is that of the lowest loss on data.valid, "
                              "which names no file");
    if (t->eval_micro_batch && !config->data.valid[0])
        return error_set(err, "train.eval_micro_batch is %lld, but data.valid names no file",
                         (long long)t->eval_micro_batch);
    if (t->eval_batches && !config->data.valid[0])
        return error_set(err, "train.eval_batches is %lld, but data.valid names no file",
                         (long long)t->eval_batches);
    return 0;
}

int config_check_decay_steps(const struct config_train *train, struct error *err)
{
    int64_t left = train->steps > train->warmup_steps ? train->steps - train->warmup_steps : 0;
    if (train->decay_steps <= left)
        return 0;
    return error_set(err,
                     "train.decay_steps is %lld, but of the run's %lld steps %lld come after "
                     "train.warmup_steps (%lld); no more than these can decay",
                     (long long)train->decay_steps, (long long)train->steps, (long long)left,
                     (long long)train->warmup_steps);
}

/* Refuse train.decay_steps where a schedule has no such steps, or the run not as many.  The steps
 * of train.epochs are not known yet: run_length_set() checks those. */
static int check_decay(const struct config_train *t, struct error *err)
{
    if (t->decay_steps && t->schedule < SCHEDULE_WSD)
        return error_set(err,
                         "train.decay_steps is %lld, but it is of train.schedule wsd, wsd_cosine "
                         "and wsd_sqrt; %s: leave it at 0",
                         (long long)t->decay_steps,
                         t->schedule == SCHEDULE_CONSTANT
                             ? "constant does not decay"
                             : "linear and cosine decay in all steps after warm-up");
    return t->epochs > 0 ? 0 : config_check_decay_steps(t, err);
}

static int check_steps(const struct config *config, struct error *err)
{
    const struct config_train *t = &config->train;
    if (t->min_lr > t->lr)
        return error_set(err, "train.min_lr (%g) is above train.lr (%g)", t->min_lr, t->lr);
    if (t->warmup_min_lr > t->lr)
        return error_set(err, "train.warmup_min_lr (%g) is above train.lr (%g)", t->warmup_min_lr,
                         t->lr);
    if (t->warmup_min_lr > 0 && !t->warmup_steps)
        return error_set(err,
                         "train.warmup_min_lr is %g, but train.warmup_steps is 0: there is "
                         "no warm-up",
                         t->warmup_min_lr);
    if (t->warmup_type != WARMUP_LINEAR && !t->warmup_steps)
        return error_set(err, "train.warmup_type is log, but train.warmup_steps is 0: there is no "
                              "warm-up");
    if (t->epochs > 0 && config_first_set(config, &t->steps, sizeof t->steps))
        return error_set(err,
                         "train.steps (%lld) and train.epochs (%g) both say how long training is; "
                         "leave one out",
                         (long long)t->steps, t->epochs);
    if (check_decay(t, err) || check_evaluation(config, err))
        return -1;
    if (t->eval_every && !config->data.valid[0])
        return error_set(err, "train.eval_every is %lld, but data.valid names no file",
                         (long long)t->eval_every);
    return check_optimizer(config, err);
}

/* Refuse checkpoint.async where no checkpoint is written while steps go on. */
static int check_async(const struct config *config, struct error *err)
{
    const struct config_checkpoint *c = &config->checkpoint;
    if (!c->async || c->every || (c->keep_best && config->train.eval_every))
        return 0;
    return error_set(err,
                     "checkpoint.async writes checkpoints beside the steps, and there are none "
                     "before the end: set checkpoint.every, or leave it at false");
}

int config_check_train(struct config *config, struct error *err)
{
    return finish_batch(config, err) || check_steps(config, err) || check_precision(config, err) ||
                   check_loss_scale(config, err) || check_async(config, err)
               ? -1
               : 0;
}
